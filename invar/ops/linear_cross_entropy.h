// The head of a language model and its loss in one: cross entropy of x times the transposed weight, in chunks of rows,
// so that all logits never exist at once.
#pragma once

#include "invar/ops/losses.h"

namespace invar::ops {

// x [..., width], weight [classes, width], target i64 [...]; a mean or a sum. The gradients are worked out with the
// loss and kept in place of the logits: in 16 bits those of a row's logits, unscaled, lie between -1 and 1; what comes
// in from the loss, the loss scale over the number of rows, is applied in FP32. With weights of classes it is
// cross_entropy(linear(x, weight)) in two steps, whose logits all exist.
Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& target,
                            const ClassLossOptions& options = {});

}  // namespace invar::ops
