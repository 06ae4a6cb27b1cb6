// Attention on the GPU: in 16 bits cuDNN's fused engines where they serve, else fused kernels of our own; in any other
// case blocks of products with a pass over the weights between them.
#pragma once

#include "invar/kernels/attention.h"

namespace invar::cuda {

struct AttentionTensors {
    View q, k, v, y, kept;
    View gy, gq, gk, gv;  // absent in forward
};

// False where cuDNN has no engine for it; nothing was done then.
bool fused_attention(const AttentionSpec& spec, const AttentionTensors& tensors);
bool fused_attention_backward(const AttentionSpec& spec, const AttentionTensors& tensors);
// What cuDNN leaves in `kept` becomes what the kernel list says, and rows of y whose sum is no finite number NaN: cuDNN
// takes a row whose scores are all -inf for one that sees no key. All rows must see one.
void show_nonfinite_rows(const AttentionSpec& spec, const View& y, const View& kept);

// Our own, in 16 bits; false where they do not serve.
bool flash_attention(const AttentionSpec& spec, const AttentionTensors& tensors);
bool flash_attention_backward(const AttentionSpec& spec, const AttentionTensors& tensors);

// A block of the weights: scores of some samples from `sample` on, of queries from `first` on, f32 (f64), dense as
// [samples, heads, rows, keys].
struct WeightsBlock {
    std::int64_t sample, samples, first, rows, keys;
    View scores;
};
// Scores become weights, in the dtype of `weights`; what backward needs of each row goes into `kept`.
void attention_weights(const AttentionSpec& spec, const WeightsBlock& block, const View& weights, const View& kept);
// From the same scores, and the gradients of the weights in `gradients` (f32 or f64): the weights as they met the
// values, and the gradients of the scores.
void attention_weights_backward(const AttentionSpec& spec, const WeightsBlock& block, const View& gradients,
                                const View& kept, const View& weights, const View& score_gradients);

}  // namespace invar::cuda
