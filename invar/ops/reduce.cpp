#include "invar/ops/reduce.h"

#include <algorithm>

#include "invar/core/error.h"
#include "invar/kernels/pointwise.h"
#include "invar/ops/apply.h"
#include "invar/ops/shape_tools.h"

namespace invar::ops {

namespace {

// Which dimensions a reduction takes away.
struct Axes {
    Shape from;
    std::array<bool, kMaxRank> taken{};

    Axes(const char* op, const Tensor& x, const std::vector<int>& dims) : from(x.shape()) {
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

void check_floating(const char* op, const Tensor& x) {
    if (!is_floating(x.dtype())) fail("{}: needs a floating tensor, not {}; cast it first", op, x.str());
}

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
    if (divisor == 1) return total.dtype() == dtype ? total : converted_to(total, dtype);
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
        const Dtype from = in[0].dtype(), to = is_floating(from) ? from : Dtype::i64;
        return finished(sum_over(axes, in[0], divisor(), is_floating(from) ? sum_dtype(from) : to), axes.kept(keepdim),
                        to);
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
    check_floating("mean", x);
    return apply(Sum<true>{Axes("mean", x, dims), keepdim}, {x});
}

Tensor var(const Tensor& x, const std::vector<int>& dims, bool unbiased, bool keepdim) {
    check_floating("var", x);
    return apply(Var{Axes("var", x, dims), unbiased, keepdim}, {x});
}

Tensor any(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
    return apply(Truth<false>{Axes("any", x, dims), keepdim}, {x});
}

Tensor all(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
    return apply(Truth<true>{Axes("all", x, dims), keepdim}, {x});
}

}  // namespace invar::ops
