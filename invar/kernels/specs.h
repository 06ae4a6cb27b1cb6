// The geometry that operations hand to kernels: plain structs with the arithmetic that every device shares.
#pragma once

#include <cstdint>

#include "invar/core/dtype.h"

namespace invar {

// A reduction seen as [outer, n, inner], over n.
struct Span3 {
    std::int64_t outer = 1;
    std::int64_t n = 1;
    std::int64_t inner = 1;
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
    bool operator==(const ConvSpec&) const = default;
};

// Windows over [batch, in_h, in_w, channels]. Adaptive windows divide the input evenly among the outputs.
struct PoolSpec {
    std::int64_t batch, in_h, in_w, channels;
    std::int64_t out_h, out_w;
    std::int64_t k_h, k_w;
    std::int64_t stride_h, stride_w;
    std::int64_t pad_h, pad_w;
    bool adaptive;

    struct Range {
        std::int64_t begin, end;  // clipped to the input
    };
    INVAR_HD Range rows(std::int64_t i) const {
        return adaptive ? share(i, in_h, out_h) : window(i, in_h, k_h, stride_h, pad_h);
    }
    INVAR_HD Range columns(std::int64_t i) const {
        return adaptive ? share(i, in_w, out_w) : window(i, in_w, k_w, stride_w, pad_w);
    }
    // What an average divides by: the whole window, padding included, as in PyTorch.
    INVAR_HD std::int64_t divisor(Range r, Range c) const {
        return adaptive ? (r.end - r.begin) * (c.end - c.begin) : k_h * k_w;
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
};

struct UpsampleSpec {
    std::int64_t batch, in_h, in_w, channels;
    std::int64_t out_h, out_w;
    bool bilinear;
    bool align_corners;

    // Where output position i reads from: two neighbours and the weight of the second.
    struct Tap {
        std::int64_t first, second;
        double weight;
    };
    INVAR_HD Tap row(std::int64_t i) const { return tap(i, in_h, out_h); }
    INVAR_HD Tap column(std::int64_t i) const { return tap(i, in_w, out_w); }

  private:
    INVAR_HD Tap tap(std::int64_t i, std::int64_t in, std::int64_t out) const {
        if (!bilinear) {
            const std::int64_t from = i * in / out;
            return {from, from, 0.0};
        }
        double at = align_corners ? (out > 1 ? double(i) * double(in - 1) / double(out - 1) : 0.0)
                                  : (double(i) + 0.5) * double(in) / double(out) - 0.5;
        if (at < 0) at = 0;
        const std::int64_t first = std::int64_t(at) < in - 1 ? std::int64_t(at) : in - 1;
        const std::int64_t second = first + 1 < in ? first + 1 : first;
        return {first, second, at - double(first)};
    }
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
};

}  // namespace invar
