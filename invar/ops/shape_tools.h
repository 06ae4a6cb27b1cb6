// Small helpers that several ops share: dense copies, broadcasting by zero strides, and its reverse. None records.
#pragma once

#include "invar/core/tensor.h"
#include "invar/kernels/specs.h"

namespace invar::ops {

// x itself where it is dense, else a dense copy.
Tensor dense(const Tensor& x);
// x seen in a larger shape, its missing and unit dimensions repeated by stride 0.
Tensor expanded(const Tensor& x, const Shape& shape);
// The reverse for gradients: g summed over what broadcasting repeated, in `dtype`.
Tensor reduced_to(const Tensor& g, const Shape& shape, Dtype dtype);
// Dimension `dim` of a dense tensor as the middle of [outer, n, inner].
Span3 span_of(const Shape& shape, int dim);
// x in another dtype, not recorded.
Tensor converted_to(const Tensor& x, Dtype dtype);

}  // namespace invar::ops
