// What the convolutions of a step cost on the GPU at hand. Which engine its library has for one, and how much memory
// that takes, cannot be reckoned: each is run, as a recorded step would run it.
#pragma once

#include "invar/config/config.h"
#include "invar/kernels/dry/work.h"

namespace invar {

// Each that is there, once; those that do not fit into what is free are left out. On a CPU too, where they are run one
// after the other.
dry::ConvCosts measure_convolutions(const dry::WorkList& work, const Config& config, Device device);

}  // namespace invar
