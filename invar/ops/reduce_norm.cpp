// Products, extremes and norms over dimensions.
#include <cmath>
#include <limits>

#include "invar/core/error.h"
#include "invar/kernels/pointwise.h"
#include "invar/ops/apply.h"
#include "invar/ops/axes.h"
#include "invar/ops/reduce.h"
#include "invar/ops/shape.h"
#include "invar/ops/shape_tools.h"

namespace invar::ops {

namespace {

// Where a is what b is; b may have to be seen in a's shape.
Tensor equal(const Tensor& a, const Tensor& b) {
    Tensor y = Tensor::empty_like(a, Dtype::boolean);
    kernels_for(a.device()).compare({CompareOp::eq, a.dtype()}, a.view(), expanded(b, a.shape()).view(), y.view());
    return y;
}
Tensor equal(const Tensor& a, std::int64_t number) {
    Tensor y = Tensor::empty_like(a, Dtype::boolean);
    const CompareSpec spec{CompareOp::eq, a.dtype(), double(number), number};
    kernels_for(a.device()).compare(spec, a.view(), View{}, y.view());
    return y;
}
Tensor binary_of(BinaryOp op, const Tensor& a, const Tensor& b, Dtype dtype) {
    Tensor y = Tensor::empty(a.shape(), dtype, a.device());
    kernels_for(a.device()).binary(op, a.view(), expanded(b, a.shape()).view(), y.view(), {});
    return y;
}

// --- products ---

struct Prod {
    static constexpr const char* kName = "prod";
    static constexpr const char* kDoc = "product over a dimension";
    static constexpr CastClass kCast = CastClass::fp32;
    int axis;

    Tensor forward(Context& ctx, const Tensors& in) {
        const Tensor x = dense(in[0]);
        const Span3 span = span_of(x.shape(), axis);
        Shape shape = x.shape();
        shape[axis] = 1;
        const bool whole = !is_floating(x.dtype());
        Tensor product = Tensor::empty(shape, whole ? Dtype::i64 : Dtype::f64, x.device());
        Kernels& kernels = kernels_for(x.device());
        if (whole) {
            kernels.prod(span, x.view(), product.view(), View{});
            return product;
        }
        Tensor zeros = Tensor::empty(shape, Dtype::i64, x.device());
        kernels.prod(span, x.view(), product.view(), zeros.view());
        ctx.save(in[0]), ctx.save(product), ctx.save(zeros);
        return binary_of(BinaryOp::Mul, product, equal(zeros, 0), x.dtype());
    }
    // The product of all others: of one that is 0 what the rest gives, of the rest nothing then.
    Tensors backward(Context& ctx, const Tensor& g) {
        const Tensor x = ctx.saved(0), product = ctx.saved(1), zeros = ctx.saved(2);
        const Tensor scaled = binary_of(BinaryOp::Mul, product, g, Dtype::f64);
        const Tensor without_zeros = binary_of(BinaryOp::Mul, scaled, equal(zeros, 0), Dtype::f64);
        const Tensor with_one = binary_of(BinaryOp::Mul, scaled, equal(zeros, 1), Dtype::f64);
        const Tensor others = binary_of(BinaryOp::Div, expanded(without_zeros, x.shape()), x, Dtype::f64);
        Tensor gx = Tensor::empty_like(x);
        kernels_for(x.device())
            .where(equal(x, 0).view(), expanded(with_one, x.shape()).view(), others.view(), gx.view());
        return {gx};
    }
};

// --- extremes ---

// The largest or smallest over the axes, all dimensions kept; NaN where there is one.
Tensor extreme_over(const Axes& axes, const Tensor& x, bool smallest) {
    Tensor best = dense(x);
    Kernels& kernels = kernels_for(x.device());
    axes.each_run([&](const Span3& span, const Shape& smaller) {
        Tensor index = Tensor::empty(smaller, Dtype::i64, x.device()), values = Tensor::empty_like(index, x.dtype());
        if (index.numel() > 0) {
            kernels.extreme(span, best.view(), index.view(), smallest);
            kernels.gather(span, 1, best.view(), index.view(), values.view());
        }
        best = values;
    });
    return best;
}

// The gradient of each extreme in equal parts for those that are it. Of NaN none is: 0 / 0 for all.
Tensor shared_out(const Axes& axes, const Tensor& g, const Tensor& x, const Tensor& best) {
    const Dtype dtype = sum_dtype(x.dtype());
    const Tensor winners = equal(x, best), count = sum_over(axes, winners, 1, Dtype::i64);
    const Tensor part = binary_of(BinaryOp::Div, dense(g).window(0, count.shape()), count, dtype);
    return binary_of(BinaryOp::Mul, winners, part, dtype);
}

template <bool kSmallest>
struct Extreme {
    static constexpr const char* kName = kSmallest ? "amin" : "amax";
    static constexpr const char* kDoc = kSmallest ? "smallest value over dimensions" : "largest value over dimensions";
    static constexpr CastClass kCast = CastClass::keep;
    Axes axes;
    bool keepdim;

