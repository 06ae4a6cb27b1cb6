// The pointwise operations: each is one struct, here or, for activations, in kernels/activations.h, and its row in one
// list at the end. From the lists come the CPU and CUDA kernels, the functions of ops::, and what `invar ops` and the
// documents say. Functors compute in T = float (double for f64); kernels convert at load and store. What they call, and
// why without std::, stands in kernels/functions.h.
#pragma once

#include "invar/kernels/activations.h"
#include "invar/kernels/functions.h"

namespace invar {

// A line a function lets each op be seen whole.
// clang-format off
namespace pointwise {

// --- unary: forward(x), backward(gradient, saved) ---

struct Neg {
    static constexpr const char* kName = "neg";
    static constexpr const char* kDoc = "-x";
    static constexpr CastClass kCast = CastClass::keep;
    static constexpr Saves kSaves = Saves::nothing;
    template <class T> static INVAR_HD T forward(T x, Scalars) { return -x; }
    template <class T> static INVAR_HD T backward(T g, T, Scalars) { return -g; }
};

// a * x + b: every arithmetic with a constant but division.
struct Affine {
    static constexpr const char* kName = "affine";
    static constexpr const char* kDoc = "factor * x + shift";
    static constexpr CastClass kCast = CastClass::keep;
    static constexpr Saves kSaves = Saves::nothing;
    template <class T> static INVAR_HD T forward(T x, Scalars s) { return T(s.a) * x + T(s.b); }
    template <class T> static INVAR_HD T backward(T g, T, Scalars s) { return T(s.a) * g; }
};

// x / a, in one rounding: x times 1 / a would be rounded twice.
struct DivScalar {
    static constexpr const char* kName = "div_scalar";
    static constexpr const char* kDoc = "x / divisor, a constant";
    static constexpr CastClass kCast = CastClass::keep;
    static constexpr Saves kSaves = Saves::nothing;
    template <class T> static INVAR_HD T forward(T x, Scalars s) { return x / T(s.a); }
    template <class T> static INVAR_HD T backward(T g, T, Scalars s) { return g / T(s.a); }
};

struct Exp {
    static constexpr const char* kName = "exp";
    static constexpr const char* kDoc = "e to the power x";
    static constexpr CastClass kCast = CastClass::fp32;
    static constexpr Saves kSaves = Saves::output;
    template <class T> static INVAR_HD T forward(T x, Scalars) { return exp(x); }
    template <class T> static INVAR_HD T backward(T g, T y, Scalars) { return g * y; }
};

struct Log {
    static constexpr const char* kName = "log";
    static constexpr const char* kDoc = "natural logarithm of x";
    static constexpr CastClass kCast = CastClass::fp32;
    static constexpr Saves kSaves = Saves::input;
    template <class T> static INVAR_HD T forward(T x, Scalars) { return log(x); }
    template <class T> static INVAR_HD T backward(T g, T x, Scalars) { return g / x; }
};

struct Log1p {
    static constexpr const char* kName = "log1p";
    static constexpr const char* kDoc = "logarithm of 1 + x, with all digits where x is small";
    static constexpr CastClass kCast = CastClass::fp32;
    static constexpr Saves kSaves = Saves::input;
    template <class T> static INVAR_HD T forward(T x, Scalars) { return log1p(x); }
    template <class T> static INVAR_HD T backward(T g, T x, Scalars) { return g / (T(1) + x); }
};

// Backward goes by x: 1 + y has lost its digits where x is far below zero.
struct Expm1 {
    static constexpr const char* kName = "expm1";
    static constexpr const char* kDoc = "exp(x) - 1, with all digits where x is small";
    static constexpr CastClass kCast = CastClass::fp32;
    static constexpr Saves kSaves = Saves::input;
    template <class T> static INVAR_HD T forward(T x, Scalars) { return expm1(x); }
    template <class T> static INVAR_HD T backward(T g, T x, Scalars) { return g * exp(x); }
};

struct Sin {
    static constexpr const char* kName = "sin";
    static constexpr const char* kDoc = "sine of x, in radians";
    static constexpr CastClass kCast = CastClass::keep;
    static constexpr Saves kSaves = Saves::input;
    template <class T> static INVAR_HD T forward(T x, Scalars) { return sin(x); }
    template <class T> static INVAR_HD T backward(T g, T x, Scalars) { return g * cos(x); }
};

struct Cos {
    static constexpr const char* kName = "cos";
    static constexpr const char* kDoc = "cosine of x, in radians";
    static constexpr CastClass kCast = CastClass::keep;
    static constexpr Saves kSaves = Saves::input;
    template <class T> static INVAR_HD T forward(T x, Scalars) { return cos(x); }
    template <class T> static INVAR_HD T backward(T g, T x, Scalars) { return -g * sin(x); }
};

struct Erf {
    static constexpr const char* kName = "erf";
    static constexpr const char* kDoc = "error function of x";
    static constexpr CastClass kCast = CastClass::keep;
    static constexpr Saves kSaves = Saves::input;
    template <class T> static INVAR_HD T forward(T x, Scalars) { return erf(x); }
    template <class T> static INVAR_HD T backward(T g, T x, Scalars) { return g * (T(1.12837916709551257390) * exp(-x * x)); }
};

struct Sqrt {
    static constexpr const char* kName = "sqrt";
    static constexpr const char* kDoc = "square root of x";
    static constexpr CastClass kCast = CastClass::keep;
    static constexpr Saves kSaves = Saves::output;
    template <class T> static INVAR_HD T forward(T x, Scalars) { return sqrt(x); }
    template <class T> static INVAR_HD T backward(T g, T y, Scalars) { return g / (T(2) * y); }
};

struct Rsqrt {
    static constexpr const char* kName = "rsqrt";
    static constexpr const char* kDoc = "1 / sqrt(x)";
    static constexpr CastClass kCast = CastClass::fp32;
    static constexpr Saves kSaves = Saves::output;
    template <class T> static INVAR_HD T forward(T x, Scalars) { return T(1) / sqrt(x); }
    template <class T> static INVAR_HD T backward(T g, T y, Scalars) { return T(-0.5) * g * y * y * y; }
};

// x to the constant power a.
struct PowScalar {
    static constexpr const char* kName = "pow_scalar";
    static constexpr const char* kDoc = "x to a constant power";
    static constexpr CastClass kCast = CastClass::fp32;
    static constexpr Saves kSaves = Saves::input;
    template <class T> static INVAR_HD T forward(T x, Scalars s) { return power(x, s.a); }
    template <class T> static INVAR_HD T backward(T g, T x, Scalars s) {
        return s.a == 0 ? T(0) : g * (T(s.a) * power(x, s.a - 1));  // first the slope: g times s.a may overflow
    }
};

struct Abs {
    static constexpr const char* kName = "abs";
    static constexpr const char* kDoc = "magnitude of x";
    static constexpr CastClass kCast = CastClass::keep;
    static constexpr Saves kSaves = Saves::input;
    template <class T> static INVAR_HD T forward(T x, Scalars) { return fabs(x); }
    // At 0 it is 0, at NaN NaN.
    template <class T> static INVAR_HD T backward(T g, T x, Scalars) { return select(x > T(0), g, select(x < T(0), -g, g * x)); }
};

// Bounds x to [a, b], to b alone where the bounds cross, as in PyTorch; NaN passes through.
struct Clamp {
    static constexpr const char* kName = "clamp";
    static constexpr const char* kDoc = "x within bounds";
    static constexpr CastClass kCast = CastClass::keep;
    static constexpr Saves kSaves = Saves::input;
    static constexpr bool kHasBounds = true;  // one that is NaN is refused
    template <class T> static INVAR_HD T forward(T x, Scalars s) {
        const T raised = select(x < T(s.a), T(s.a), x);
        return select(raised > T(s.b), T(s.b), raised);
    }
    template <class T> static INVAR_HD T backward(T g, T x, Scalars s) { return select(x < T(s.a) || x > T(s.b), T(0), g); }
};

// --- binary: forward(a, b), and one gradient for each operand ---
// What else a struct may say: whole(a, b), the result for two whole numbers, in two's complement as in PyTorch (double would
// lose the last digits of large ones); kFractionOfWhole, two of them give f32; kPassesGradient, both gradients are the
// incoming one itself. Without whole() and kFractionOfWhole, two whole numbers are refused.

struct Add {
    static constexpr const char* kName = "add";
    static constexpr const char* kDoc = "a + b";
    static constexpr CastClass kCast = CastClass::widest;
    static constexpr bool kSavesInputs = false;
    static constexpr bool kPassesGradient = true;
    template <class T> static INVAR_HD T forward(T a, T b, Scalars) { return a + b; }
    static INVAR_HD std::int64_t whole(std::int64_t a, std::int64_t b) { return std::int64_t(std::uint64_t(a) + std::uint64_t(b)); }
    template <class T> static INVAR_HD T backward_a(T g, T, T, Scalars) { return g; }
    template <class T> static INVAR_HD T backward_b(T g, T, T, Scalars) { return g; }
};

struct Sub {
    static constexpr const char* kName = "sub";
    static constexpr const char* kDoc = "a - b";
    static constexpr CastClass kCast = CastClass::widest;
    static constexpr bool kSavesInputs = false;
    template <class T> static INVAR_HD T forward(T a, T b, Scalars) { return a - b; }
    static INVAR_HD std::int64_t whole(std::int64_t a, std::int64_t b) { return std::int64_t(std::uint64_t(a) - std::uint64_t(b)); }
    template <class T> static INVAR_HD T backward_a(T g, T, T, Scalars) { return g; }
    template <class T> static INVAR_HD T backward_b(T g, T, T, Scalars) { return -g; }
};

struct Mul {
    static constexpr const char* kName = "mul";
    static constexpr const char* kDoc = "a * b";
    static constexpr CastClass kCast = CastClass::widest;
    static constexpr bool kSavesInputs = true;
    template <class T> static INVAR_HD T forward(T a, T b, Scalars) { return a * b; }
    static INVAR_HD std::int64_t whole(std::int64_t a, std::int64_t b) { return std::int64_t(std::uint64_t(a) * std::uint64_t(b)); }
    template <class T> static INVAR_HD T backward_a(T g, T, T b, Scalars) { return g * b; }
    template <class T> static INVAR_HD T backward_b(T g, T a, T, Scalars) { return g * a; }
};

struct Div {
    static constexpr const char* kName = "div";
    static constexpr const char* kDoc = "a / b";
    static constexpr CastClass kCast = CastClass::widest;
    static constexpr bool kSavesInputs = true;
    static constexpr bool kFractionOfWhole = true;  // as in PyTorch, whole numbers divide to a fraction
    template <class T> static INVAR_HD T forward(T a, T b, Scalars) { return a / b; }
    template <class T> static INVAR_HD T backward_a(T g, T, T b, Scalars) { return g / b; }
    template <class T> static INVAR_HD T backward_b(T g, T a, T b, Scalars) { return -g * ((a / b) / b); }  // b * b may leave the range
};

struct Pow {
    static constexpr const char* kName = "pow";
    static constexpr const char* kDoc = "a to the power b";
    static constexpr CastClass kCast = CastClass::fp32;
    static constexpr bool kSavesInputs = true;
    template <class T> static INVAR_HD T forward(T a, T b, Scalars) { return pow(a, b); }
    template <class T> static INVAR_HD T backward_a(T g, T a, T b, Scalars) {
        return b == T(0) ? T(0) : g * (b * pow(a, b - T(1)));
    }
    template <class T> static INVAR_HD T backward_b(T g, T a, T b, Scalars) {
        return a == T(0) && b >= T(0) ? T(0) : g * (pow(a, b) * log(a));
    }
};

// Where both are equal the gradient is shared; where one is NaN both get it, as in PyTorch.
struct Maximum {
    static constexpr const char* kName = "maximum";
    static constexpr const char* kDoc = "the larger of a and b";
    static constexpr CastClass kCast = CastClass::widest;
    static constexpr bool kSavesInputs = true;
    template <class T> static INVAR_HD T forward(T a, T b, Scalars) { return select(a > b || a != a, a, b); }
    static INVAR_HD std::int64_t whole(std::int64_t a, std::int64_t b) { return a > b ? a : b; }
    template <class T> static INVAR_HD T backward_a(T g, T a, T b, Scalars) { return select(a < b, T(0), select(a == b, T(0.5) * g, g)); }
    template <class T> static INVAR_HD T backward_b(T g, T a, T b, Scalars) { return select(b < a, T(0), select(a == b, T(0.5) * g, g)); }
};

struct Minimum {
    static constexpr const char* kName = "minimum";
    static constexpr const char* kDoc = "the smaller of a and b";
    static constexpr CastClass kCast = CastClass::widest;
    static constexpr bool kSavesInputs = true;
    template <class T> static INVAR_HD T forward(T a, T b, Scalars) { return select(a < b || a != a, a, b); }
    static INVAR_HD std::int64_t whole(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
    template <class T> static INVAR_HD T backward_a(T g, T a, T b, Scalars) { return select(a > b, T(0), select(a == b, T(0.5) * g, g)); }
    template <class T> static INVAR_HD T backward_b(T g, T a, T b, Scalars) { return select(b > a, T(0), select(a == b, T(0.5) * g, g)); }
};

// --- the elementwise parts of losses: a is the prediction, b the target ---

struct SquaredError {
    static constexpr const char* kName = "mse";
    static constexpr const char* kDoc = "(prediction - target) squared";
    static constexpr CastClass kCast = CastClass::fp32;
    static constexpr bool kSavesInputs = true;
    template <class T> static INVAR_HD T forward(T a, T b, Scalars) { return (a - b) * (a - b); }
    template <class T> static INVAR_HD T backward_a(T g, T a, T b, Scalars) { return T(2) * g * (a - b); }
    template <class T> static INVAR_HD T backward_b(T g, T a, T b, Scalars) { return T(2) * g * (b - a); }
};

struct AbsoluteError {
    static constexpr const char* kName = "l1";
    static constexpr const char* kDoc = "|prediction - target|";
    static constexpr CastClass kCast = CastClass::fp32;
    static constexpr bool kSavesInputs = true;
    template <class T> static INVAR_HD T forward(T a, T b, Scalars) { return fabs(a - b); }
    template <class T> static INVAR_HD T backward_a(T g, T a, T b, Scalars s) { return Abs::backward(g, a - b, s); }
    template <class T> static INVAR_HD T backward_b(T g, T a, T b, Scalars s) { return -backward_a(g, a, b, s); }
};

// Quadratic within a (beta) of the target, linear beyond.
struct SmoothL1 {
    static constexpr const char* kName = "smooth_l1";
    static constexpr const char* kDoc = "squared error within beta of the target, absolute error beyond";
    static constexpr CastClass kCast = CastClass::fp32;
    static constexpr bool kSavesInputs = true;
    template <class T> static INVAR_HD T forward(T a, T b, Scalars s) {
        const T d = fabs(a - b), beta = T(s.a);
        return select(d < beta, T(0.5) * d * d / beta, d - T(0.5) * beta);
    }
    template <class T> static INVAR_HD T backward_a(T g, T a, T b, Scalars s) {
        const T d = a - b, beta = T(s.a);
        return select(d >= beta, g, select(d <= -beta, -g, g * d / beta));  // NaN where d is
    }
    template <class T> static INVAR_HD T backward_b(T g, T a, T b, Scalars s) { return -backward_a(g, a, b, s); }
};

struct BceWithLogits {
    static constexpr const char* kName = "bce_with_logits";
    static constexpr const char* kDoc = "binary cross-entropy of sigmoid(logits)";
    static constexpr CastClass kCast = CastClass::fp32;
    static constexpr bool kSavesInputs = true;
    // x (1 - y) and not x - x y, whose terms cancel for a large x and a y near 1.
    template <class T> static INVAR_HD T forward(T x, T y, Scalars) {
        return select(x > T(0), x * (T(1) - y), -x * y) + log1p(exp(-fabs(x)));
    }
    // Likewise: for a large x and a y of 1 the difference of both from 1.
    template <class T> static INVAR_HD T backward_a(T g, T x, T y, Scalars) {
        const Logistic<T> s(x);
        return g * select(x > T(0), (T(1) - y) - s.rest, s.of - y);
    }
    template <class T> static INVAR_HD T backward_b(T g, T x, T, Scalars) { return -g * x; }
};

// On probabilities; NaN, in value and gradient, for what lies outside [0, 1]: to refuse it, as PyTorch does, the host
// would have to wait for the values. Refused under autocast: its gradient, up to 1/x, leaves FP16's range; the logits form does not.
struct Bce {
    static constexpr const char* kName = "bce";
    static constexpr const char* kDoc = "binary cross-entropy of probabilities";
    static constexpr CastClass kCast = CastClass::refuse;
    static constexpr bool kSavesInputs = true;
    template <class T> static INVAR_HD T clipped(T logarithm) { return select(logarithm < T(-100), T(-100), logarithm); }
    template <class T> static INVAR_HD T forward(T x, T y, Scalars) {
        return -(y * clipped(log(x)) + (T(1) - y) * clipped(log1p(-x)));
    }
    template <class T> static INVAR_HD T backward_a(T g, T x, T y, Scalars) {
        const T variance = x * (T(1) - x);
        return g * (x - y) / (variance < T(0) ? T(NAN) : variance < T(1e-12) ? T(1e-12) : variance);
    }
    template <class T> static INVAR_HD T backward_b(T g, T x, T, Scalars) { return g * (clipped(log1p(-x)) - clipped(log(x))); }
};

}  // namespace pointwise

// Every op: its struct, its function in ops::, and what that function calls the op's constants, where it has any.
#define INVAR_UNARY_OPS(X) \
    X(Neg, neg) X(Affine, affine, factor, shift) X(DivScalar, div, divisor) X(Exp, exp) X(Log, log) X(Log1p, log1p) \
    X(Expm1, expm1) X(Sin, sin) X(Cos, cos) X(Erf, erf) X(Sqrt, sqrt) X(Rsqrt, rsqrt) \
    X(PowScalar, pow, exponent) X(Tanh, tanh) X(Sigmoid, sigmoid) X(Relu, relu) X(Gelu, gelu) X(GeluTanh, gelu_tanh) X(Silu, silu) \
    X(Softplus, softplus) X(LeakyRelu, leaky_relu, slope) X(Elu, elu, alpha) X(Hardsigmoid, hardsigmoid) \
    X(Hardswish, hardswish) X(Abs, abs) X(Clamp, clamp, low, high)

#define INVAR_BINARY_OPS(X) \
    X(Add, add) X(Sub, sub) X(Mul, mul) X(Div, div) X(Pow, pow) X(Maximum, maximum) X(Minimum, minimum) \
    X(SquaredError, squared_error) X(AbsoluteError, absolute_error) X(SmoothL1, smooth_l1_error, beta) \
    X(BceWithLogits, bce_with_logits_error) X(Bce, bce_error)

// clang-format on

#define INVAR_ENUM(Op, ...) Op,
enum class UnaryOp : std::uint8_t { INVAR_UNARY_OPS(INVAR_ENUM) };
enum class BinaryOp : std::uint8_t { INVAR_BINARY_OPS(INVAR_ENUM) };
#undef INVAR_ENUM

// That of an activation; there is one.
constexpr UnaryOp unary_op(Activation activation) {
    if (activation == Activation::relu) return UnaryOp::Relu;
    return activation == Activation::gelu ? UnaryOp::Gelu : UnaryOp::GeluTanh;
}

// Of two whole numbers; ops that have no such result were refused before.
template <class Op>
INVAR_HD std::int64_t whole_of(std::int64_t a, std::int64_t b) {
    if constexpr (requires { Op::whole(a, b); })
        return Op::whole(a, b);
    else
        return 0;
}
INVAR_HD inline std::int64_t whole_result(BinaryOp op, std::int64_t a, std::int64_t b) {
    switch (op) {
#define INVAR_CASE(Op, ...) \
    case BinaryOp::Op:      \
        return whole_of<pointwise::Op>(a, b);
        INVAR_BINARY_OPS(INVAR_CASE)
#undef INVAR_CASE
    }
    return 0;
}

}  // namespace invar
