// Images [batch, height, width, channels] in another size, by interpolation.
#pragma once

#include "invar/core/tensor.h"
#include "invar/ops/pair.h"

namespace invar::ops {

// nearest goes by the edges of pixels, as PyTorch always has, nearest_exact by their middles.
enum class Interpolation { nearest, nearest_exact, bilinear, bicubic };

// To a size. `align_corners` puts the corner pixels' centres onto each other; bilinear and bicubic only.
Tensor upsample(const Tensor& x, Pair out, Interpolation mode = Interpolation::nearest, bool align_corners = false);
// By a factor, or one for each direction: the size is rounded down, and positions follow from the factor.
Tensor upsample(const Tensor& x, double factor, Interpolation mode = Interpolation::nearest,
                bool align_corners = false);
Tensor upsample(const Tensor& x, double height_factor, double width_factor, Interpolation mode = Interpolation::nearest,
                bool align_corners = false);

}  // namespace invar::ops
