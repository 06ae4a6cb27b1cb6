// The geometry that operations hand to kernels: plain structs with the arithmetic that every device shares.
#pragma once

#include <cstdint>
#include <type_traits>

#include "invar/core/dtype.h"
#include "invar/core/view.h"

namespace invar {

// The constants of a pointwise op: an exponent, the bounds of a clamp.
struct Scalars {
    double a = 0;
    double b = 0;
};

// What is asked of two values. Of the last three each value is true or not by itself: all but zero is, NaN too.
enum class CompareOp : std::uint8_t { eq, ne, lt, le, gt, ge, logical_and, logical_or, logical_xor };

// IEEE's rules: NaN is not equal, and neither smaller nor larger.
template <class C>
INVAR_HD constexpr bool holds(CompareOp op, C a, C b) {
    switch (op) {
        case CompareOp::eq:
            return a == b;
        case CompareOp::ne:
            return a != b;
        case CompareOp::lt:
            return a < b;
        case CompareOp::le:
            return a <= b;
        case CompareOp::gt:
            return a > b;
        case CompareOp::ge:
            return a >= b;
        case CompareOp::logical_and:
            return a != C(0) && b != C(0);
        case CompareOp::logical_or:
            return a != C(0) || b != C(0);
        case CompareOp::logical_xor:
            return (a != C(0)) != (b != C(0));
    }
    return false;
}

struct CompareSpec {
    CompareOp op;
    Dtype in;  // what both values are compared in
    // The second operand where it is a constant, for a floating `in` and for whole numbers.
    double real = 0;
    std::int64_t whole = 0;

    template <class C>
    INVAR_HD C constant() const {
        if constexpr (std::is_integral_v<C>)
            return C(whole);
        else
            return C(real);
    }
};

// A reduction seen as [outer, n, inner], over n.
struct Span3 {
    std::int64_t outer = 1;
    std::int64_t n = 1;
    std::int64_t inner = 1;
};

// What a product or convolution may apply to its result on the way out. Of ReLU backward needs the result alone; `gelu`
// is the exact one.
enum class Activation : std::int64_t { none, relu, gelu_tanh, gelu };

// Whether its derivative is taken from the values before it.
constexpr bool is_gelu(Activation activation) {
    return activation == Activation::gelu_tanh || activation == Activation::gelu;
}

// What a product does beside multiplying; each part may be absent.
struct Epilogue {
    View bias;                                 // added along the last dimension ...
    Activation activation = Activation::none;  // ... then this is applied
    View before = {};    // receives what the activation reads, as it is rounded here; gelu's derivative needs it
    View row_sums = {};  // f32 [m]: the sums over the inner dimension of a, for an a whose transpose is dense
    View addend = {};    // of the result's shape, dtype and strides: added to the product, which has nothing else then
};

// A 2-d convolution: x [batch, in_h, in_w, in_c], w [out_c, k_h, k_w, in_c / groups], y [batch, out_h, out_w, out_c].
struct ConvSpec {
    std::int64_t batch, in_h, in_w, in_c;
    std::int64_t out_h, out_w, out_c;
    std::int64_t k_h, k_w;
    std::int64_t stride_h, stride_w;
    std::int64_t pad_h, pad_w;
    std::int64_t dilation_h, dilation_w;
    std::int64_t groups;
    Activation activation = Activation::none;  // none or relu
    bool operator==(const ConvSpec&) const = default;

    // How far the windows reach from the first one's start, padding included.
    std::int64_t reach_h() const { return (out_h - 1) * stride_h + (k_h - 1) * dilation_h + 1; }
    std::int64_t reach_w() const { return (out_w - 1) * stride_w + (k_w - 1) * dilation_w + 1; }
    // Of one image and its result.
    std::int64_t numbers_of_images() const { return in_h * in_w * in_c + out_h * out_w * out_c; }
    // False where there is nothing to multiply: no images, or windows that lie in the padding alone.
    bool has_products() const { return batch > 0 && reach_h() > pad_h && reach_w() > pad_w; }
};

inline ConvSpec without_activation(ConvSpec spec) {
    spec.activation = Activation::none;
    return spec;
}

// Windows over [batch, in_h, in_w, channels]. Adaptive windows divide the input evenly among the outputs.
struct PoolSpec {
    std::int64_t batch, in_h, in_w, channels;
    std::int64_t out_h, out_w;
    std::int64_t k_h, k_w;
    std::int64_t stride_h, stride_w;
    std::int64_t pad_h, pad_w;
    bool adaptive;
    bool relu = false;              // of a max pool: applied to its result
    bool count_include_pad = true;  // of an average: padding is divided by, too

