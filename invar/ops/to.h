// Moving a tensor to another device: an ordinary recorded op whose gradient goes back.
#pragma once

#include "invar/core/tensor.h"

namespace invar::ops {

// x itself where it is there already; otherwise a dense copy.
Tensor to(const Tensor& x, Device device);

}  // namespace invar::ops
