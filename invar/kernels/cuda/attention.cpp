#include "invar/kernels/cuda/attention.h"

#include <algorithm>

#include "invar/kernels/cuda/device.h"
#include "invar/kernels/cuda/kernels.h"

namespace invar::cuda {

namespace {

constexpr std::int64_t kBlockBytes = std::int64_t(128) << 20;  // of scores at once

// [count, rows, columns] of a tensor [batch, heads, length, width]: heads from `head` on, positions from `first` on.
View slab(const View& x, std::int64_t b, std::int64_t head, std::int64_t count, std::int64_t first, std::int64_t rows) {
    View part;
    part.dtype = x.dtype;
    part.rank = 3;
    const std::int64_t at = b * x.stride[0] + head * x.stride[1] + first * x.stride[2];
    part.data = static_cast<char*>(x.data) + at * std::int64_t(size_of(x.dtype));
    part.size[0] = count, part.size[1] = rows, part.size[2] = x.size[3];
    part.stride[0] = x.stride[1], part.stride[1] = x.stride[2], part.stride[2] = x.size[3] > 1 ? x.stride[3] : 1;
    return part;
}

View turned(View x) {
    std::swap(x.size[1], x.size[2]);
    std::swap(x.stride[1], x.stride[2]);
    return x;
}

View dense3(void* data, Dtype dtype, std::int64_t n, std::int64_t rows, std::int64_t columns) {
    View v;
    v.data = data, v.dtype = dtype, v.rank = 3;
    v.size[0] = n, v.size[1] = rows, v.size[2] = columns;
    v.stride[0] = rows * columns, v.stride[1] = columns, v.stride[2] = 1;
    return v;
}

View heads_of(const View& v, std::int64_t first, std::int64_t count) {
    View part = v;
    part.data = static_cast<char*>(v.data) + first * v.stride[0] * std::int64_t(size_of(v.dtype));
    part.size[0] = count;
    return part;
}

// Blocks of queries such that the scores of all heads of one sample fit.
struct Blocks {
    const AttentionSpec& spec;
    Dtype wide;
    std::int64_t rows;

