// What most tasks are put together from: data for each split, and a model that fits them.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "invar/data/dataset.h"
#include "invar/nn/module.h"

namespace invar {

class TaskParts {
  public:
    using OpenData = std::function<std::shared_ptr<const Dataset>(Split)>;
    using MakeModel = std::function<std::unique_ptr<Module>(const DataInfo&)>;
    // Data are opened when they are first asked for, once; not for the model's sake where `known` tells what they are.
    TaskParts(OpenData open, MakeModel make, std::optional<DataInfo> known = {});
    TaskParts(std::shared_ptr<const Dataset> train, std::shared_ptr<const Dataset> test, MakeModel make);

    std::shared_ptr<const Dataset> data(Split split) const;
    DataInfo info() const;
    std::unique_ptr<Module> make_model() const { return make_(info()); }
    // For a task whose outputs are not those that the data name.
    std::unique_ptr<Module> make_model(const DataInfo& wanted) const { return make_(wanted); }

  private:
    OpenData open_;
    MakeModel make_;
    std::optional<DataInfo> known_;
    mutable std::shared_ptr<const Dataset> opened_[2];
};

}  // namespace invar
