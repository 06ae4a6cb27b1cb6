// Which operation of a step is the first whose result is not finite, why, and what would mend it.
#pragma once

#include "invar/diagnose/finding.h"
#include "invar/train/setup.h"

namespace invar {

// Replays the step from the model's present weights and says what goes wrong in it first. Nothing found: all is finite.
// Leaves everything but the gradients as it was. `scale` is what the loss was multiplied by.
Finding find_first_bad(Setup& setup, std::span<const Batch> group, RngState rng, double scale,
                       const LossFunction& loss = {});

}  // namespace invar
