// Normalisation with statistics in FP32: over the batch, over the last dimensions, over groups of channels.
#pragma once

#include "invar/core/tensor.h"

namespace invar::ops {

// x [..., channels]. Training: the batch's statistics, and the running ones (either may be absent) move towards them in
// place by `momentum`, with the unbiased variance, as in PyTorch; they stay as they are while a checkpointed region is
// recomputed. Otherwise: the running statistics. gamma and beta may be absent.
Tensor batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& running_mean,
                  const Tensor& running_var, bool training, double momentum = 0.1, double eps = 1e-5);

// Over the last dimensions, whose sizes are `normalized`; gamma and beta, where given, have that shape.
Tensor layer_norm(const Tensor& x, const Shape& normalized, const Tensor& gamma = {}, const Tensor& beta = {},
                  double eps = 1e-5);

// x [batch, ..., channels]: each sample's channels in `groups` groups; gamma and beta [channels].
Tensor group_norm(const Tensor& x, int groups, const Tensor& gamma = {}, const Tensor& beta = {}, double eps = 1e-5);

}  // namespace invar::ops