    Tensor forward(Context& ctx, const Tensors& in) {
        const Tensor best = extreme_over(axes, in[0], kSmallest);
        ctx.save(in[0]), ctx.save(best);
        return best.window(0, axes.kept(keepdim));
    }
    Tensors backward(Context& ctx, const Tensor& g) {
        const Tensor x = ctx.saved(0);
        const Tensor gx = shared_out(axes, g, x, ctx.saved(1));
        return {gx.dtype() == x.dtype() ? gx : converted_to(gx, x.dtype())};
    }
};

template <bool kSmallest>
Tensor extreme(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
    const char* const op = Extreme<kSmallest>::kName;
    const Axes axes(op, x, dims);
    if (axes.count() == 0) fail("{}: nothing to choose from in {}", op, x.str());
    return apply(Extreme<kSmallest>{axes, keepdim}, {x});
}

// --- norms ---

enum class Power { one, two, infinity };

struct Norm {
    static constexpr const char* kName = "norm";
    static constexpr const char* kDoc = "norm over dimensions: of magnitudes the sum, root of squares or largest";
    static constexpr CastClass kCast = CastClass::fp32;
    Axes axes;
    Power power;
    bool keepdim;

    Tensor forward(Context& ctx, const Tensors& in) {
        const Tensor& x = in[0];
        const Dtype dtype = sum_dtype(x.dtype());
        Kernels& kernels = kernels_for(x.device());
        Tensor sizes = Tensor::empty_like(x, dtype), result;
        if (power == Power::two) {
            kernels.binary(BinaryOp::Mul, x.view(), x.view(), sizes.view(), {});
            result = sum_over(axes, sizes, 1, dtype);
            kernels.unary(UnaryOp::Sqrt, result.view(), result.view(), {});
        } else {
            kernels.unary(UnaryOp::Abs, x.view(), sizes.view(), {});
            result = power == Power::one ? sum_over(axes, sizes, 1, dtype) : extreme_over(axes, sizes, false);
        }
        ctx.save(x), ctx.save(result);
        return finished(result, axes.kept(keepdim), x.dtype());
    }
    Tensors backward(Context& ctx, const Tensor& g) {
        const Tensor x = ctx.saved(0), result = ctx.saved(1);
        Kernels& kernels = kernels_for(x.device());
        Tensor gx = Tensor::empty_like(x);
        if (power == Power::two) {  // x / norm; at 0, where there is no direction, nothing comes back
            Tensor slope = Tensor::empty_like(result);
            const Tensor incoming = dense(g).window(0, result.shape()),
                         zero = filled({}, result.dtype(), x.device(), 0);
            kernels.binary(BinaryOp::Div, incoming.view(), result.view(), slope.view(), {});
            kernels.where(equal(result, 0).view(), expanded(zero, result.shape()).view(), slope.view(), slope.view());
            kernels.binary(BinaryOp::Mul, x.view(), expanded(slope, x.shape()).view(), gx.view(), {});
            return {gx};
        }
        const Tensor sizes = Tensor::empty_like(x, result.dtype());
        if (power == Power::infinity) kernels.unary(UnaryOp::Abs, x.view(), sizes.view(), {});
        const Tensor incoming = power == Power::one ? axes.spread(g) : shared_out(axes, g, sizes, result);
        kernels.unary_backward(UnaryOp::Abs, incoming.view(), x.view(), gx.view(), {});
        return {gx};
    }
};

}  // namespace

Tensor prod(const Tensor& x, int dim, bool keepdim) {
    const int axis = x.shape().axis(dim);
    const Tensor y = apply(Prod{axis}, {x});
    return keepdim ? y : squeeze(y, axis);
}
Tensor prod(const Tensor& x) {
    return prod(reshape(x, {x.numel()}), 0);
}

Tensor amax(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
    return extreme<false>(x, dims, keepdim);
}
Tensor amin(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
    return extreme<true>(x, dims, keepdim);
}

Tensor norm(const Tensor& x, double p, const std::vector<int>& dims, bool keepdim) {
    check_floating_reduction("norm", x);
    if (p != 1 && p != 2 && p != std::numeric_limits<double>::infinity())
        fail<UsageError>("norm: p may be 1, 2 or infinity, not {}", p);
    const Axes axes("norm", x, dims);
    if (std::isinf(p) && axes.count() == 0) fail("norm: nothing to choose from in {}", x.str());
    return apply(Norm{axes, p == 1 ? Power::one : p == 2 ? Power::two : Power::infinity, keepdim}, {x});
}

}  // namespace invar::ops
