#include "invar/ops/compare.h"

#include <optional>

#include "invar/core/convert.h"
#include "invar/core/error.h"
#include "invar/ops/apply.h"
#include "invar/ops/shape_tools.h"

namespace invar {

namespace ops {

namespace {

struct Words {
    const char *name, *doc;
};
// In the order of CompareOp.
constexpr Words kWords[] = {
    {"eq", "where a is equal to b"},
    {"ne", "where a is not equal to b"},
    {"lt", "where a is less than b"},
    {"le", "where a is at most b"},
    {"gt", "where a is greater than b"},
    {"ge", "where a is at least b"},
    {"logical_and", "where neither a nor b is zero"},
    {"logical_or", "where a or b is not zero"},
    {"logical_xor", "where one of a and b is zero"},
};

double rounded_to(Dtype dtype, double value) {
    return dispatch(dtype, [&](auto tag) { return double(converted<typename decltype(tag)::type>(value)); });
}

// A whole number that a small format has no place for is first rounded to it, as both are in PyTorch. To f32 and f64
// the kernel rounds.
Tensor promoted(const Tensor& x, Dtype dtype) {
    const bool rounds = is_floating(dtype) && size_of(dtype) <= 2 && !is_floating(x.dtype());
    return rounds ? converted_to(x, dtype) : x;
}

template <CompareOp kOp>
struct Compare {
    static constexpr const char* kName = kWords[int(kOp)].name;
    static constexpr const char* kDoc = kWords[int(kOp)].doc;
    static constexpr CastClass kCast = CastClass::keep;
    static constexpr bool kNoGradient = true;
    std::optional<Number> second = {};  // where it is no tensor

    Tensor forward(const Tensors& in) {
        const Tensor& a = in[0];
        if (second) return compare({kOp, promote(a.dtype(), *second)}, a);
        const Tensor& b = in[1];
        const Shape shape = broadcast(a.shape(), b.shape(), kName);
        const Dtype dtype = promote(a.dtype(), b.dtype());
        // True and false are not rounded to.
        const Tensor left = kOp < CompareOp::logical_and ? promoted(a, dtype) : a;
        const Tensor right = kOp < CompareOp::logical_and ? promoted(b, dtype) : b;
        Tensor y = Tensor::empty(shape, Dtype::boolean, a.device());
        kernels_for(a.device())
            .compare({kOp, dtype}, expanded(left, shape).view(), expanded(right, shape).view(), y.view());
        return y;
    }
    Tensor compare(CompareSpec spec, const Tensor& a) const {
        check_fits(kName, *second, spec.in);
        spec.real = is_floating(spec.in) ? rounded_to(spec.in, second->real) : second->real;
        spec.whole = second->whole;
        Tensor y = Tensor::empty(a.shape(), Dtype::boolean, a.device());
        kernels_for(a.device()).compare(spec, promoted(a, spec.in).view(), View{}, y.view());
        return y;
    }
};

struct LogicalNot {
    static constexpr const char* kName = "logical_not";
    static constexpr const char* kDoc = "where x is zero";
    static constexpr CastClass kCast = CastClass::keep;
    static constexpr bool kNoGradient = true;

    Tensor forward(const Tensors& in) {
        Tensor y = Tensor::empty(in[0].shape(), Dtype::boolean, in[0].device());
        kernels_for(y.device()).compare({CompareOp::eq, in[0].dtype()}, in[0].view(), View{}, y.view());
        return y;
    }
};

struct MaskedFill {
    static constexpr const char* kName = "masked_fill";
    static constexpr const char* kDoc = "x with a constant where a mask is true";
    static constexpr CastClass kCast = CastClass::keep;
    Number value;
    Shape from = {};

    static Tensor filled_where(const Tensor& mask, const Tensor& x, const Tensor& value, const Shape& shape) {
        Tensor y = Tensor::empty(shape, x.dtype(), x.device());
        kernels_for(x.device())
            .where(expanded(mask, shape).view(), expanded(value, shape).view(), expanded(x, shape).view(), y.view());
        return y;
    }
    Tensor forward(Context& ctx, const Tensors& in) {
        const Tensor &x = in[0], &mask = in[1];
        check(mask.dtype() == Dtype::boolean, "masked_fill: the mask must be bool, not {}", mask.str());
        from = x.shape();
        ctx.save(mask);
        return filled_where(mask, x, constant(kName, value, x.dtype(), x.device()),
                            broadcast(x.shape(), mask.shape(), kName));
    }
    Tensors backward(Context& ctx, const Tensor& g) {
        const Tensor zero = filled({}, g.dtype(), g.device(), 0);
        return {reduced_to(filled_where(ctx.saved(0), g, zero, g.shape()), from, g.dtype()), Tensor{}};
    }
};

template <CompareOp kOp>
Tensor compare(const Tensor& a, const Tensor& b) {
    return apply(Compare<kOp>{}, {a, b});
}
template <CompareOp kOp>
Tensor compare(const Tensor& a, Number b) {
    return apply(Compare<kOp>{b}, {a});
}

}  // namespace

#define INVAR_COMPARISON(name)                      \
    Tensor name(const Tensor& a, const Tensor& b) { \
        return compare<CompareOp::name>(a, b);      \
    }                                               \
    Tensor name(const Tensor& a, Number b) {        \
        return compare<CompareOp::name>(a, b);      \
    }
INVAR_COMPARISON(eq)
INVAR_COMPARISON(ne)
INVAR_COMPARISON(lt)
INVAR_COMPARISON(le)
INVAR_COMPARISON(gt)
INVAR_COMPARISON(ge)
#undef INVAR_COMPARISON

Tensor logical_and(const Tensor& a, const Tensor& b) {
    return compare<CompareOp::logical_and>(a, b);
}
Tensor logical_or(const Tensor& a, const Tensor& b) {
    return compare<CompareOp::logical_or>(a, b);
}
Tensor logical_xor(const Tensor& a, const Tensor& b) {
    return compare<CompareOp::logical_xor>(a, b);
}
Tensor logical_not(const Tensor& x) {
    return apply(LogicalNot{}, {x});
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, Number value) {
    return apply(MaskedFill{value}, {x, mask});
}

}  // namespace ops

namespace {

void check_boolean(const char* op, std::initializer_list<const Tensor*> operands) {
    for (const Tensor* x : operands)
        check<UsageError>(x->dtype() == Dtype::boolean, "{}: takes boolean tensors, not {}; ops::logical_... take any",
                          op, x->str());
}

}  // namespace

Mask operator&(const Tensor& a, const Tensor& b) {
    check_boolean("&", {&a, &b});
    return Mask(ops::logical_and(a, b));
}
Mask operator|(const Tensor& a, const Tensor& b) {
    check_boolean("|", {&a, &b});
    return Mask(ops::logical_or(a, b));
}
Mask operator^(const Tensor& a, const Tensor& b) {
    check_boolean("^", {&a, &b});
    return Mask(ops::logical_xor(a, b));
}
Mask operator~(const Tensor& x) {
    check_boolean("~", {&x});
    return Mask(ops::logical_not(x));
}

}  // namespace invar
