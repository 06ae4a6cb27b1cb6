// Convolutions over images [batch, height, width, channels].
#pragma once

#include "invar/core/tensor.h"
#include "invar/kernels/specs.h"
#include "invar/ops/pair.h"

namespace invar::ops {

struct Conv2dOptions {
    Pair stride = 1;
    Pair padding = 0;
    Pair dilation = 1;
    int groups = 1;
    Pair output_padding = 0;  // of the transposed form: rows and columns added at the far edges of the result
    Activation activation = Activation::none;  // of conv2d: relu may be applied in the same pass
};

// x [n, h, w, in], w [out, kh, kw, in / groups], bias [out].
Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias = {}, const Conv2dOptions& options = {});

// The gradient of conv2d as an operation of its own: x [n, h, w, in], w [in, kh, kw, out / groups], bias [out].
Tensor conv_transpose2d(const Tensor& x, const Tensor& w, const Tensor& bias = {}, const Conv2dOptions& options = {});

}  // namespace invar::ops
