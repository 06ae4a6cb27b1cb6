#include "invar/models/key_value_cache.h"

#include <limits>

#include "invar/ops/ops.h"

namespace invar {

Tensor KeyValueCache::attend(const Tensor& qkv, std::int64_t heads, std::int64_t kv_heads) {
    const std::int64_t batch = qkv.size(0), length = qkv.size(1), all = heads + 2 * kv_heads;
    const std::int64_t width = qkv.size(2) / all, before = tokens();
    const Tensor rows = ops::permute(ops::reshape(qkv, {batch, length, all, width}), {0, 2, 1, 3});
    const Slice every{};
    const Tensor q = rows[{every, Slice{0, heads}}], k = rows[{every, Slice{heads, heads + kv_heads}}],
                 v = rows[{every, Slice{heads + kv_heads, all}}];
    keys = keys ? ops::cat({keys, k}, 2) : ops::contiguous(k);
    values = values ? ops::cat({values, v}, 2) : ops::contiguous(v);
    ops::AttentionOptions options;
    if (before == 0) {
        options.causal = true;
    } else if (length > 1) {  // a new token sees all before, and of the new ones those up to itself
        std::vector<float> hidden(std::size_t(length * (before + length)), 0.0f);
        for (std::int64_t i = 0; i < length; ++i)
            for (std::int64_t j = i + 1; j < length; ++j)
                hidden[std::size_t(i * (before + length) + before + j)] = -std::numeric_limits<float>::infinity();
        options.bias = ops::to(Tensor::from(hidden, {length, before + length}), qkv.device());
    }
    const Tensor y = ops::attention(q, keys, values, options);
    return ops::reshape(ops::permute(y, {0, 2, 1, 3}), {batch, length, heads * width});
}

}  // namespace invar
