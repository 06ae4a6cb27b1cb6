// Matrix products: batched, broadcast and transposed operands, and the linear layer's product.
#pragma once

#include "invar/core/tensor.h"
#include "invar/kernels/specs.h"

namespace invar::ops {

// As in NumPy: vectors are rows on the left and columns on the right; leading dimensions broadcast. Transposed operands
// are read where they lie.
Tensor matmul(const Tensor& a, const Tensor& b);

// x [..., in] times the transpose of w [out, in], plus bias [out] where there is one; then the activation, in the same
// pass where the device can.
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias = {}, Activation activation = Activation::none);

}  // namespace invar::ops
