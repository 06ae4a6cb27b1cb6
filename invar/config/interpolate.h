// ${key} in the names of a run and of its folder stands for that key's value, as in OmegaConf: exp_name=run_${seed}.
#pragma once

#include "invar/config/config.h"

namespace invar {

// Throws a UsageError for a key that the configuration has not, and for one that stands for itself.
void interpolate_names(Config& config);

}  // namespace invar
