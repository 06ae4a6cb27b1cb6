// Attention, fused: softmax(q k^T / sqrt(width)) v without the weights of all pairs of positions in memory.
#pragma once

#include <optional>

#include "invar/core/tensor.h"

namespace invar::ops {

struct AttentionOptions {
    bool causal = false;               // position i sees none behind it
    double dropout = 0;                // of the weights; give 0 in evaluation
    std::optional<double> scale = {};  // of the products; 1 / sqrt(width) where there is none
    Tensor key_mask = {};              // boolean [batch, keys]: false where a key is padding
    Tensor documents = {};             // integers [batch, length]: positions see their own document alone
    Tensor bias = {};                  // floating, broadcast to [batch, heads, queries, keys]; added, and not learned
};

// q [batch, heads, queries, width], k [batch, kv_heads, keys, width], v [batch, kv_heads, keys, value width], with any
// strides; heads is a multiple of kv_heads, and that many in a row share a head of k and v. Returns
// [batch, heads, queries, value width], which lies in memory as [batch, queries, heads, value width]. A query from
// which masks hide every key gets zeros; one whose scores, or bias, are -inf throughout gets NaN, as softmax does.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options = {});

// The same for queries, keys and values side by side in [batch, length, (heads + 2 kv_heads) * width], as one linear
// layer makes them; returns [batch, length, heads * width]. Nothing is copied on the way, in backward neither.
Tensor self_attention(const Tensor& qkv, std::int64_t heads, std::int64_t kv_heads,
                      const AttentionOptions& options = {});

}  // namespace invar::ops
