#include "invar/tasks/task.h"

#include "invar/tasks/prediction.h"

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

std::optional<ImagePrediction> Task::predict(Module&, const SeenImage&) const {
    return {};
}

std::vector<Image> Task::pictures(Module&, const NextBatch&) const {
    return {};
}

std::vector<Remark> Task::remarks_on_data(const Stopped&) const {
    return {};
}

std::vector<Remark> Task::remarks_on_model(Module&, const NextBatch&) const {
    return {};
}

}  // namespace invar
