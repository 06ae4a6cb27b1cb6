// KeyValueCache: what attention keeps of the tokens before, so that each further one costs a row and not a whole text.
#pragma once

#include "invar/core/tensor.h"

namespace invar {

struct KeyValueCache {
    bool on = false;
    Tensor keys{}, values{};  // [batch, heads, tokens so far, width]

    // Causal attention of new tokens, [batch, length, 3 * heads * width] with queries, keys and values side by side,
    // over those before and themselves; returns [batch, length, heads * width].
    Tensor attend(const Tensor& qkv, std::int64_t heads);
};

}  // namespace invar
