// One training step, readable from top to bottom, and one pass of evaluation.
#pragma once

#include <span>

#include "invar/data/loader.h"
#include "invar/optim/grad_scaler.h"
#include "invar/tasks/task.h"
#include "invar/train/setup.h"

namespace invar {

// Forward and backward over a group of batches, of every step there is: trained, recorded, replayed or tuned. Each
// batch counts by its size, so that the gradient is that of one large batch. `backward` gets the loss of each batch,
// already by its share, and takes it from there; the loss's own ops run under the module path "loss".
void forward_backward(const LossFunction& loss, Module& model, const Precision& precision, std::span<const Batch> group,
                      const std::function<void(const Tensor& loss)>& backward);

// Trains on one group of batches (more than one: gradient accumulation) and returns the loss, a mean over all its
// samples, as a tensor on the device: reading it is left to whoever logs it. `reports` gets what the step found;
// `average`, where there is one, moves along.
Tensor training_step(const LossFunction& loss, Module& model, Optimizer& optimizer, GradScaler& scaler,
                     const Precision& precision, const ClipSpec& clip, std::span<const Batch> group,
                     const ReportSlots& reports = {}, WeightAverage* average = nullptr);

// The step of a run as a function, for RecordedStep.
std::function<Tensor(std::span<const Batch> group)> step_function(Setup& setup, const ReportSlots& reports = {});

struct Evaluation {
    std::vector<Measured> metrics;  // of the task, in its order
    std::int64_t samples = 0;
    // By its name; throws where the task has none of it.
    double at(std::string_view name) const;
    double loss() const { return at("loss"); }
};
Evaluation evaluate(const Task& task, Module& model, Loader& data, const Precision& precision);

}  // namespace invar
