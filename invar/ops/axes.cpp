#include "invar/ops/axes.h"

#include "invar/core/error.h"
#include "invar/kernels/pointwise.h"
#include "invar/ops/shape_tools.h"

namespace invar::ops {

Axes::Axes(const char* op, const Tensor& x, const std::vector<int>& dims) : from(x.shape()) {
    if (dims.empty()) taken.fill(true);
    for (const int dim : dims) {
        bool& flag = taken[std::size_t(from.axis(dim))];
        if (flag) fail("{}: dimension {} of {} is named twice", op, dim, from.str());
        flag = true;
    }
}

std::int64_t Axes::count() const {
    std::int64_t n = 1;
    for (int i = 0; i < from.rank(); ++i) n *= taken[std::size_t(i)] ? from[i] : 1;
    return n;
}

Shape Axes::kept(bool keepdim) const {
    Shape shape;
    for (int i = 0; i < from.rank(); ++i) {
        if (!taken[std::size_t(i)])
            shape.push_back(from[i]);
        else if (keepdim)
            shape.push_back(1);
    }
    return shape;
}

Tensor Axes::spread(const Tensor& reduced) const {
    return expanded(dense(reduced).window(0, kept(true)), from);
}

void check_floating_reduction(const char* op, const Tensor& x) {
    if (!is_floating(x.dtype())) fail("{}: needs a floating tensor, not {}; cast it first", op, x.str());
}

Tensor sum_over(const Axes& axes, const Tensor& x, double divisor, Dtype dtype) {
    // Of nothing, whatever is left over: 0, and 0 / 0 where a mean is asked for.
    if (x.numel() == 0) return filled(axes.kept(true), dtype, x.device(), 0.0 / divisor);
    Tensor total = dense(x);
    axes.each_run([&](const Span3& span, const Shape& smaller) {
        Tensor part = Tensor::empty(smaller, dtype, x.device());
        kernels_for(x.device()).sum(span, total.view(), part.view(), divisor, false);
        divisor = 1;
        total = part;
    });
    if (divisor == 1) return total.dtype() == dtype ? total : converted_to(total, dtype);
    Tensor result = Tensor::empty_like(total, dtype);  // nothing to sum: a scalar
    kernels_for(x.device()).unary(UnaryOp::DivScalar, total.view(), result.view(), {divisor, 0});
    return result;
}

Tensor finished(const Tensor& total, const Shape& shape, Dtype dtype) {
    return (total.dtype() == dtype ? total : converted_to(total, dtype)).window(0, shape);
}

}  // namespace invar::ops
