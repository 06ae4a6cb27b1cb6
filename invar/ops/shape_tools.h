// Small helpers that several ops share: dense copies, broadcasting by zero strides, and its reverse. None records.
#pragma once

#include "invar/core/tensor.h"
#include "invar/kernels/specs.h"
#include "invar/ops/apply.h"

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
Tensor filled(const Shape& shape, Dtype dtype, Device device, double value);
// What sums, statistics and weight gradients are kept in: f64 for f64, else f32.
constexpr Dtype sum_dtype(Dtype dtype) {
    return dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32;
}
// What a kernel sees of a tensor that may be absent.
inline View view_of(const Tensor& x) {
    return x ? x.view() : View{};
}
// Two gradients that one kernel call adds into under one flag: where only one of them has a gradient to add to, the
// other starts from zero.
bool share_accumulation(Context::Slot& a, Context::Slot& b);

}  // namespace invar::ops
