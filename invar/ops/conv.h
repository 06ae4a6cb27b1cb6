// Convolutions over images [batch, height, width, channels].
#pragma once

#include "invar/core/tensor.h"
#include "invar/kernels/specs.h"
#include "invar/ops/pair.h"

namespace invar::ops {

// So much at both ends; or as a word: "valid", none, or "same", as much as keeps the size, at stride 1, the odd pixel
// of an even kernel behind.
struct Padding {
    Pair amount = 0;
    bool same = false;

    template <std::integral T>
    constexpr Padding(T both) : amount(both) {}  // NOLINT(google-explicit-constructor): `.padding = 1`
    template <std::integral T, std::integral U>
    constexpr Padding(T h, U w) : amount(h, w) {}
    constexpr Padding(Pair pair) : amount(pair) {}  // NOLINT(google-explicit-constructor)
    Padding(const char* word);                      // NOLINT(google-explicit-constructor): `.padding = "same"`

    constexpr std::int64_t operator[](int i) const { return amount[i]; }
    bool operator==(const Padding&) const = default;
};

struct Conv2dOptions {
    Pair stride = 1;
    Padding padding = 0;
    Pair dilation = 1;
    int groups = 1;
    Pair output_padding = 0;  // of the transposed form: rows and columns added at the far edges of the result
    Activation activation = Activation::none;  // of conv2d: relu may be applied in the same pass
};

// x [n, h, w, in], w [out, kh, kw, in / groups], bias [out].
Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias = {}, const Conv2dOptions& options = {});

struct Conv1dOptions {
    std::int64_t stride = 1;
    Padding padding = 0;  // one number, or a word
    std::int64_t dilation = 1;
    int groups = 1;
    Activation activation = Activation::none;
};
// As conv2d takes them, over images of height 1.
Conv2dOptions image_options(const Conv1dOptions& options);

// x [n, length, in], w [out, k, in / groups], bias [out].
Tensor conv1d(const Tensor& x, const Tensor& w, const Tensor& bias = {}, const Conv1dOptions& options = {});

// The gradient of conv2d as an operation of its own: x [n, h, w, in], w [in, kh, kw, out / groups], bias [out].
Tensor conv_transpose2d(const Tensor& x, const Tensor& w, const Tensor& bias = {}, const Conv2dOptions& options = {});

}  // namespace invar::ops
