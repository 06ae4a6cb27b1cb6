// Dropout: zeroes elements at random while training. Nothing is saved for backward but a place in the random sequence.
#pragma once

#include "invar/core/tensor.h"

namespace invar::ops {

// Zeroes each element with probability p and scales the rest by 1 / (1 - p); x itself where not training.
Tensor dropout(const Tensor& x, double p, bool training);

}  // namespace invar::ops
