// What the pointwise operations share: what an op may save for backward, the functions that a device may bring its own
// form of, and those that several ops are made of. Functors compute in T = float (double for f64); functions are called
// without std::, so that a device may bring a T of its own with cheaper ones (kernels/cpu/simd/inline_float.h,
// kernels/cuda/brief.cuh).
#pragma once

#include <cmath>
#include <type_traits>

#include "invar/core/cast_class.h"
#include "invar/core/formats.h"
#include "invar/kernels/specs.h"

namespace invar {

enum class Saves : std::uint8_t { nothing, input, output };

// A line a function lets each op be seen whole.
// clang-format off
namespace pointwise {

using std::cos, std::erf, std::erfc, std::exp, std::expm1, std::fabs, std::log, std::log1p, std::pow, std::sin, std::sqrt, std::tanh;

template <class T> INVAR_HD T inverse(T x) { return T(1) / x; }
// Of two values that are both made: without a branch, loops become vector code.
template <class T> INVAR_HD T select(bool first, T a, T b) { return first ? a : b; }

// x to a constant power. An exponent that FP32 has no digits for, such as 2.1, loses in the result what the logarithm
// of x multiplies its error to; what was lost is put back by the first term of its series.
template <class T>
INVAR_HD T power(T x, double exponent) {
    const T y = pow(x, T(exponent));
    if constexpr (sizeof(T) == sizeof(float)) {
        const T lost = T(exponent - double(float(exponent)));
        if (lost != T(0) && y != T(0) && y - y == T(0)) return y + y * (lost * log(fabs(x)));
    }
    return y;
}

template <class T>
INVAR_HD T logistic(T x) {
    return inverse(T(1) + exp(-x));
}

// The same of x and of -x, which is what is left of 1. Taken from 1, it would have lost its digits where x is large.
template <class T>
struct Logistic {
    T of, rest;
    INVAR_HD explicit Logistic(T x) {
        const T small = exp(-fabs(x)), large = inverse(T(1) + small);
        of = select(x < T(0), small * large, large);
        rest = select(x < T(0), large, small * large);
    }
};

}  // namespace pointwise
// clang-format on

}  // namespace invar
