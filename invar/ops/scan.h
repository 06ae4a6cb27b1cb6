// Running sums along a dimension, added in double; those of whole numbers and booleans are i64, in two's complement.
#pragma once

#include "invar/core/tensor.h"

namespace invar::ops {

// y[i] = x[0] + ... + x[i]
Tensor cumsum(const Tensor& x, int dim);

}  // namespace invar::ops
