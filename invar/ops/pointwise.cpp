#include "invar/ops/pointwise.h"

#include "invar/core/error.h"
#include "invar/ops/apply.h"
#include "invar/ops/shape_tools.h"

namespace invar::ops {

namespace {

template <class F, UnaryOp kOp>
struct Unary {
    static constexpr const char* kName = F::kName;
    static constexpr const char* kDoc = F::kDoc;
    static constexpr CastClass kCast = F::kCast;
    Scalars scalars;

    Tensor forward(Context& ctx, const Tensors& in) {
        const Tensor& x = in[0];
        check(is_floating(x.dtype()), "{}: needs a floating tensor, not {}", kName, x.str());
        Tensor y = Tensor::empty_like(x);
        kernels_for(x.device()).unary(kOp, x.view(), y.view(), scalars);
        if constexpr (F::kSaves == Saves::input) ctx.save(x);
        if constexpr (F::kSaves == Saves::output) ctx.save(y);
        return y;
    }
    void recompute(Context& ctx, const Tensor& y) requires(F::kSaves == Saves::input) {
        kernels_for(y.device()).unary(kOp, ctx.saved(0).view(), y.view(), scalars);
    }
    Tensors backward(Context& ctx, const Tensor& g) {
        View saved;
        Tensor kept;
        if constexpr (F::kSaves != Saves::nothing) saved = (kept = ctx.saved(0)).view();
        Tensor gx = Tensor::empty_like(g);
        kernels_for(g.device()).unary_backward(kOp, g.view(), saved, gx.view(), scalars);
        return {gx};
    }
};

template <class F, BinaryOp kOp>
struct Binary {
    static constexpr const char* kName = F::kName;
    static constexpr const char* kDoc = F::kDoc;
    static constexpr CastClass kCast = F::kCast;
    Scalars scalars;
    Shape a_shape, b_shape;
    Dtype a_dtype, b_dtype;

    Tensor forward(Context& ctx, const Tensors& in) {
        const Tensor &a = in[0], &b = in[1];
        a_shape = a.shape(), b_shape = b.shape();
        a_dtype = a.dtype(), b_dtype = b.dtype();
        Dtype dtype = promote(a_dtype, b_dtype);
        constexpr bool kFraction = requires {
            F::kFractionOfWhole;
        }
        , kWhole = requires {
            F::whole(1, 1);
        };
        if (kFraction && !is_floating(dtype)) dtype = Dtype::f32;
        check(is_floating(dtype) || kWhole, "{}: needs a floating operand, not {} and {}", kName, a.str(), b.str());
        Tensor y = Tensor::empty(broadcast(a_shape, b_shape, kName), dtype, a.device());
        kernels_for(a.device())
            .binary(kOp, expanded(a, y.shape()).view(), expanded(b, y.shape()).view(), y.view(), scalars);
        if constexpr (F::kSavesInputs) ctx.save(a), ctx.save(b);
        return y;
    }
    void recompute(Context& ctx, const Tensor& y) requires(F::kSavesInputs) {
        const Tensor a = expanded(ctx.saved(0), y.shape()), b = expanded(ctx.saved(1), y.shape());
        kernels_for(y.device()).binary(kOp, a.view(), b.view(), y.view(), scalars);
    }
    Tensors backward(Context& ctx, const Tensor& g) {
        if constexpr (requires { F::kPassesGradient; })  // without a pass over memory
            return {ctx.needs(0) ? reduced_to(g, a_shape, a_dtype) : Tensor{},
                    ctx.needs(1) ? reduced_to(g, b_shape, b_dtype) : Tensor{}};
        Tensor a, b, ga, gb;
        if constexpr (F::kSavesInputs) {
            a = expanded(ctx.saved(0), g.shape());
            b = expanded(ctx.saved(1), g.shape());
        }
        // What is summed afterwards is kept in FP32, so that it is rounded once.
        const auto gradient = [&](const Shape& shape) {
            return Tensor::empty_like(g, shape == g.shape() ? g.dtype() : sum_dtype(g.dtype()));
        };
        if (ctx.needs(0)) ga = gradient(a_shape);
        if (ctx.needs(1)) gb = gradient(b_shape);
        kernels_for(g.device())
            .binary_backward(kOp, g.view(), view_of(a), view_of(b), view_of(ga), view_of(gb), scalars);
        return {ga ? reduced_to(ga, a_shape, a_dtype) : ga, gb ? reduced_to(gb, b_shape, b_dtype) : gb};
    }
};

struct Where {
    static constexpr const char* kName = "where";
    static constexpr const char* kDoc = "a where a condition holds, b elsewhere";
    static constexpr CastClass kCast = CastClass::widest;
    Shape a_shape, b_shape;
    Dtype a_dtype, b_dtype;

