// Brief: the float that pointwise operations on 16-bit tensors compute in. Its functions are good to four digits more
// than such a tensor keeps, and cost a few instructions each: with the exact ones, arithmetic and not memory would be
// the limit.
#pragma once

#include <cuda_runtime.h>

#include <type_traits>

namespace invar::cuda {

// Relative error 2^-22, beside that of the argument's own rounding; what is below FP32's normal range becomes 0.
__device__ inline float brief_exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ inline float brief_exp(float x) {
    return brief_exp2(x * 1.44269504f);
}
__device__ inline float brief_inverse(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// Relative error 1.5e-5 however far out: t 2^(p(t) - z^2 log2 e) with t = 1 / (1 + z / 2), p fitted at Chebyshev's
// nodes.
__device__ inline float brief_erfc(float x) {
    const float z = fabsf(x), t = brief_inverse(1.0f + 0.5f * z);
    float p = 0.342866881f;
    p = p * t - 1.06046759f;
    p = p * t + 0.725261592f;
    p = p * t + 0.346654756f;
    p = p * t + 1.47330996f;
    p = p * t - 1.82760533f;
    const float tail = t * brief_exp2(p - z * z * 1.44269504f);
    return x < 0.0f ? 2.0f - tail : tail;
}

// In a namespace of its own: functors find its functions by their argument, and nobody else finds them at all.
namespace brief {

struct Brief {
    float v;
    Brief() = default;
    template <class T, class = std::enable_if_t<std::is_arithmetic_v<T>>>
    __device__ explicit Brief(T value) : v(float(value)) {}
    __device__ explicit operator float() const { return v; }
};

// clang-format off
#define INVAR_BRIEF_OPERATOR(op) __device__ inline Brief operator op(Brief a, Brief b) { return Brief(a.v op b.v); }
INVAR_BRIEF_OPERATOR(+)
INVAR_BRIEF_OPERATOR(-)
INVAR_BRIEF_OPERATOR(*)
INVAR_BRIEF_OPERATOR(/)
#undef INVAR_BRIEF_OPERATOR
#define INVAR_BRIEF_ORDER(op) __device__ inline bool operator op(Brief a, Brief b) { return a.v op b.v; }
INVAR_BRIEF_ORDER(<)
INVAR_BRIEF_ORDER(>)
INVAR_BRIEF_ORDER(<=)
INVAR_BRIEF_ORDER(>=)
INVAR_BRIEF_ORDER(==)
INVAR_BRIEF_ORDER(!=)
#undef INVAR_BRIEF_ORDER
// clang-format on
__device__ inline Brief operator-(Brief a) {
    return Brief(-a.v);
}

// What the functors of kernels/pointwise.h call.
__device__ inline Brief exp(Brief x) {
    return Brief(brief_exp(x.v));
}
__device__ inline Brief inverse(Brief x) {
    return Brief(brief_inverse(x.v));
}
__device__ inline Brief erfc(Brief x) {
    return Brief(brief_erfc(x.v));
}
__device__ inline Brief cos(Brief x) {
    return Brief(cosf(x.v));
}
__device__ inline Brief erf(Brief x) {
    return Brief(erff(x.v));
}
__device__ inline Brief expm1(Brief x) {
    return Brief(expm1f(x.v));
}
__device__ inline Brief fabs(Brief x) {
    return Brief(fabsf(x.v));
}
__device__ inline Brief log(Brief x) {
    return Brief(logf(x.v));
}
__device__ inline Brief log1p(Brief x) {
    return Brief(log1pf(x.v));
}
__device__ inline Brief pow(Brief x, Brief y) {
    return Brief(powf(x.v, y.v));
}
__device__ inline Brief sin(Brief x) {
    return Brief(sinf(x.v));
}
__device__ inline Brief sqrt(Brief x) {
    return Brief(sqrtf(x.v));
}
__device__ inline Brief tanh(Brief x) {
    return Brief(tanhf(x.v));
}

}  // namespace brief
using brief::Brief;

}  // namespace invar::cuda