    Blocks(const AttentionSpec& s, Dtype dtype) : spec(s), wide(dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32) {
        const std::int64_t row_bytes = s.heads * s.keys * std::int64_t(size_of(wide));
        rows = std::clamp<std::int64_t>(kBlockBytes / std::max<std::int64_t>(row_bytes, 1), 1, s.queries);
    }
    std::size_t bytes(Dtype dtype) const { return std::size_t(spec.heads * rows * spec.keys) * size_of(dtype); }
    // f(the block without its scores, keys that some query of it sees)
    template <class F>
    void each(const F& f) const {
        for (std::int64_t b = 0; b < spec.batch; ++b)
            for (std::int64_t first = 0; first < spec.queries; first += rows) {
                const std::int64_t n = std::min(rows, spec.queries - first);
                f(WeightsBlock{b, first, n, spec.keys_before(first + n), {}});
            }
    }
};

}  // namespace

void CudaKernels::attention(const AttentionSpec& s, const View& q, const View& k, const View& v, const View& y,
                            const View& kept) {
    if (s.batch * s.heads * s.queries == 0) return;
    const AttentionTensors tensors{q, k, v, y, kept, {}, {}, {}, {}};
    if (fused_attention(s, tensors) || flash_attention(s, tensors)) return;
    const Blocks blocks(s, q.dtype);
    const Scratch scores(blocks.bytes(blocks.wide)), weights(q.dtype == blocks.wide ? 0 : blocks.bytes(q.dtype));
    blocks.each([&](WeightsBlock block) {
        block.scores = dense3(scores.data(), blocks.wide, s.heads, block.rows, block.keys);
        const View p =
            weights.data() == nullptr ? block.scores : dense3(weights.data(), q.dtype, s.heads, block.rows, block.keys);
        // With a head of keys for each of queries one call does all heads of a sample.
        const std::int64_t batch = s.group() == 1 ? s.heads : 1;
        for (std::int64_t h = 0; h < s.heads; h += batch)
            matmul(slab(q, block.sample, h, batch, block.first, block.rows),
                   turned(slab(k, block.sample, h / s.group(), batch, 0, block.keys)), {},
                   heads_of(block.scores, h, batch), false);
        attention_weights(s, block, p, kept);
        for (std::int64_t h = 0; h < s.heads; h += batch)
            matmul(heads_of(p, h, batch), slab(v, block.sample, h / s.group(), batch, 0, block.keys), {},
                   slab(y, block.sample, h, batch, block.first, block.rows), false);
    });
}

void CudaKernels::attention_backward(const AttentionSpec& s, const View& q, const View& k, const View& v, const View& y,
                                     const View& kept, const View& gy, const View& gq, const View& gk, const View& gv) {
    if (s.batch * s.heads * s.queries == 0) {
        fill(gk, 0);
        fill(gv, 0);
        return;
    }
    const AttentionTensors tensors{q, k, v, y, kept, gy, gq, gk, gv};
    if (fused_attention_backward(s, tensors) || flash_attention_backward(s, tensors)) return;
    const Blocks blocks(s, q.dtype);
    const Scratch scores(blocks.bytes(blocks.wide)), gradients(blocks.bytes(blocks.wide));
    const bool narrow = q.dtype != blocks.wide;
    const Scratch weights(narrow ? blocks.bytes(q.dtype) : 0), score_gradients(narrow ? blocks.bytes(q.dtype) : 0);
    // Sums over blocks and over the heads of a group stay wide until the end.
    const std::size_t width = size_of(blocks.wide);
    const Scratch wide_gk(std::size_t(s.kv_heads * s.keys * s.width) * width);
    const Scratch wide_gv(std::size_t(s.kv_heads * s.keys * s.value_width) * width);
    const View sum_k = dense3(wide_gk.data(), blocks.wide, s.kv_heads, s.keys, s.width);
    const View sum_v = dense3(wide_gv.data(), blocks.wide, s.kv_heads, s.keys, s.value_width);
    const auto first_keys = [](View x, std::int64_t count) {
        x.size[1] = count;
        return x;
    };
    blocks.each([&](WeightsBlock block) {
        const std::int64_t b = block.sample, rows = block.rows, n = block.keys;
        block.scores = dense3(scores.data(), blocks.wide, s.heads, rows, n);
        const View g = dense3(gradients.data(), blocks.wide, s.heads, rows, n);
        const View p = narrow ? dense3(weights.data(), q.dtype, s.heads, rows, n) : block.scores;
        const View gs = narrow ? dense3(score_gradients.data(), q.dtype, s.heads, rows, n) : g;
        if (block.first == 0) fill(sum_k, 0), fill(sum_v, 0);
        const std::int64_t batch = s.group() == 1 ? s.heads : 1;
        for (std::int64_t h = 0; h < s.heads; h += batch) {
            const std::int64_t kv = h / s.group();
            matmul(slab(q, b, h, batch, block.first, rows), turned(slab(k, b, kv, batch, 0, n)), {},
                   heads_of(block.scores, h, batch), false);
            matmul(slab(gy, b, h, batch, block.first, rows), turned(slab(v, b, kv, batch, 0, n)), {},
                   heads_of(g, h, batch), false);
        }
        attention_weights_backward(s, block, g, kept, p, gs);
        for (std::int64_t h = 0; h < s.heads; h += batch) {
            const std::int64_t kv = h / s.group();
            matmul(turned(heads_of(p, h, batch)), slab(gy, b, h, batch, block.first, rows), {},
                   first_keys(heads_of(sum_v, kv, batch), n), true);
            matmul(turned(heads_of(gs, h, batch)), slab(q, b, h, batch, block.first, rows), {},
                   first_keys(heads_of(sum_k, kv, batch), n), true);
            matmul(heads_of(gs, h, batch), slab(k, b, kv, batch, 0, n), {}, slab(gq, b, h, batch, block.first, rows),
                   false);
        }
        if (block.first + rows < s.queries) return;
        copy(sum_k, slab(gk, b, 0, s.kv_heads, 0, s.keys));
        copy(sum_v, slab(gv, b, 0, s.kv_heads, 0, s.keys));
    });
}

}  // namespace invar::cuda
