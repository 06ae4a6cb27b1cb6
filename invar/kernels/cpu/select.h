// The CPU's kernels, compiled for the best instruction set that this machine runs.
#pragma once

#include "invar/kernels/kernels.h"

namespace invar {

Kernels& best_cpu_kernels();

}  // namespace invar
