// Softmax and its logarithm, over any dimension.
#pragma once

#include "invar/core/tensor.h"

namespace invar::ops {

Tensor softmax(const Tensor& x, int dim = -1);
Tensor log_softmax(const Tensor& x, int dim = -1);

}  // namespace invar::ops
