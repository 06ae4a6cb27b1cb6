// Regression: samples x with numbers y, predicted by a network of as many outputs, judged by the squared error.
#pragma once

#include "invar/tasks/task.h"

namespace invar {

class Regression : public Task {
  public:
    using MakeModel = std::function<std::unique_ptr<Module>(const DataInfo&)>;
    Regression(std::shared_ptr<const Dataset> train, std::shared_ptr<const Dataset> test, MakeModel make);

    std::string name() const override { return "regression"; }
    std::shared_ptr<const Dataset> data(Split split) const override { return split == Split::train ? train_ : test_; }
    std::unique_ptr<Module> make_model() const override { return make_(train_->info()); }
    // The mean of squares over all numbers of y, f32 [n, outputs].
    Tensor loss(Module& model, const Batch& batch) const override;
    // Beside that r2, the share of the variance of y that is explained: 0 is what the mean of y would give.
    std::vector<Metric> metrics() const override;
    std::vector<double> measure(Module& model, const Batch& batch) const override;

  private:
    std::shared_ptr<const Dataset> train_, test_;
    MakeModel make_;
};

}  // namespace invar
