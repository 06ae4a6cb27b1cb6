// Pointwise operations, with NumPy's broadcasting, and the operators that people write.
#pragma once

#include "invar/core/tensor.h"
#include "invar/kernels/pointwise.h"
#include "invar/ops/number.h"

namespace invar::ops {

// A function for each op of kernels/pointwise.h, from its list there: Tensor exp(const Tensor& x), Tensor clamp(const
// Tensor& x, double low, double high), Tensor add(const Tensor& a, const Tensor& b), ... `invar ops` names them all.
// Two whole numbers stay whole where that makes sense; the ops of one tensor refuse them. Those called _error are the
// elementwise parts of the losses; losses.h reduces them.
#define INVAR_CONSTANT(name, ...) , double name __VA_OPT__(, double __VA_ARGS__)  // at most two, as Scalars has
#define INVAR_CONSTANTS(...) __VA_OPT__(INVAR_CONSTANT(__VA_ARGS__))
#define INVAR_UNARY_FUNCTION(Op, name, ...) Tensor name(const Tensor& x INVAR_CONSTANTS(__VA_ARGS__))
#define INVAR_BINARY_FUNCTION(Op, name, ...) Tensor name(const Tensor& a, const Tensor& b INVAR_CONSTANTS(__VA_ARGS__))
#define INVAR_DECLARE_UNARY(...) INVAR_UNARY_FUNCTION(__VA_ARGS__);
#define INVAR_DECLARE_BINARY(...) INVAR_BINARY_FUNCTION(__VA_ARGS__);
INVAR_UNARY_OPS(INVAR_DECLARE_UNARY)
INVAR_BINARY_OPS(INVAR_DECLARE_BINARY)
#undef INVAR_DECLARE_UNARY
#undef INVAR_DECLARE_BINARY

inline Tensor gelu(const Tensor& x, bool tanh_form) {
    return tanh_form ? gelu_tanh(x) : gelu(x);
}
// With the constants that PyTorch starts from.
inline Tensor leaky_relu(const Tensor& x) {
    return leaky_relu(x, 0.01);
}
inline Tensor elu(const Tensor& x) {
    return elu(x, 1);
}
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
// A constant does not widen: where(mask, x, 0.5) has x's dtype, unless x is of whole numbers, which become f32.
Tensor where(const Tensor& condition, const Tensor& a, Number b);
Tensor where(const Tensor& condition, Number a, const Tensor& b);

}  // namespace invar::ops

namespace invar {

inline Tensor operator-(const Tensor& x) {
    return ops::neg(x);
}
inline Tensor operator+(const Tensor& a, const Tensor& b) {
    return ops::add(a, b);
}
inline Tensor operator-(const Tensor& a, const Tensor& b) {
    return ops::sub(a, b);
}
inline Tensor operator*(const Tensor& a, const Tensor& b) {
    return ops::mul(a, b);
}
inline Tensor operator/(const Tensor& a, const Tensor& b) {
    return ops::div(a, b);
}
inline Tensor operator+(const Tensor& x, double c) {
    return ops::affine(x, 1, c);
}
inline Tensor operator-(const Tensor& x, double c) {
    return ops::affine(x, 1, -c);
}
inline Tensor operator*(const Tensor& x, double c) {
    return ops::affine(x, c, 0);
}
inline Tensor operator/(const Tensor& x, double c) {
    return ops::div(x, c);
}
inline Tensor operator+(double c, const Tensor& x) {
    return ops::affine(x, 1, c);
}
inline Tensor operator-(double c, const Tensor& x) {
    return ops::affine(x, -1, c);
}
inline Tensor operator*(double c, const Tensor& x) {
    return ops::affine(x, c, 0);
}

}  // namespace invar
