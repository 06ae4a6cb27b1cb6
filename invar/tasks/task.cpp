#include "invar/tasks/task.h"

namespace invar {

Metric Task::mean_loss() {
    return {.name = "loss", .better = Better::lower};
}

std::vector<Metric> Task::metrics() const {
    return {mean_loss()};
}

std::vector<double> Task::measure(Module& model, const Batch& batch) const {
    return {loss(model, batch).item() * double(batch.size), double(batch.size)};
}

}  // namespace invar