    // Winners are places in their window, in a byte, where that holds them; else places in the image.
    Dtype winners() const { return !adaptive && k_h * k_w <= kNoWinner ? Dtype::u8 : Dtype::i32; }
    // Noted where ReLU let nothing through.
    static constexpr std::uint8_t kNoWinner = 255;
    template <class W>
    static INVAR_HD constexpr W no_winner() {
        return sizeof(W) == 1 ? W(kNoWinner) : W(-1);
    }
    // What output (oh, ow) notes when the input at (h, w) wins.
    INVAR_HD std::int32_t winner(Dtype winners, std::int64_t oh, std::int64_t ow, std::int64_t h,
                                 std::int64_t w) const {
        if (winners == Dtype::i32) return std::int32_t(h * in_w + w);
        return std::int32_t((h + pad_h - oh * stride_h) * k_w + w + pad_w - ow * stride_w);
    }

    struct Range {
        std::int64_t begin, end;  // clipped to the input
    };
    INVAR_HD Range rows(std::int64_t i) const {
        return adaptive ? share(i, in_h, out_h) : window(i, in_h, k_h, stride_h, pad_h);
    }
    INVAR_HD Range columns(std::int64_t i) const {
        return adaptive ? share(i, in_w, out_w) : window(i, in_w, k_w, stride_w, pad_w);
    }
    // What an average divides by: its pixels, and the padding that its window covers where that counts. What a last
    // window has beyond the padding (ceil_mode) never counts.
    INVAR_HD std::int64_t divisor(std::int64_t oh, std::int64_t ow) const {
        const Range r = rows(oh), c = columns(ow);
        if (adaptive || !count_include_pad) return (r.end - r.begin) * (c.end - c.begin);
        return covered(oh, in_h, k_h, stride_h, pad_h) * covered(ow, in_w, k_w, stride_w, pad_w);
    }
    // Whether all averages divide by the size of the window.
    INVAR_HD bool divides_by_window() const {
        const bool within =
            (out_h - 1) * stride_h + k_h <= in_h + 2 * pad_h && (out_w - 1) * stride_w + k_w <= in_w + 2 * pad_w;
        return !adaptive && within && (count_include_pad || (pad_h == 0 && pad_w == 0));
    }

  private:
    static INVAR_HD Range share(std::int64_t i, std::int64_t in, std::int64_t out) {
        return {i * in / out, ((i + 1) * in + out - 1) / out};
    }
    static INVAR_HD Range window(std::int64_t i, std::int64_t in, std::int64_t k, std::int64_t stride,
                                 std::int64_t pad) {
        const std::int64_t begin = i * stride - pad, end = begin + k;
        return {begin < 0 ? 0 : begin, end > in ? in : end};
    }
    static INVAR_HD std::int64_t covered(std::int64_t i, std::int64_t in, std::int64_t k, std::int64_t stride,
                                         std::int64_t pad) {
        const std::int64_t left = in + 2 * pad - i * stride;
        return left < k ? left : k;
    }
};

// Where pixels of a result come from: interpolated between those of an image of another size, or, beyond the edges of
// the same image, what padding repeats.
enum class Sampling : std::uint8_t { nearest, nearest_exact, bilinear, bicubic, reflect, replicate, circular };

// Each pixel of [batch, out_h, out_w, channels] as a sum of some of [batch, in_h, in_w, channels].
struct ResampleSpec {
    std::int64_t batch, in_h, in_w, channels;
    std::int64_t out_h, out_w;
    Sampling mode;
    bool align_corners = false;
    // Inputs from one output to the next where factors were given; 0: as the sizes have it. Corners that are aligned
    // decide by themselves.
    double step_h = 0, step_w = 0;
    std::int64_t top = 0, left = 0;  // of padding: how much stands before the image

