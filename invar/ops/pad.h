// Images with more around them, or less.
#pragma once

#include <vector>

#include "invar/core/tensor.h"
#include "invar/ops/number.h"

namespace invar::ops {

// What stands beyond the edges: a value, the image mirrored at its last pixels, those pixels again, or the image anew.
enum class PadMode { constant, reflect, replicate, circular };

// x [..., height, width, channels] with so much more at {left, right, top, bottom}; {left, right} alone pads the width
// (of [batch, length, channels] the length). A constant's may be negative, and cut off; channels are left as they are.
Tensor pad(const Tensor& x, const std::vector<std::int64_t>& amounts, PadMode mode = PadMode::constant,
           Number value = 0);

}  // namespace invar::ops
