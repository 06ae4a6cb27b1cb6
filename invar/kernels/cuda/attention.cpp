#include "invar/kernels/cuda/attention.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "invar/kernels/cuda/device.h"
#include "invar/kernels/cuda/kernels.h"

namespace invar::cuda {

namespace {

// Of a tensor [batch, heads, length, width]: the samples of a block, positions from `first` on.
View part(const View& x, const WeightsBlock& block, std::int64_t first, std::int64_t length) {
    View v = x;
    const std::int64_t at = block.sample * x.stride[0] + first * x.stride[2];
    v.data = static_cast<char*>(x.data) + at * std::int64_t(size_of(x.dtype));
    v.size[0] = block.samples, v.size[2] = length;
    return v;
}

View dense(void* data, Dtype dtype, std::initializer_list<std::int64_t> sizes) {
    View v;
    v.data = data, v.dtype = dtype, v.rank = int(sizes.size());
    std::copy(sizes.begin(), sizes.end(), v.size);
    std::int64_t stride = 1;
    for (int d = v.rank - 1; d >= 0; --d) v.stride[d] = stride, stride *= v.size[d];
    return v;
}

View turned(View x) {
    std::swap(x.size[1], x.size[2]);
    std::swap(x.stride[1], x.stride[2]);
    return x;
}

View first_rows(View x, std::int64_t count) {
    x.size[1] = count;
    return x;
}

// A batch of matrices in scratch memory, one for each key's head of the samples of a block. Queries' heads that share
// one lie below each other in it, so that one product serves them all, and sums over them where it must.
class Matrices {
  public:
    Matrices(const AttentionSpec& spec, const AttentionBlocks& blocks, Dtype dtype, std::int64_t heads,
             std::int64_t length, std::int64_t width)
        : memory_(std::size_t(blocks.samples * heads * length * width) * size_of(dtype)),
          dtype_(dtype),
          heads_(heads),
          kv_heads_(spec.kv_heads),
          width_(width) {}

    View as_tensor(const WeightsBlock& block, std::int64_t length) const {
        return dense(memory_.data(), dtype_, {block.samples, heads_, length, width_});
    }
    View of(const WeightsBlock& block, std::int64_t length) const { return of(block, length, width_); }
    View of(const WeightsBlock& block, std::int64_t length, std::int64_t width) const {
        return dense(memory_.data(), dtype_, {block.samples * kv_heads_, heads_ / kv_heads_ * length, width});
    }

