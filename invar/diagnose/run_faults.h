// What is wrong with a run in any precision: data with NaN, constant labels, a rate that stays at zero, chance in
// evaluation, a loss that is no mean, clipping of scaled gradients, layers and averages that stand still. Each is
// measured from what the run's parts do.
#pragma once

#include <optional>

#include "invar/diagnose/check.h"
#include "invar/diagnose/diagnose.h"

namespace invar {

using MaybeConcern = std::optional<Concern>;

// NaN or infinite values, or labels (or inputs) that are the same in every sample.
MaybeConcern data_fault(const DataCheck& data);
// A rate that is 0, or never gets beyond a hundredth of what was asked for, in all steps that are left.
MaybeConcern rate_fault(const Optimizer& optimizer, std::int64_t total_steps);
// Evaluation that gives something else each time, or changes the model.
MaybeConcern evaluation_fault(Setup& setup);
// A loss that is a sum over samples, or is divided by the number of batches in a step although the step does that.
MaybeConcern loss_fault(Setup& setup, const LossFunction& loss);
// Gradients of an FP32 step that do not grow with the loss scale. Leaves those of the scaled step in the parameters.
MaybeConcern scaled_clip_fault(Setup& setup, const StepStart& start, const LossFunction& loss, double scale);
// A limit far below the norm of every step.
MaybeConcern clip_fault(const ClipSpec& clip, std::span<const StepFigures> steps);
// Moving averages among the model's buffers that are kept in 16 bits and stand still there.
std::vector<StillAverage> still_averages(Setup& setup, const StepStart& start, const LossFunction& loss);
MaybeConcern average_fault(std::span<const StillAverage> averages);

// Which parameters were given gradients over some steps.
class GradientWatch {
  public:
    // After backward, before the optimizer's step.
    void observe(const Optimizer& optimizer);
    // Layers that do not learn, the first in order of what can be done about them. `freeze` has the patterns that the
    // configuration freezes; `updates` what moved; `start` is a step to try what the loss depends on.
    MaybeConcern fault(Setup& setup, const StepStart& start, const LossFunction& loss,
                       std::span<const std::string> freeze, std::span<const LostUpdates> updates) const;

  private:
    struct Seen {
        int steps = 0;         // with a gradient
        double largest = 0.0;  // of its magnitudes
        double rate = 0.0;     // the largest
    };
    int steps_ = 0;
    std::vector<Seen> seen_;  // by parameter
};

// All that can be known before a step is done, the gravest first.
std::vector<Concern> faults_before_steps(Setup& setup, const LossFunction& loss);

}  // namespace invar
