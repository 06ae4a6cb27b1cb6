// Any step of a run, as it was: trained again from a checkpoint before it, or from the beginning, and then replayed as
// a step is that was kept.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>

#include "invar/config/config.h"
#include "invar/diagnose/failure.h"
#include "invar/train/recovery_policy.h"

namespace invar {

// The first step that the run's log has with a loss that is not finite.
std::optional<std::int64_t> first_bad_step(const std::filesystem::path& run);

// How far it is to a step, counted from 1.
struct WayToStep {
    std::int64_t step = 0;
    std::filesystem::path checkpoint;  // "" is the beginning
    std::int64_t from = 0;             // steps that are done there
    std::int64_t again() const { return step - 1 - from; }
};
// Throws a UsageError where the run has no such step, or was changed by a recovery and cannot be had as it was.
WayToStep way_to_step(const std::filesystem::path& run, const Config& config, std::int64_t step);

// The state before it, and its batches. `config` is the run's; its precision becomes that of the step.
Failure state_before(const WayToStep& way, Config& config, const std::function<void(double)>& progress = {});

// The loss that the log has for the step; nothing where it has none.
std::optional<double> logged_loss(const std::filesystem::path& run, std::int64_t step);

// What FP32 makes of the steps from before the trouble on: as the run has said when it ended, else they are trained now
// from a checkpoint that is none of the trouble's. Unknown for ranks, and where that would be too many steps.
Explanation tried_from_before(const std::filesystem::path& run, const Config& config, const Failure& failure);

}  // namespace invar
