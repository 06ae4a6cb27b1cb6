// What depends on the order of values: the largest and the smallest, sorting, the first k. Tensors of any dtype, whole
// numbers to their last digit. NaN is larger than all others, but for max and min, which both give it; of equals the
// first comes first. Gradients flow to the values; places (indices) are i64.
#pragma once

#include "invar/core/tensor.h"

namespace invar::ops {

struct ValuesAndIndices {
    Tensor values, indices;
};
using MaxResult = ValuesAndIndices;

// Along a dimension, or of all; the gradient goes to the first of equals (of all, PyTorch shares it out).
ValuesAndIndices max(const Tensor& x, int dim, bool keepdim = false);
ValuesAndIndices min(const Tensor& x, int dim, bool keepdim = false);
Tensor max(const Tensor& x);
Tensor min(const Tensor& x);
Tensor argmax(const Tensor& x, int dim = -1, bool keepdim = false);
Tensor argmin(const Tensor& x, int dim = -1, bool keepdim = false);

ValuesAndIndices sort(const Tensor& x, int dim = -1, bool descending = false);
Tensor argsort(const Tensor& x, int dim = -1, bool descending = false);
// The k largest (smallest), in that order whether or not `sorted` asks for it.
ValuesAndIndices topk(const Tensor& x, std::int64_t k, int dim = -1, bool largest = true, bool sorted = true);

}  // namespace invar::ops
