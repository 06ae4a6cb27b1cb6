// Exponentials along a row, as softmax, losses and attention need them.
#pragma once

#include <bit>
#include <cmath>

#include "invar/kernels/cpu/simd/loops.h"

namespace invar::INVAR_ISA {

inline double exponential(double x) {
    return std::exp(x);
}

// e^x within 2 units in the last place, without branches or calls, so that loops over it become vector code: the
// library's exp would be called once an element. x = n ln2 + r; a polynomial gives e^r, exponent bits give 2^n.
inline float exponential(float x) {
    constexpr float kRound = 12582912.0f;  // adding 1.5 * 2^23 leaves the nearest integer in the low bits
    x = x < -105.0f ? -105.0f : x;
    x = x > 89.0f ? 89.0f : x;
    const float shifted = x * 1.44269504f + kRound;
    const float n = shifted - kRound;
    const float r = (x - n * 0.693145752f) - n * 1.42860677e-6f;
    float p = 1.98412698e-4f;
    p = p * r + 1.38888889e-3f;
    p = p * r + 8.33333333e-3f;
    p = p * r + 4.16666667e-2f;
    p = p * r + 1.66666667e-1f;
    p = p * r + 0.5f;
    p = (p * r) * r + r + 1.0f;
    // 2^n as two factors, so that results below the smallest normal number are still right.
    const std::int32_t whole = std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(kRound);
    const std::int32_t half = whole >> 1;
    const float low = std::bit_cast<float>(std::uint32_t(half + 127) << 23);
    const float high = std::bit_cast<float>(std::uint32_t(whole - half + 127) << 23);
    return p * low * high;
}

// out[i] = e^(x[i] - shift); returns their sum.
template <class C>
double exponentials(const C* x, C shift, C* out, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) out[i] = exponential(x[i] - shift);
    return lane_sum<C>(n, [out](std::int64_t i) { return out[i]; });
}

}  // namespace invar::INVAR_ISA
