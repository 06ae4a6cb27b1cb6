// Reductions over some or all dimensions. Sums are taken in FP32 (FP64 for f64) whatever the input's dtype.
#pragma once

#include <vector>

#include "invar/core/tensor.h"

namespace invar::ops {

// No dimensions named: over all of them.
Tensor sum(const Tensor& x, const std::vector<int>& dims = {}, bool keepdim = false);
Tensor mean(const Tensor& x, const std::vector<int>& dims = {}, bool keepdim = false);
Tensor var(const Tensor& x, const std::vector<int>& dims = {}, bool unbiased = true, bool keepdim = false);

struct MaxResult {
    Tensor values, indices;  // indices i64
};
// The largest along a dimension, or of all; the gradient goes to the first of equals (of all, PyTorch shares it out).
MaxResult max(const Tensor& x, int dim, bool keepdim = false);
Tensor max(const Tensor& x);                                         // of all
Tensor argmax(const Tensor& x, int dim = -1, bool keepdim = false);  // i64, not recorded

}  // namespace invar::ops
