// Reductions over some or all dimensions. Sums are taken in FP32 (FP64 for f64) whatever the input's dtype; those of
// whole numbers and booleans are i64, in two's complement.
#pragma once

#include <vector>

#include "invar/core/tensor.h"

namespace invar::ops {

// No dimensions named: over all of them.
Tensor sum(const Tensor& x, const std::vector<int>& dims = {}, bool keepdim = false);
// Of floating tensors alone, as in PyTorch: cast whole numbers first.
Tensor mean(const Tensor& x, const std::vector<int>& dims = {}, bool keepdim = false);
Tensor var(const Tensor& x, const std::vector<int>& dims = {}, bool unbiased = true, bool keepdim = false);
Tensor std(const Tensor& x, const std::vector<int>& dims = {}, bool unbiased = true, bool keepdim = false);

// The product along a dimension, or of all, multiplied in double; that of whole numbers is i64.
Tensor prod(const Tensor& x, int dim, bool keepdim = false);
Tensor prod(const Tensor& x);
// The largest and the smallest; unlike max and min they share their gradient out among equals.
Tensor amax(const Tensor& x, const std::vector<int>& dims = {}, bool keepdim = false);
Tensor amin(const Tensor& x, const std::vector<int>& dims = {}, bool keepdim = false);
// The vector norm: of magnitudes the sum (p = 1), the root of the sum of squares (2) or the largest (infinity).
Tensor norm(const Tensor& x, double p = 2, const std::vector<int>& dims = {}, bool keepdim = false);

// Whether any, or all, of tensors of any dtype are true: not zero, NaN too. bool, of u8 u8; of nothing false and true.
Tensor any(const Tensor& x, const std::vector<int>& dims = {}, bool keepdim = false);
Tensor all(const Tensor& x, const std::vector<int>& dims = {}, bool keepdim = false);

}  // namespace invar::ops