    // The places that an output reads, and their weights. What has no weight is not read.
    static constexpr int kMostTaps = 4;
    struct Taps {
        std::int64_t at[kMostTaps];
        double weight[kMostTaps];
    };
    INVAR_HD int taps() const { return mode == Sampling::bicubic ? 4 : mode == Sampling::bilinear ? 2 : 1; }
    INVAR_HD bool pads() const { return mode >= Sampling::reflect; }
    INVAR_HD Taps row(std::int64_t i) const { return taps_of(i, in_h, out_h, step_h, top); }
    INVAR_HD Taps column(std::int64_t i) const { return taps_of(i, in_w, out_w, step_w, left); }

  private:
    INVAR_HD Taps taps_of(std::int64_t i, std::int64_t in, std::int64_t out, double step, std::int64_t before) const {
        if (taps() == 1) return {{pads() ? repeated(i - before, in) : nearest(i, in, out, step)}, {1}};
        double at = align_corners ? (out > 1 ? double(i) * double(in - 1) / double(out - 1) : 0.0)
                    : step > 0    ? (double(i) + 0.5) * step - 0.5
                                  : (double(i) + 0.5) * double(in) / double(out) - 0.5;
        if (mode == Sampling::bicubic) return cubic(at, in);
        if (at < 0) at = 0;
        const std::int64_t first = std::int64_t(at) < in - 1 ? std::int64_t(at) : in - 1;
        if (first + 1 == in) return {{first, first}, {1}};
        const double weight = at - double(first);
        return {{first, first + 1}, {1 - weight, weight}};
    }
    // nearest_exact goes by the middles of pixels, nearest by their edges.
    INVAR_HD std::int64_t nearest(std::int64_t i, std::int64_t in, std::int64_t out, double step) const {
        const bool exact = mode == Sampling::nearest_exact;
        const std::int64_t place = step > 0 ? std::int64_t((exact ? double(i) + 0.5 : double(i)) * step)
                                   : exact  ? (2 * i + 1) * in / (2 * out)
                                            : i * in / out;
        return place < in ? place : in - 1;
    }
    // What stands at place i of an image that goes on beyond its edges: by at most its own size, or by any where its
    // last pixels are replicated.
    INVAR_HD std::int64_t repeated(std::int64_t i, std::int64_t in) const {
        if (mode == Sampling::replicate) return i < 0 ? 0 : i < in ? i : in - 1;
        if (mode == Sampling::circular) return i < 0 ? i + in : i < in ? i : i - in;
        return i < 0 ? -i : i < in ? i : 2 * (in - 1) - i;
    }
    // Cubic convolution over four neighbours with a = -0.75, as PyTorch and OpenCV have it; beyond the edges stands the
    // last pixel.
    static INVAR_HD Taps cubic(double at, std::int64_t in) {
        const std::int64_t down = std::int64_t(at), floor = double(down) > at ? down - 1 : down;
        const double t = at - double(floor), u = 1 - t, a = -0.75;
        const auto clip = [&](std::int64_t i) { return i < 0 ? 0 : i < in ? i : in - 1; };
        const auto near = [&](double x) { return ((a + 2) * x - (a + 3)) * x * x + 1; };
        const auto far = [&](double x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };
        if (t == 0) return {{clip(floor)}, {1}};
        return {{clip(floor - 1), clip(floor), clip(floor + 1), clip(floor + 2)},
                {far(t + 1), near(t), near(u), far(u + 1)}};
    }
};

// A variance as statistics of type C keep it. One that overflows them is NaN: the inverse of infinity, 0, would make
// zeros of what it normalises, and nobody would see it.
template <class C>
INVAR_HD double variance_in(double value) {
    const C kept = C(value);
    return kept - kept == C(0) ? value : double(kept - kept);
}

// A norm over each row of [rows, columns], dense. Statistics are f32 (f64 for f64), [rows]. Without a mean nothing is
// subtracted: RMS norm.
struct NormForward {
    View x;
    View branch, sum;  // where there is a branch, sum = x + branch is written, and is what is normalised, as rounded
    View gamma, beta;  // either may be absent
    View y, mean, rstd;
    double eps;
    Dtype computes_for() const { return sum ? sum.dtype : x.dtype; }
};

// Gradients that are absent are not computed.
struct NormBackward {
    View gy, x, gamma, mean, rstd;
    View gx;
    View pending;  // of gx's dtype: added to the norm's own gradient, once that is rounded; may be absent
    View gbranch;  // the same sum in another dtype; may be gy's own memory
    View ggamma, gbeta;
    View again, beta;  // the norm's result, made anew to the bit; may be absent
};

// Of a batch, over the rows of x [rows, channels]: mean, and 1 / sqrt(biased variance + eps).
struct BatchNormStats {
    View x, mean, rstd;
    // Where they are there, they move by `momentum`, to the unbiased variance; not towards what is not finite, of which
    // they would never get rid, while the step that has met it is skipped.
    View running_mean, running_var;
    double eps, momentum;
};

// Statistics of the rows of several ranks (kernels/batch_merge.h). What each rank tells stands in `parts`, f64 [ranks,
// 1 + 2 channels]: how many rows it has, their means, and 1 / sqrt(variance + eps) of them.
struct BatchNormMerge {
    View parts, mean, rstd;
    View running_mean, running_var;  // as in BatchNormStats
    double eps, momentum;
};

// What gradients of x get by way of those statistics: (x - mean) * pull + constant. `sums`, f64 [ranks, 2 channels]:
// each rank's gradients of beta, then of gamma.
struct BatchNormPull {
    View parts, sums, rstd, gamma, pull, constant;  // gamma may be absent
};

// relu((x - mean) * rstd * gamma + beta + residual), rounded once; residual, of x's dtype, and ReLU may be absent.
struct BatchNormForward {
    View x, mean, rstd, gamma, beta, residual, y;
    bool relu = false;
};

// Gradients that are absent are not computed.
struct BatchNormBackward {
    View gy, x, mean, rstd, gamma, beta;
    View y;          // the result, for a ReLU behind a residual sum; without the sum it is made anew from x
    View gresidual;  // the gradient behind that ReLU, of gy's dtype, which is the residual's; there wherever y is
    View gx, ggamma, gbeta;
    bool batch_statistics;  // mean and rstd came from this batch, so gradients flow through them too
    bool relu = false;
};

// Rotary positions over [rows, heads * width], dense: of each of the first `rotated` heads, the first `turned` elements
// are seen as two halves, and each pair across them is turned by an angle of its position; the rest is copied.
struct RotarySpec {
    std::int64_t rows, heads, rotated, width, turned;
    std::int64_t length;  // row r stands at offset + r % length, where no positions are given
    std::int64_t offset;
    bool back;  // by the opposite angle
};

struct CrossEntropySpec {
    std::int64_t rows, classes;
    std::int64_t ignore_index;
    double label_smoothing;
};

// A stretch of the flat parameter store that belongs to one group.
struct Segment {
    std::int64_t begin, count;
    std::int32_t group;
    std::int32_t missed = -1;  // its place among FlatStore's counts; -1: it never was without a gradient
    bool idle = false;         // without one in this step: it stands still, and that is counted
};

// The flat arrays of a ParameterStore. `weights` is the f32 master (or the only copy, of any floating dtype); `shadow`,
// where there is one, is its low-precision copy, written in the same pass.
struct FlatStore {
    void* weights;
    Dtype weights_dtype;
    void* shadow;
    Dtype shadow_dtype;
    float* gradients;
    float* first;   // momentum, or Adam's first moment; nullptr where the optimizer has none
    float* second;  // Adam's second moment
    std::int64_t count;
    std::int64_t* missed = nullptr;  // of each parameter, the steps that were taken while it had no gradient
};

// Values of any floating dtype, and their average in f32; both dense.
struct AveragedArray {
    const void* values;
    Dtype dtype;
    float* average;
    std::int64_t count;
};

}  // namespace invar
