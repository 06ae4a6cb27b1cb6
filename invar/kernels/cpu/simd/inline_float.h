// InlineFloat: the float that the functors of kernels/pointwise.h compute in on a CPU. Its exponential is arithmetic
// without branches or calls, so that loops over it become vector code; the library's would be called once an element.
#pragma once

#include <cmath>
#include <type_traits>

#include "invar/kernels/cpu/simd/exponential.h"

namespace invar::INVAR_ISA {

// In a namespace of its own: functors find its functions by their argument, and nobody else finds them at all.
namespace inline_float {

struct InlineFloat {
    float v;
    InlineFloat() = default;
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
    explicit InlineFloat(T value) : v(float(value)) {}
    explicit operator float() const { return v; }
};

// clang-format off
#define INVAR_OPERATOR(op) inline InlineFloat operator op(InlineFloat a, InlineFloat b) { return InlineFloat(a.v op b.v); }
INVAR_OPERATOR(+)
INVAR_OPERATOR(-)
INVAR_OPERATOR(*)
INVAR_OPERATOR(/)
#undef INVAR_OPERATOR
#define INVAR_ORDER(op) inline bool operator op(InlineFloat a, InlineFloat b) { return a.v op b.v; }
INVAR_ORDER(<)
INVAR_ORDER(>)
INVAR_ORDER(<=)
INVAR_ORDER(>=)
INVAR_ORDER(==)
INVAR_ORDER(!=)
#undef INVAR_ORDER
#define INVAR_FUNCTION(name) inline InlineFloat name(InlineFloat x) { return InlineFloat(std::name(x.v)); }
INVAR_FUNCTION(cos)
INVAR_FUNCTION(erf)
INVAR_FUNCTION(erfc)
INVAR_FUNCTION(expm1)
INVAR_FUNCTION(fabs)
INVAR_FUNCTION(log)
INVAR_FUNCTION(log1p)
INVAR_FUNCTION(sin)
INVAR_FUNCTION(sqrt)
INVAR_FUNCTION(tanh)
#undef INVAR_FUNCTION
// clang-format on
inline InlineFloat operator-(InlineFloat x) {
    return InlineFloat(-x.v);
}
inline InlineFloat select(bool first, InlineFloat a, InlineFloat b) {
    return InlineFloat(first ? a.v : b.v);
}
inline InlineFloat exp(InlineFloat x) {
    return InlineFloat(exponential(x.v));
}
inline InlineFloat pow(InlineFloat x, InlineFloat y) {
    return InlineFloat(std::pow(x.v, y.v));
}

}  // namespace inline_float
using inline_float::InlineFloat;

}  // namespace invar::INVAR_ISA
