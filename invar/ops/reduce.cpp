#include "invar/ops/reduce.h"

#include <algorithm>

#include "invar/core/error.h"
#include "invar/kernels/pointwise.h"
#include "invar/ops/apply.h"
#include "invar/ops/axes.h"
#include "invar/ops/shape_tools.h"

namespace invar::ops {

namespace {

template <bool kMean>
struct Sum {
    static constexpr const char* kName = kMean ? "mean" : "sum";
    static constexpr const char* kDoc = kMean ? "mean over dimensions" : "sum over dimensions";
    static constexpr CastClass kCast = CastClass::fp32;
    Axes axes;
    bool keepdim;

    double divisor() const { return kMean ? double(axes.count()) : 1.0; }
    Tensor forward(Context&, const Tensors& in) {
        const Dtype from = in[0].dtype(), to = is_floating(from) ? from : Dtype::i64;
        return finished(sum_over(axes, in[0], divisor(), is_floating(from) ? sum_dtype(from) : to), axes.kept(keepdim),
                        to);
    }
    Tensors backward(Context&, const Tensor& g) {
        const Tensor spread = axes.spread(g);
        Tensor gx = Tensor::empty(axes.from, g.dtype(), g.device());
        Kernels& kernels = kernels_for(g.device());
        if (kMean)
            kernels.unary(UnaryOp::DivScalar, spread.view(), gx.view(), {divisor(), 0});
        else
            kernels.copy(spread.view(), gx.view());
        return {gx};
    }
};

// The variance, or its root, which has no slope where it is 0: as in PyTorch, no gradient comes back from there.
template <bool kRoot>
struct Var {
    static constexpr const char* kName = kRoot ? "std" : "var";
    static constexpr const char* kDoc = kRoot ? "standard deviation over dimensions" : "variance over dimensions";
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
        Tensor result = sum_over(axes, squares, divisor(), squares.dtype());
        ctx.save(x), ctx.save(mean);
        if (kRoot) {
            kernels.unary(UnaryOp::Sqrt, result.view(), result.view(), {});
            ctx.save(result);
        }
        return finished(result, axes.kept(keepdim), x.dtype());
    }
    Tensors backward(Context& ctx, const Tensor& g) {
        const Tensor x = ctx.saved(0), mean = expanded(ctx.saved(1), x.shape());
        const Tensor spread = axes.spread(kRoot ? through_root(g, ctx.saved(2)) : g);
        Kernels& kernels = kernels_for(g.device());
        Tensor deviation = Tensor::empty_like(x, sum_dtype(x.dtype())), gx = Tensor::empty_like(x);
        kernels.binary(BinaryOp::Sub, x.view(), mean.view(), deviation.view(), {});
        kernels.unary(UnaryOp::Affine, deviation.view(), deviation.view(), {2 / divisor(), 0});
        kernels.binary(BinaryOp::Mul, deviation.view(), spread.view(), gx.view(), {});
        return {gx};
    }
    // The gradient of what the root was taken of.
    Tensor through_root(const Tensor& g, const Tensor& root) const {
        Kernels& kernels = kernels_for(g.device());
        const Tensor incoming = dense(g).window(0, root.shape()), zero = filled({}, root.dtype(), g.device(), 0);
        Tensor slope = Tensor::empty_like(root), flat = Tensor::empty_like(root, Dtype::boolean);
        kernels.compare({CompareOp::eq, root.dtype()}, root.view(), View{}, flat.view());
        kernels.unary_backward(UnaryOp::Sqrt, incoming.view(), root.view(), slope.view(), {});
        kernels.where(flat.view(), expanded(zero, root.shape()).view(), slope.view(), slope.view());
        return slope;
    }
};

// Counted are those that decide: the true ones for any, the others for all.
template <bool kAll>
struct Truth {
    static constexpr const char* kName = kAll ? "all" : "any";
    static constexpr const char* kDoc = kAll ? "whether all of x are true" : "whether any of x is true";
    static constexpr CastClass kCast = CastClass::keep;
    static constexpr bool kNoGradient = true;
    static constexpr CompareOp kDecides = kAll ? CompareOp::eq : CompareOp::ne;
    Axes axes;
    bool keepdim;

    Tensor forward(const Tensors& in) {
        const Tensor& x = in[0];
        Kernels& kernels = kernels_for(x.device());
        Tensor decisive = Tensor::empty_like(x, Dtype::boolean);
        kernels.compare({kDecides, x.dtype()}, x.view(), View{}, decisive.view());
        const Tensor count = sum_over(axes, decisive, 1, Dtype::i64);
        Tensor y = Tensor::empty_like(count, x.dtype() == Dtype::u8 ? Dtype::u8 : Dtype::boolean);
        kernels.compare({kDecides, Dtype::i64}, count.view(), View{}, y.view());
        return y.window(0, axes.kept(keepdim));
    }
};

}  // namespace

Tensor sum(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
    return apply(Sum<false>{Axes("sum", x, dims), keepdim}, {x});
}

Tensor mean(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
    check_floating_reduction("mean", x);
    return apply(Sum<true>{Axes("mean", x, dims), keepdim}, {x});
}

Tensor var(const Tensor& x, const std::vector<int>& dims, bool unbiased, bool keepdim) {
    check_floating_reduction("var", x);
    return apply(Var<false>{Axes("var", x, dims), unbiased, keepdim}, {x});
}

Tensor std(const Tensor& x, const std::vector<int>& dims, bool unbiased, bool keepdim) {
    check_floating_reduction("std", x);
    return apply(Var<true>{Axes("std", x, dims), unbiased, keepdim}, {x});
}

Tensor any(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
    return apply(Truth<false>{Axes("any", x, dims), keepdim}, {x});
}

Tensor all(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
    return apply(Truth<true>{Axes("all", x, dims), keepdim}, {x});
}

}  // namespace invar::ops
