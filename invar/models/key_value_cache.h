// KeyValueCache: what attention keeps of the tokens before, so that each further one costs a row and not a whole text.
#pragma once

#include "invar/core/tensor.h"

namespace invar {

struct KeyValueCache {
    bool on = false;
    Tensor keys{}, values{};  // [batch, kv_heads, tokens so far, width]

    std::int64_t tokens() const { return keys ? keys.size(2) : 0; }
    // Causal attention of new tokens, [batch, length, (heads + 2 kv_heads) * width] with queries, keys and values side
    // by side, over those before and themselves; returns [batch, length, heads * width].
    Tensor attend(const Tensor& qkv, std::int64_t heads, std::int64_t kv_heads);
};

}  // namespace invar
