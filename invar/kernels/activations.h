// The activations among the pointwise operations; kernels/pointwise.h lists them.
#pragma once

#include "invar/kernels/functions.h"

namespace invar {

// clang-format off
namespace pointwise {

struct Tanh {
    static constexpr const char* kName = "tanh";
    static constexpr const char* kDoc = "hyperbolic tangent of x";
    static constexpr CastClass kCast = CastClass::keep;
    static constexpr Saves kSaves = Saves::output;
    template <class T> static INVAR_HD T forward(T x, Scalars) { return tanh(x); }
    // Not 1 - y * y, whose square is rounded once more.
    template <class T> static INVAR_HD T backward(T g, T y, Scalars) { return g * ((T(1) - y) * (T(1) + y)); }
};

// Its gradient comes from its result, as in PyTorch: right to 2^-25, and so 0 where x is above 17. Tanh's likewise.
struct Sigmoid {
    static constexpr const char* kName = "sigmoid";
    static constexpr const char* kDoc = "1 / (1 + exp(-x))";
    static constexpr CastClass kCast = CastClass::keep;
    static constexpr Saves kSaves = Saves::output;
    template <class T> static INVAR_HD T forward(T x, Scalars) { return logistic(x); }
    template <class T> static INVAR_HD T backward(T g, T y, Scalars) { return g * y * (T(1) - y); }
};

struct Relu {
    static constexpr const char* kName = "relu";
    static constexpr const char* kDoc = "x, or 0 where x is negative";
    static constexpr CastClass kCast = CastClass::keep;
    static constexpr Saves kSaves = Saves::output;
    // Written so that NaN passes through, and a gradient through NaN: a bad value must not be washed away.
    template <class T> static INVAR_HD T forward(T x, Scalars) { return select(x < T(0), T(0), x); }
    template <class T> static INVAR_HD T backward(T g, T y, Scalars) { return select(y <= T(0), T(0), g); }
};

// The exact GELU, x times the normal distribution's cumulative function. By erfc, which keeps its digits far below zero.
struct Gelu {
    static constexpr const char* kName = "gelu";
    static constexpr const char* kDoc = "x times the cumulative normal distribution at x";
    static constexpr CastClass kCast = CastClass::keep;
    static constexpr Saves kSaves = Saves::input;
    template <class T> static INVAR_HD T cumulative(T x) { return T(0.5) * erfc(-x * T(0.70710678118654752440)); }
    template <class T> static INVAR_HD T forward(T x, Scalars) { return x * cumulative(x); }
    template <class T> static INVAR_HD T backward(T g, T x, Scalars) {
        const T density = T(0.39894228040143267794) * exp(T(-0.5) * x * x);
        return g * (cumulative(x) + x * density);
    }
};

// The tanh form that GPT-2 was trained with; (1 + tanh(u)) / 2 is the logistic function of 2u.
struct GeluTanh {
    static constexpr const char* kName = "gelu_tanh";
    static constexpr const char* kDoc = "GELU in the tanh form that GPT-2 was trained with";
    static constexpr CastClass kCast = CastClass::keep;
    static constexpr Saves kSaves = Saves::input;
    template <class T> static INVAR_HD T twice_inner(T x) { return T(1.5957691216057307117) * (x + T(0.044715) * x * x * x); }
    template <class T> static INVAR_HD T inner_slope(T x) { return T(1.5957691216057307117) * (T(1) + T(3 * 0.044715) * x * x); }
    template <class T> static INVAR_HD T forward(T x, Scalars) { return x * logistic(twice_inner(x)); }
    template <class T> static INVAR_HD T backward(T g, T x, Scalars) {
        const Logistic<T> s(twice_inner(x));
        const T bend = x * s.of * s.rest;  // 0 where the curve is straight, and where the slope may have overflowed
        return g * select(bend == T(0), s.of, s.of + bend * inner_slope(x));
    }
};

struct Silu {
    static constexpr const char* kName = "silu";
    static constexpr const char* kDoc = "x * sigmoid(x)";
    static constexpr CastClass kCast = CastClass::keep;
    static constexpr Saves kSaves = Saves::input;
    template <class T> static INVAR_HD T forward(T x, Scalars) { return x * logistic(x); }
    template <class T> static INVAR_HD T backward(T g, T x, Scalars) {
        const Logistic<T> s(x);
        return g * s.of * (T(1) + x * s.rest);
    }
};

struct Softplus {
    static constexpr const char* kName = "softplus";
    static constexpr const char* kDoc = "log(1 + exp(x))";
    static constexpr CastClass kCast = CastClass::fp32;
    static constexpr Saves kSaves = Saves::input;
    template <class T> static INVAR_HD T forward(T x, Scalars) {
        return select(x > T(0), x, T(0)) + log1p(exp(-fabs(x)));
    }
    template <class T> static INVAR_HD T backward(T g, T x, Scalars) { return g * logistic(x); }
};

struct LeakyRelu {
    static constexpr const char* kName = "leaky_relu";
    static constexpr const char* kDoc = "x, or slope * x where x is negative";
    static constexpr CastClass kCast = CastClass::keep;
    static constexpr Saves kSaves = Saves::input;  // of a slope below 0 the result does not tell
    template <class T> static INVAR_HD T forward(T x, Scalars s) { return select(x > T(0), x, T(s.a) * x); }
    template <class T> static INVAR_HD T backward(T g, T x, Scalars s) { return select(x <= T(0), T(s.a) * g, g); }
};

struct Elu {
    static constexpr const char* kName = "elu";
    static constexpr const char* kDoc = "x, or alpha * (exp(x) - 1) where x is negative";
    static constexpr CastClass kCast = CastClass::keep;
    static constexpr Saves kSaves = Saves::input;
    template <class T> static INVAR_HD T forward(T x, Scalars s) { return select(x <= T(0), T(s.a) * expm1(x), x); }
    template <class T> static INVAR_HD T backward(T g, T x, Scalars s) { return select(x <= T(0), g * (T(s.a) * exp(x)), g); }
};

// x within [0, 6]; NaN passes through.
template <class T>
INVAR_HD T relu6(T x) {
    return select(x <= T(0), T(0), select(x >= T(6), T(6), x));
}

struct Hardsigmoid {
    static constexpr const char* kName = "hardsigmoid";
    static constexpr const char* kDoc = "x / 6 + 1/2 within [0, 1]";
    static constexpr CastClass kCast = CastClass::keep;
    static constexpr Saves kSaves = Saves::input;
    template <class T> static INVAR_HD T forward(T x, Scalars) { return relu6(x + T(3)) / T(6); }
    template <class T> static INVAR_HD T backward(T g, T x, Scalars) { return select(x <= T(-3) || x >= T(3), T(0), g / T(6)); }
};

// At -3 and 3 the gradient is that of the straight parts, as in PyTorch today; up to 2.6 it was that of the curve.
struct Hardswish {
    static constexpr const char* kName = "hardswish";
    static constexpr const char* kDoc = "x * hardsigmoid(x)";
    static constexpr CastClass kCast = CastClass::keep;
    static constexpr Saves kSaves = Saves::input;
    template <class T> static INVAR_HD T forward(T x, Scalars) { return x * (relu6(x + T(3)) / T(6)); }
    template <class T> static INVAR_HD T backward(T g, T x, Scalars) {
        return select(x <= T(-3), T(0), select(x >= T(3), g, g * (x / T(3) + T(0.5))));
    }
};

}  // namespace pointwise
// clang-format on

}  // namespace invar
