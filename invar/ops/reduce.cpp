#include "invar/kernels/pointwise.h"
#include "invar/ops/reduce.h"

#include <algorithm>

#include "invar/core/error.h"
#include "invar/ops/apply.h"
#include "invar/ops/shape.h"
#include "invar/ops/shape_tools.h"

namespace invar::ops {

namespace {

// Which dimensions a reduction takes away.
struct Axes {
    Shape from;
    std::array<bool, kMaxRank> taken{};

    Axes(const char* op, const Tensor& x, const std::vector<int>& dims) : from(x.shape()) {
        if (!is_floating(x.dtype())) fail("{}: needs a floating tensor, not {}", op, x.str());
        if (dims.empty()) taken.fill(true);
        for (const int dim : dims) {
            bool& flag = taken[std::size_t(from.axis(dim))];
            if (flag) fail("{}: dimension {} of {} is named twice", op, dim, from.str());
            flag = true;
        }
    }
    std::int64_t count() const {
        std::int64_t n = 1;
        for (int i = 0; i < from.rank(); ++i) n *= taken[std::size_t(i)] ? from[i] : 1;
        return n;
    }
    Shape kept(bool keepdim) const {  // the result's shape
        Shape shape;
        for (int i = 0; i < from.rank(); ++i) {
            if (!taken[std::size_t(i)])
                shape.push_back(from[i]);
            else if (keepdim)
                shape.push_back(1);
        }
        return shape;
    }
};

// The sum over the taken axes, divided by `divisor`, in `dtype`, all dimensions kept. Neighbouring axes are summed in
// one go.
Tensor sum_over(const Axes& axes, const Tensor& x, double divisor, Dtype dtype) {
    // Of nothing, whatever is left over: 0, and 0 / 0 where a mean is asked for.
    if (x.numel() == 0) return filled(axes.kept(true), dtype, x.device(), 0.0 / divisor);
    Tensor total = dense(x);
    for (int end = axes.from.rank(); end > 0;) {
        if (!axes.taken[std::size_t(end - 1)]) {
            --end;
            continue;
        }
        int begin = end - 1;
        while (begin > 0 && axes.taken[std::size_t(begin - 1)]) --begin;
        Span3 span;
        Shape smaller = total.shape();
        for (int i = 0; i < total.rank(); ++i) {
            (i < begin ? span.outer : i < end ? span.n : span.inner) *= total.size(i);
            if (i >= begin && i < end) smaller[i] = 1;
        }
        Tensor part = Tensor::empty(smaller, dtype, x.device());
        kernels_for(x.device()).sum(span, total.view(), part.view(), divisor, false);
        divisor = 1;
        total = part;
        end = begin;
    }
    if (total.dtype() == dtype && divisor == 1) return total;
    Tensor result = Tensor::empty_like(total, dtype);  // nothing to sum: a scalar
    kernels_for(x.device()).unary(UnaryOp::DivScalar, total.view(), result.view(), {divisor, 0});
    return result;
}

Tensor finished(const Tensor& total, const Shape& shape, Dtype dtype) {
    return (total.dtype() == dtype ? total : converted_to(total, dtype)).window(0, shape);
}

template <bool kMean>
struct Sum {
    static constexpr const char* kName = kMean ? "mean" : "sum";
    static constexpr const char* kDoc = kMean ? "mean over dimensions" : "sum over dimensions";
    static constexpr CastClass kCast = CastClass::fp32;
    Axes axes;
    bool keepdim;

    double divisor() const { return kMean ? double(axes.count()) : 1.0; }
    Tensor forward(Context&, const Tensors& in) {
        return finished(sum_over(axes, in[0], divisor(), sum_dtype(in[0].dtype())), axes.kept(keepdim), in[0].dtype());
    }
    Tensors backward(Context&, const Tensor& g) {
        const Tensor spread = expanded(dense(g).window(0, axes.kept(true)), axes.from);
        Tensor gx = Tensor::empty(axes.from, g.dtype(), g.device());
        Kernels& kernels = kernels_for(g.device());
        if (kMean)
            kernels.unary(UnaryOp::DivScalar, spread.view(), gx.view(), {divisor(), 0});
        else
            kernels.copy(spread.view(), gx.view());
        return {gx};
    }
};

struct Var {
    static constexpr const char* kName = "var";
    static constexpr const char* kDoc = "variance over dimensions";
    static constexpr CastClass kCast = CastClass::fp32;
    Axes axes;
    bool unbiased, keepdim;

