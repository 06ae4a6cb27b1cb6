// Pointwise operations, with NumPy's broadcasting, and the operators that people write.
#pragma once

#include "invar/core/tensor.h"

namespace invar::ops {

Tensor neg(const Tensor& x);
Tensor affine(const Tensor& x, double factor, double shift);  // factor * x + shift
Tensor div(const Tensor& x, double divisor);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);
Tensor pow(const Tensor& x, double exponent);
Tensor tanh(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor relu(const Tensor& x);
Tensor gelu(const Tensor& x, bool tanh_form = false);
Tensor silu(const Tensor& x);
Tensor softplus(const Tensor& x);
Tensor abs(const Tensor& x);
Tensor clamp(const Tensor& x, double low, double high);  // `high` everywhere where the bounds cross

// Two whole numbers stay whole, in two's complement as in PyTorch; the ops of one tensor refuse them.
Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);  // f32 of two whole numbers
Tensor pow(const Tensor& a, const Tensor& b);
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, const Tensor& b);
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);

// The elementwise parts of the losses; losses.h reduces them.
Tensor squared_error(const Tensor& prediction, const Tensor& target);
Tensor absolute_error(const Tensor& prediction, const Tensor& target);
Tensor smooth_l1_error(const Tensor& prediction, const Tensor& target, double beta);
Tensor bce_with_logits_error(const Tensor& logits, const Tensor& target);
Tensor bce_error(const Tensor& probabilities, const Tensor& target);

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
