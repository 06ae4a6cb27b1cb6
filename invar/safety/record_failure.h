// What a run hands the step that broke it: kept in RUN/failure for `invar diagnose RUN`, and explained at once.
#pragma once

#include "invar/safety/failure.h"

namespace invar {

// Saves the step, then finds its first bad operation. `rng` and `scale` are those from before the step; the weights
// must be, too, which an optimizer sees to where gradients are not finite. Leaves the setup as it was but for
// gradients.
Finding record_failure(const std::filesystem::path& run, Setup& setup, std::span<const Batch> group,
                       const Progress& progress, RngState rng, double scale, const std::string& config_yaml);

// For an error message or a log: "linear in fc1, forward, gave Inf in f16; precision is to blame; try KEY=VALUE".
std::string one_line(const Finding& finding);

}  // namespace invar
