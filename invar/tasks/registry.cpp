#include "invar/tasks/registry.h"

#include "invar/core/error.h"
#include "invar/data/registry.h"
#include "invar/models/registry.h"

namespace invar {

std::shared_ptr<const Task> make_task(const Config& config) {
    const auto open = [data = Part(config.data), seed = config.data_seed()](Split split) {
        return open_data(data, split, seed);
    };
    const auto make = [model = config.model](const DataInfo& data) { return make_model(model, data); };
    const Part& chosen = config.task;
    auto task = made_by(chosen, [&] {
        return std::any_cast<const TaskMaker&>(chosen.info().make)(chosen.options(),
                                                                   TaskParts(open, make, describe_data(config.data)));
    });
    check<UsageError>(task != nullptr, "task '{}' was not made", chosen.name());
    return task;
}

}  // namespace invar