  private:
    Scratch memory_;
    Dtype dtype_;
    std::int64_t heads_, kv_heads_, width_;
};

// f(the block without its scores)
template <class F>
void each_block(const AttentionSpec& s, const AttentionBlocks& blocks, const F& f) {
    for (std::int64_t b = 0; b < s.batch; b += blocks.samples)
        for (std::int64_t first = 0; first < s.queries; first += blocks.rows) {
            const std::int64_t rows = std::min(blocks.rows, s.queries - first);
            f(WeightsBlock{b, std::min(blocks.samples, s.batch - b), first, rows, s.keys_before(first + rows), {}});
        }
}

Dtype wide_of(Dtype dtype) { return dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32; }

}  // namespace

void CudaKernels::attention(const AttentionSpec& s, const View& q, const View& k, const View& v, const View& y,
                            const View& kept) {
    if (s.batch * s.heads * s.queries == 0) return;
    const AttentionTensors tensors{q, k, v, y, kept, {}, {}, {}, {}};
    if (fused_attention(s, tensors) || flash_attention(s, tensors)) return;
    const Dtype wide = wide_of(q.dtype);
    const AttentionBlocks blocks(s, wide);
    const Matrices queries(s, blocks, q.dtype, s.heads, blocks.rows, s.width);
    const Matrices keys(s, blocks, q.dtype, s.kv_heads, s.keys, s.width);
    const Matrices values(s, blocks, q.dtype, s.kv_heads, s.keys, s.value_width);
    const Matrices results(s, blocks, q.dtype, s.heads, blocks.rows, s.value_width);
    const Matrices scores(s, blocks, wide, s.heads, blocks.rows, s.keys);
    const Matrices weights(s, blocks, q.dtype, q.dtype == wide ? 0 : s.heads, blocks.rows, s.keys);
    each_block(s, blocks, [&](WeightsBlock block) {
        const std::int64_t rows = block.rows, n = block.keys;
        copy(part(q, block, block.first, rows), queries.as_tensor(block, rows));
        if (block.first == 0) {
            copy(part(k, block, 0, s.keys), keys.as_tensor(block, s.keys));
            copy(part(v, block, 0, s.keys), values.as_tensor(block, s.keys));
        }
        block.scores = scores.of(block, rows, n);
        const View p = q.dtype == wide ? block.scores : weights.of(block, rows, n);
        matmul(queries.of(block, rows), turned(first_rows(keys.of(block, s.keys), n)), {}, block.scores, false);
        attention_weights(s, block, p, kept);
        matmul(p, first_rows(values.of(block, s.keys), n), {}, results.of(block, rows), false);
        copy(results.as_tensor(block, rows), part(y, block, block.first, rows));
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
    const Dtype wide = wide_of(q.dtype);
    const bool narrow = q.dtype != wide;
    const AttentionBlocks blocks(s, wide);
    const Matrices queries(s, blocks, q.dtype, s.heads, blocks.rows, s.width);
    const Matrices query_gradients(s, blocks, q.dtype, s.heads, blocks.rows, s.width);
    const Matrices result_gradients(s, blocks, q.dtype, s.heads, blocks.rows, s.value_width);
    const Matrices keys(s, blocks, q.dtype, s.kv_heads, s.keys, s.width);
    const Matrices values(s, blocks, q.dtype, s.kv_heads, s.keys, s.value_width);
    // Sums over blocks stay wide until the end.
    const Matrices key_gradients(s, blocks, wide, s.kv_heads, s.keys, s.width);
    const Matrices value_gradients(s, blocks, wide, s.kv_heads, s.keys, s.value_width);
    const Matrices scores(s, blocks, wide, s.heads, blocks.rows, s.keys);
    const Matrices gradients(s, blocks, wide, s.heads, blocks.rows, s.keys);
    const Matrices weights(s, blocks, q.dtype, narrow ? s.heads : 0, blocks.rows, s.keys);
    const Matrices score_gradients(s, blocks, q.dtype, narrow ? s.heads : 0, blocks.rows, s.keys);
    each_block(s, blocks, [&](WeightsBlock block) {
        const std::int64_t rows = block.rows, n = block.keys;
        copy(part(q, block, block.first, rows), queries.as_tensor(block, rows));
        copy(part(gy, block, block.first, rows), result_gradients.as_tensor(block, rows));
        if (block.first == 0) {
            copy(part(k, block, 0, s.keys), keys.as_tensor(block, s.keys));
            copy(part(v, block, 0, s.keys), values.as_tensor(block, s.keys));
            fill(key_gradients.of(block, s.keys), 0);
            fill(value_gradients.of(block, s.keys), 0);
        }
        block.scores = scores.of(block, rows, n);
        const View g = gradients.of(block, rows, n);
        const View p = narrow ? weights.of(block, rows, n) : block.scores;
        const View gs = narrow ? score_gradients.of(block, rows, n) : g;
        const View these_q = queries.of(block, rows), these_gy = result_gradients.of(block, rows);
        const View these_k = first_rows(keys.of(block, s.keys), n), these_v = first_rows(values.of(block, s.keys), n);
        matmul(these_q, turned(these_k), {}, block.scores, false);
        matmul(these_gy, turned(these_v), {}, g, false);
        attention_weights_backward(s, block, g, kept, p, gs);
        matmul(turned(p), these_gy, {}, first_rows(value_gradients.of(block, s.keys), n), true);
        matmul(turned(gs), these_q, {}, first_rows(key_gradients.of(block, s.keys), n), true);
        matmul(gs, these_k, {}, query_gradients.of(block, rows), false);
        copy(query_gradients.as_tensor(block, rows), part(gq, block, block.first, rows));
        if (block.first + rows < s.queries) return;
        copy(key_gradients.as_tensor(block, s.keys), part(gk, block, 0, s.keys));
        copy(value_gradients.as_tensor(block, s.keys), part(gv, block, 0, s.keys));
    });
}

}  // namespace invar::cuda
