// Pooling over images [batch, height, width, channels].
#pragma once

#include "invar/core/tensor.h"
#include "invar/kernels/specs.h"
#include "invar/ops/pair.h"

namespace invar::ops {

struct Pool2dOptions {
    Pair kernel = 2;
    Pair stride = 0;  // 0: the kernel's size
    Pair padding = 0;
    Activation activation = Activation::none;  // of max_pool2d: relu costs nothing in the same pass
    bool ceil_mode = false;                    // a last window may reach beyond the padding, where it begins before it
    bool count_include_pad = true;             // of avg_pool2d: padding is divided by, too
};

Tensor max_pool2d(const Tensor& x, const Pool2dOptions& options);
Tensor avg_pool2d(const Tensor& x, const Pool2dOptions& options);
// Windows that divide the input evenly among `out` results.
Tensor adaptive_avg_pool2d(const Tensor& x, Pair out);
Tensor adaptive_max_pool2d(const Tensor& x, Pair out);

}  // namespace invar::ops
