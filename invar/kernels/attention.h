// Attention as kernels see it: the sizes, and the one rule for which keys a query sees and what dropout takes from it,
// compiled by every device. Its tensors are [batch, heads, length, width], with any strides but one between neighbours
// of a head's width.
#pragma once

#include <algorithm>

#include "invar/core/rng.h"
#include "invar/core/view.h"

namespace invar {

struct AttentionSpec {
    std::int64_t batch = 0, heads = 0, kv_heads = 0;  // of the queries' heads, so many in a row share a key's head
    std::int64_t queries = 0, keys = 0;
    std::int64_t width = 0, value_width = 0;
    bool causal = false;  // query i sees no key behind i
    double scale = 1;     // of the products
    double dropout = 0;   // of the weights, by counters from `rng` on
    RngState rng;
    int skip = 0;    // numbers of the first counter that are of weights before these
    View seen;       // boolean, dense [batch, keys]: false where a key is padding. Absent: all are seen
    View documents;  // i32, dense [batch, keys], with as many queries: a position sees its own document alone
    View bias;       // f32 (f64), [batch, heads, queries, keys] with strides of 0 where it is broadcast; added

    std::int64_t group() const { return heads / kv_heads; }
    bool plain() const { return !seen && !documents && !bias && dropout == 0; }
    // No query before `end` sees a key from this one on.
    std::int64_t keys_before(std::int64_t end) const { return causal && end < keys ? end : keys; }
    std::int64_t weights() const { return batch * heads * queries * keys; }
};

// Where no fused kernel serves, attention goes by blocks: some samples with all of their queries, or some queries of
// one sample, as many as the memory for their scores allows.
struct AttentionBlocks {
    static constexpr std::int64_t kBytes = std::int64_t(128) << 20, kMaxSamples = 65535;
    std::int64_t samples = 1, rows;

    AttentionBlocks(const AttentionSpec& s, Dtype dtype) {
        const std::int64_t widest = std::max({s.keys, s.width, s.value_width, std::int64_t(1)});
        const std::int64_t row = std::max<std::int64_t>(s.heads, 1) * widest * std::int64_t(size_of(dtype));
        rows = std::clamp<std::int64_t>(kBytes / row, 1, std::max<std::int64_t>(s.queries, 1));
        if (rows < s.queries) return;
        samples = std::clamp<std::int64_t>(kBytes / (row * rows), 1, std::clamp<std::int64_t>(s.batch, 1, kMaxSamples));
    }
    // Of one element for each query and key in a block.
    std::int64_t scores(const AttentionSpec& s) const { return samples * s.heads * rows * s.keys; }
};

// The rule for single weights.
struct AttentionRule {
    bool causal;
    const std::uint8_t* seen;
    const std::int32_t* documents;
    const void* bias;
    std::int64_t bias_stride[4];
    std::int64_t heads, queries, keys;
    std::uint64_t skip;

    explicit AttentionRule(const AttentionSpec& spec)
        : causal(spec.causal),
          seen(spec.seen.as<const std::uint8_t>()),
          documents(spec.documents.as<const std::int32_t>()),
          bias(spec.bias.data),
          bias_stride{spec.bias.stride[0], spec.bias.stride[1], spec.bias.stride[2], spec.bias.stride[3]},
          heads(spec.heads),
          queries(spec.queries),
          keys(spec.keys),
          skip(std::uint64_t(spec.skip)) {}

    // Whether a query may see no key at all.
    INVAR_HD bool may_blind() const { return seen != nullptr || documents != nullptr; }
    // What the rule asks of a key and of a query, for kernels that look it up once for many pairs.
    struct Key {
        bool seen;
        std::int32_t document;
    };
    INVAR_HD std::int32_t document(std::int64_t b, std::int64_t position) const {
        return documents == nullptr ? 0 : documents[b * keys + position];
    }
    INVAR_HD Key key(std::int64_t b, std::int64_t k) const {
        return {seen == nullptr || seen[b * keys + k] != 0, document(b, k)};
    }
    INVAR_HD bool sees(std::int64_t q, std::int32_t query_document, std::int64_t k, const Key& key) const {
        return !(causal && k > q) && key.seen && query_document == key.document;
    }
    INVAR_HD bool sees(std::int64_t b, std::int64_t q, std::int64_t k) const {
        if (causal && k > q) return false;
        return sees(q, document(b, q), k, key(b, k));
    }
    template <class C>
    INVAR_HD C added(std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t k) const {
        if (bias == nullptr) return C(0);
        return static_cast<const C*>(
            bias)[b * bias_stride[0] + h * bias_stride[1] + q * bias_stride[2] + k * bias_stride[3]];
    }
    // The place of a weight in the sequence that dropout goes by.
    INVAR_HD std::uint64_t place(std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t k) const {
        return skip +
               ((std::uint64_t(b) * std::uint64_t(heads) + std::uint64_t(h)) * std::uint64_t(queries) +
                std::uint64_t(q)) *
                   std::uint64_t(keys) +
               std::uint64_t(k);
    }
};

// What stays of a weight: 0, or the factor that makes up for those that went.
INVAR_HD inline float kept_share(const DropRule& rule, const RngState& rng, std::uint64_t place) {
    const Random4 random = philox(rng.seed, rng.offset + place / DropRule::kElements);
    return DropRule::bits(random, int(place % DropRule::kElements)) < rule.limit ? 0.0f : rule.keep;
}

// The same for eight weights in a row, a bit each: whether it stays.
INVAR_HD inline std::uint32_t kept_eight(const DropRule& rule, const RngState& rng, std::uint64_t place) {
    static_assert(DropRule::kElements == 8);
    const auto kept = [&](std::uint64_t counter) {
        const Random4 random = philox(rng.seed, rng.offset + counter);
        std::uint32_t bits = 0;
        for (int i = 0; i < 8; ++i) bits |= std::uint32_t(DropRule::bits(random, i) >= rule.limit) << i;
        return bits;
    };
    const auto shift = std::uint32_t(place % 8);
    const std::uint32_t first = kept(place / 8);
    return shift == 0 ? first : (first >> shift | kept(place / 8 + 1) << (8 - shift)) & 0xffu;
}

}  // namespace invar
