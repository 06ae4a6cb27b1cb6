// One training step, readable from top to bottom, and one pass of evaluation.
#pragma once

#include <span>

#include "invar/data/loader.h"
#include "invar/optim/grad_scaler.h"
#include "invar/train/config.h"

namespace invar {

// What is minimised: a mean over the batch.
Tensor training_loss(const LossConfig& loss, const Tensor& logits, const Tensor& target);

// Trains on one group of batches (more than one: gradient accumulation) and returns the loss, a mean over all its
// samples, as a tensor on the device: reading it is left to whoever logs it. `reports` gets what the step found.
Tensor training_step(Module& model, Optimizer& optimizer, GradScaler& scaler, const Precision& precision,
                     const ClipSpec& clip, std::span<const Batch> group, const ReportSlots& reports = {},
                     const LossConfig& loss = {});

struct Evaluation {
    double loss = 0.0;
    double accuracy = 0.0;
    std::int64_t samples = 0;
};
Evaluation evaluate(Module& model, Loader& data, const Precision& precision);

}  // namespace invar
