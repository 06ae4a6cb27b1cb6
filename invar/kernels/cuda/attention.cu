// The pass over a block of attention's weights, a thread block to a row of them.
#include "invar/kernels/cuda/attention.cuh"
#include "invar/kernels/cuda/launch.h"
#include "invar/kernels/cuda/source.cuh"

namespace invar::cuda {
namespace {

constexpr int kRowThreads = 128;

struct Rows {
    AttentionRule rule;
    WeightDrop drop;
    double scale;
    std::int64_t sample, first, rows, keys;  // of the block; a thread block's sample is this one and `blockIdx.z`
    std::int64_t kept_half;                  // from the largest scores of all rows to their sums

    Rows(const AttentionSpec& spec, const WeightsBlock& block)
        : rule(spec),
          drop(spec),
          scale(spec.scale),
          sample(block.sample),
          first(block.first),
          rows(block.rows),
          keys(block.keys),
          kept_half(spec.batch * spec.heads * spec.queries) {}
    // Whether this query sees no key; scores that are -inf themselves are no reason to give zeros.
    template <int kGroup>
    __device__ bool blind(std::int64_t b, std::int64_t q) const {
        if (!rule.may_blind()) return false;
        float any = 0;
        for (std::int64_t k = threadIdx.x; k < keys; k += kGroup) any = rule.sees(b, q, k) ? 1.0f : any;
        return reduce<kGroup>(any, Larger{}) == 0.0f;
    }
    template <class C>
    __device__ C score(const C* scores, std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t k) const {
        return rule.sees(b, q, k) ? scores[k] * C(scale) + rule.added<C>(b, h, q, k) : C(-INFINITY);
    }
};

template <class C>
__device__ inline C e_to(C x) {
    if constexpr (std::is_same_v<C, double>)
        return exp(x);
    else
        return expf(x);
}

template <class C>
__global__ __launch_bounds__(kRowThreads) void weights_rows(const Rows r, const C* scores, const Dense weights,
                                                            C* kept) {
    const std::int64_t b = r.sample + blockIdx.z, h = blockIdx.y, row = blockIdx.x, q = r.first + row;
    const std::int64_t at = ((std::int64_t(blockIdx.z) * r.rule.heads + h) * r.rows + row) * r.keys;
    const C* const line = scores + at;
    const bool blind = r.blind<kRowThreads>(b, q);
    C top = C(-INFINITY);
    for (std::int64_t k = threadIdx.x; k < r.keys; k += kRowThreads) top = Larger{}(top, r.score(line, b, h, q, k));
    top = reduce<kRowThreads>(top, Larger{});
    double sum = 0;
    if (!blind)
        for (std::int64_t k = threadIdx.x; k < r.keys; k += kRowThreads)
            sum += double(e_to(r.score(line, b, h, q, k) - top));
    sum = reduce<kRowThreads>(sum, Add{});
    if (threadIdx.x == 0) {
        C* const place = kept + (b * r.rule.heads + h) * r.rule.queries + q;
        place[0] = blind ? C(0) : top, place[r.kept_half] = blind ? C(-1) : C(sum);
    }
    const C factor = C(1.0 / sum);
    const RngState rng = r.drop.sequence();
    for (std::int64_t k = threadIdx.x; k < r.keys; k += kRowThreads) {
        C weight = C(0);
        if (!blind) weight = e_to(r.score(line, b, h, q, k) - top) * factor;
        if (r.drop.on) weight *= C(kept_share(r.drop.rule, rng, r.rule.place(b, h, q, k)));
        weights.put<C>(at + k, weight);
    }
}

template <class C>
__global__ __launch_bounds__(kRowThreads) void gradient_rows(const Rows r, const C* scores, const C* gradients,
                                                             const C* kept, const Dense weights, const Dense out) {
    const std::int64_t b = r.sample + blockIdx.z, h = blockIdx.y, row = blockIdx.x, q = r.first + row;
    const std::int64_t at = ((std::int64_t(blockIdx.z) * r.rule.heads + h) * r.rows + row) * r.keys;
    const C *const line = scores + at, *const g = gradients + at;
    const C* const place = kept + (b * r.rule.heads + h) * r.rule.queries + q;
    // cuDNN keeps the logarithm of the sum of exponentials in place of the largest score, and no sum.
    const C top = place[0], sum_kept = place[r.kept_half], factor = sum_kept == C(0) ? C(1) : C(1.0 / double(sum_kept));
    const bool blind = sum_kept < C(0);
    const RngState rng = r.drop.sequence();
    const auto weight = [&](std::int64_t k) { return blind ? C(0) : e_to(r.score(line, b, h, q, k) - top) * factor; };
    const auto share = [&](std::int64_t k) {
        return r.drop.on ? C(kept_share(r.drop.rule, rng, r.rule.place(b, h, q, k))) : C(1);
    };
    double sum = 0;
    for (std::int64_t k = threadIdx.x; k < r.keys; k += kRowThreads) sum += double(weight(k) * g[k] * share(k));
    const C mean = C(reduce<kRowThreads>(sum, Add{}));
    for (std::int64_t k = threadIdx.x; k < r.keys; k += kRowThreads) {
        const C w = weight(k), left = share(k);
        out.put<C>(at + k, blind ? C(0) : w * (g[k] * left - mean) * C(r.scale));
        weights.put<C>(at + k, w * left);
    }
}

// A thread to a row; the logarithms of the rows' sums lie in the first half of `kept`.
__global__ __launch_bounds__(kThreads) void show_nonfinite(const View y, float* const kept, const std::int64_t rows) {
    const std::int64_t at = global_thread();
    if (at >= rows) return;
    kept[rows + at] = 0.0f;
    if (isfinite(kept[at])) return;
    kept[at] = NAN;
    const Quotient by_query = divide(at, y.size[2]), by_head = divide(by_query.whole, y.size[1]);
    auto* const row = static_cast<std::uint16_t*>(y.data) + by_head.whole * y.stride[0] + by_head.rest * y.stride[1] +
                      by_query.rest * y.stride[2];
    for (std::int64_t i = 0; i < y.size[3]; ++i) row[i] = 0x7fff;  // NaN in both formats of 16 bits
}

}  // namespace

void show_nonfinite_rows(const AttentionSpec& spec, const View& y, const View& kept) {
    const std::int64_t rows = spec.batch * spec.heads * spec.queries;
    const Launch stream("attention");
    show_nonfinite<<<grid_for(rows, kThreads), kThreads, 0, stream>>>(y, kept.as<float>(), rows);
}

void attention_weights(const AttentionSpec& spec, const WeightsBlock& block, const View& weights, const View& kept) {
    const Launch stream("attention");
    const dim3 grid(unsigned(block.rows), unsigned(spec.heads), unsigned(block.samples));
    const Rows rows(spec, block);
    if (block.scores.dtype == Dtype::f64)
        weights_rows<double>
            <<<grid, kRowThreads, 0, stream>>>(rows, block.scores.as<double>(), weights, kept.as<double>());
    else
        weights_rows<float>
            <<<grid, kRowThreads, 0, stream>>>(rows, block.scores.as<float>(), weights, kept.as<float>());
}

void attention_weights_backward(const AttentionSpec& spec, const WeightsBlock& block, const View& gradients,
                                const View& kept, const View& weights, const View& score_gradients) {
    const Launch stream("attention_backward");
    const dim3 grid(unsigned(block.rows), unsigned(spec.heads), unsigned(block.samples));
    const Rows rows(spec, block);
    if (block.scores.dtype == Dtype::f64)
        gradient_rows<double><<<grid, kRowThreads, 0, stream>>>(rows, block.scores.as<double>(), gradients.as<double>(),
                                                                kept.as<double>(), weights, score_gradients);
    else
        gradient_rows<float><<<grid, kRowThreads, 0, stream>>>(rows, block.scores.as<float>(), gradients.as<float>(),
                                                               kept.as<float>(), weights, score_gradients);
}

}  // namespace invar::cuda