    // Of fewer values than it takes there is none: 0 / 0.
    double divisor() const { return double(std::max<std::int64_t>(axes.count() - (unbiased ? 1 : 0), 0)); }
    Tensor forward(Context& ctx, const Tensors& in) {
        const Tensor& x = in[0];
        Kernels& kernels = kernels_for(x.device());
        // The mean in f64, and its error taken off again: squares of deviations would hold the square of it.
        const double count = double(axes.count());
        const Tensor first = sum_over(axes, x, count, Dtype::f64), mean = Tensor::empty_like(first);
        Tensor squares = Tensor::empty_like(x, sum_dtype(x.dtype()));
        kernels.binary(BinaryOp::Sub, x.view(), expanded(first, x.shape()).view(), squares.view(), {});
        const Tensor error = sum_over(axes, squares, count, Dtype::f64);
        kernels.binary(BinaryOp::Add, first.view(), error.view(), mean.view(), {});
        kernels.binary(BinaryOp::SquaredError, x.view(), expanded(mean, x.shape()).view(), squares.view(), {});
        ctx.save(x), ctx.save(mean);
        return finished(sum_over(axes, squares, divisor(), squares.dtype()), axes.kept(keepdim), x.dtype());
    }
    Tensors backward(Context& ctx, const Tensor& g) {
        const Tensor x = ctx.saved(0), mean = expanded(ctx.saved(1), x.shape());
        const Tensor spread = expanded(dense(g).window(0, axes.kept(true)), x.shape());
        Kernels& kernels = kernels_for(g.device());
        Tensor deviation = Tensor::empty_like(x, sum_dtype(x.dtype())), gx = Tensor::empty_like(x);
        kernels.binary(BinaryOp::Sub, x.view(), mean.view(), deviation.view(), {});
        kernels.unary(UnaryOp::Affine, deviation.view(), deviation.view(), {2 / divisor(), 0});
        kernels.binary(BinaryOp::Mul, deviation.view(), spread.view(), gx.view(), {});
        return {gx};
    }
};

// The winners are known when this runs: its inputs are x and their i64 indices, one along the axis.
struct Max {
    static constexpr const char* kName = "max";
    static constexpr const char* kDoc = "largest value, and where it is";
    static constexpr CastClass kCast = CastClass::keep;
    int axis;
    Shape from;

    Tensor forward(Context& ctx, const Tensors& in) {
        Tensor y = Tensor::empty(in[1].shape(), in[0].dtype(), in[0].device());
        kernels_for(y.device()).gather(span_of(from, axis), 1, dense(in[0]).view(), in[1].view(), y.view());
        ctx.save(in[1]);
        return y;
    }
    Tensors backward(Context& ctx, const Tensor& g) {
        const Tensor index = ctx.saved(0);
        Tensor gx = filled(from, g.dtype(), g.device(), 0);
        kernels_for(g.device()).scatter_add(span_of(from, axis), 1, dense(g).view(), index.view(), gx.view());
        return {gx, Tensor{}};
    }
};

Tensor winners(const char* op, const Tensor& x, int axis) {
    if (!is_floating(x.dtype())) fail("{}: needs a floating tensor, not {}", op, x.str());
    if (x.size(axis) == 0) fail("{}: nothing to choose from in {}", op, x.str());
    Shape shape = x.shape();
    shape[axis] = 1;
    Tensor index = Tensor::empty(shape, Dtype::i64, x.device());
    if (index.numel() == 0) return index;
    kernels_for(x.device()).max(span_of(x.shape(), axis), dense(x).view(), View{}, index.view());
    return index;
}

}  // namespace

Tensor sum(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
    return apply(Sum<false>{Axes("sum", x, dims), keepdim}, {x});
}

Tensor mean(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
    return apply(Sum<true>{Axes("mean", x, dims), keepdim}, {x});
}

Tensor var(const Tensor& x, const std::vector<int>& dims, bool unbiased, bool keepdim) {
    return apply(Var{Axes("var", x, dims), unbiased, keepdim}, {x});
}

MaxResult max(const Tensor& x, int dim, bool keepdim) {
    const int axis = x.shape().axis(dim);
    const Tensor index = winners("max", x, axis);
    const Tensor values = apply(Max{axis, x.shape()}, {x, index});
    return keepdim ? MaxResult{values, index} : MaxResult{squeeze(values, axis), squeeze(index, axis)};
}

Tensor max(const Tensor& x) {
    return max(reshape(x, {-1}), 0).values;
}

Tensor argmax(const Tensor& x, int dim, bool keepdim) {
    const int axis = x.shape().axis(dim);
    const Tensor index = winners("argmax", x, axis);
    return keepdim ? index : squeeze(index, axis);
}

}  // namespace invar::ops
