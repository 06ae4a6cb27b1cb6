// A cast is an ordinary recorded op whose gradient casts back.
#pragma once

#include "invar/core/tensor.h"

namespace invar::ops {

Tensor cast(const Tensor& x, Dtype dtype);  // x itself where it has that dtype already

}  // namespace invar::ops