    Tensor forward(Context& ctx, const Tensors& in) {
        const Tensor &condition = in[0], &a = in[1], &b = in[2];
        check(condition.dtype() == Dtype::boolean, "where: the condition must be bool, not {}", condition.str());
        a_shape = a.shape(), b_shape = b.shape();
        a_dtype = a.dtype(), b_dtype = b.dtype();
        const Shape shape = broadcast(condition.shape(), broadcast(a_shape, b_shape, kName), kName);
        Tensor y = Tensor::empty(shape, promote(a_dtype, b_dtype), a.device());
        select(condition, a, b, y);
        ctx.save(condition);
        return y;
    }
    Tensors backward(Context& ctx, const Tensor& g) {
        const Tensor condition = ctx.saved(0);
        Tensor zero = Tensor::empty({}, g.dtype(), g.device());
        kernels_for(g.device()).fill(zero.view(), 0);
        Tensors grads(3);
        if (ctx.needs(1)) {
            Tensor ga = Tensor::empty_like(g);
            select(condition, g, zero, ga);
            grads[1] = reduced_to(ga, a_shape, a_dtype);
        }
        if (ctx.needs(2)) {
            Tensor gb = Tensor::empty_like(g);
            select(condition, zero, g, gb);
            grads[2] = reduced_to(gb, b_shape, b_dtype);
        }
        return grads;
    }
    static void select(const Tensor& condition, const Tensor& a, const Tensor& b, const Tensor& y) {
        const Shape& shape = y.shape();
        kernels_for(y.device())
            .where(expanded(condition, shape).view(), expanded(a, shape).view(), expanded(b, shape).view(), y.view());
    }
};

template <class F, UnaryOp kOp>
Tensor unary(const Tensor& x, Scalars scalars) {
    if constexpr (requires { F::kHasBounds; })
        check<UsageError>(scalars.a == scalars.a && scalars.b == scalars.b, "{}: bounds {} and {} must be numbers",
                          F::kName, scalars.a, scalars.b);
    return apply(Unary<F, kOp>{scalars}, {x});
}

template <class F, BinaryOp kOp>
Tensor binary(const Tensor& a, const Tensor& b, Scalars scalars) {
    return apply(Binary<F, kOp>{scalars, {}, {}, Dtype::f32, Dtype::f32}, {a, b});
}

}  // namespace

#define INVAR_DEFINE_UNARY(Op, name, ...)                                  \
    INVAR_UNARY_FUNCTION(Op, name, __VA_ARGS__) {                          \
        return unary<pointwise::Op, UnaryOp::Op>(x, Scalars{__VA_ARGS__}); \
    }
#define INVAR_DEFINE_BINARY(Op, name, ...)                                      \
    INVAR_BINARY_FUNCTION(Op, name, __VA_ARGS__) {                              \
        return binary<pointwise::Op, BinaryOp::Op>(a, b, Scalars{__VA_ARGS__}); \
    }
INVAR_UNARY_OPS(INVAR_DEFINE_UNARY)
INVAR_BINARY_OPS(INVAR_DEFINE_BINARY)

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
    return apply(Where{{}, {}, Dtype::f32, Dtype::f32}, {condition, a, b});
}
Tensor where(const Tensor& condition, const Tensor& a, Number b) {
    return where(condition, a, constant(Where::kName, b, promote(a.dtype(), b), a.device()));
}
Tensor where(const Tensor& condition, Number a, const Tensor& b) {
    return where(condition, constant(Where::kName, a, promote(b.dtype(), a), b.device()), b);
}

}  // namespace invar::ops
