// Enlarging (or shrinking) images [batch, height, width, channels], by nearest neighbour or bilinear interpolation.
#pragma once

#include "invar/core/tensor.h"
#include "invar/ops/pair.h"

namespace invar::ops {

enum class Interpolation { nearest, bilinear };

// To a size. `align_corners` puts the corner pixels' centres onto each other; bilinear only.
Tensor upsample(const Tensor& x, Pair out, Interpolation mode = Interpolation::nearest, bool align_corners = false);
// By a factor: the size is rounded down, and positions follow from the factor, as in PyTorch.
Tensor upsample(const Tensor& x, double factor, Interpolation mode = Interpolation::nearest,
                bool align_corners = false);

}  // namespace invar::ops
