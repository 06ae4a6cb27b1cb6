// Normalisation with statistics in FP32: over the batch, over the last dimensions, over groups of channels. Under
// autocast all but batch_norm read x in the dtype it has and give the low precision; their parameters are the FP32
// masters.
#pragma once

#include "invar/core/tensor.h"
#include "invar/kernels/specs.h"

namespace invar::ops {

// x [..., channels]. Training: the batch's statistics, and the running ones (either may be absent) move towards them in
// place by `momentum`, with the unbiased variance, as in PyTorch; they stay as they are while a checkpointed region is
// recomputed. Otherwise: the running statistics. gamma and beta may be absent.
// With an end, activation(norm + residual) in the same pass, rounded once; the residual, of x's shape, is cast to x's
// dtype, and the activation is none or ReLU.
struct BatchNormEnd {
    Activation activation = Activation::none;
    Tensor residual = {};
};
Tensor batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& running_mean,
                  const Tensor& running_var, bool training, double momentum = 0.1, double eps = 1e-5,
                  const BatchNormEnd& end = {});

// Over the last dimensions, whose sizes are `normalized`; gamma and beta, where given, have that shape.
Tensor layer_norm(const Tensor& x, const Shape& normalized, const Tensor& gamma = {}, const Tensor& beta = {},
                  double eps = 1e-5);

// x / sqrt(mean of x^2 + eps) * gamma, over the last dimension; gamma [that size] may be absent.
Tensor rms_norm(const Tensor& x, const Tensor& gamma = {}, double eps = 1e-6);

// A residual sum and its norm over the last dimension, {x + branch, norm of that}, by one kernel: with the dtypes that
// `+` and the norm have by themselves, and, where + does not round an operand first, the same bits. Backward, too, one
// kernel adds what comes back on both ways.
Tensors add_layer_norm(const Tensor& x, const Tensor& branch, const Tensor& gamma = {}, const Tensor& beta = {},
                       double eps = 1e-5);
Tensors add_rms_norm(const Tensor& x, const Tensor& branch, const Tensor& gamma = {}, double eps = 1e-6);

// x [batch, ..., channels]: each sample's channels in `groups` groups; gamma and beta [channels].
Tensor group_norm(const Tensor& x, int groups, const Tensor& gamma = {}, const Tensor& beta = {}, double eps = 1e-5);

}  // namespace invar::ops
