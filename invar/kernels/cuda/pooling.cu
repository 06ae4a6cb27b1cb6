// Pooling over windows of [batch, h, w, channels]. Backward gathers: each input position asks the windows that cover
// it, so that every gradient is written once, in a fixed order, whatever the overlap.
#include "invar/kernels/cuda/launch.h"
#include "invar/kernels/cuda/source.cuh"

namespace invar::cuda {
namespace {

using Range = PoolSpec::Range;

// A position and a pack of channels of a [batch, h, w, channels] tensor.
struct Place {
    std::int64_t batch, h, w, channel;
    __device__ Place(std::int64_t item, std::int64_t height, std::int64_t width, std::int64_t packs, int pack) {
        const Quotient c = divide(item, packs), x = divide(c.whole, width), y = divide(x.whole, height);
        batch = y.whole, h = y.rest, w = x.rest, channel = c.rest * pack;
    }
};

// The outputs whose windows hold input i; they are neighbours, for windows only move forward.
__device__ Range cover(std::int64_t i, std::int64_t in, std::int64_t out, std::int64_t k, std::int64_t stride,
                       std::int64_t pad, bool adaptive) {
    if (adaptive) return {divide(i * out, in).whole, divide((i + 1) * out + in - 1, in).whole};
    const std::int64_t low = i + pad - k + 1;
    const std::int64_t begin = low > 0 ? divide(low + stride - 1, stride).whole : 0;
    return {begin, smaller(out, divide(i + pad, stride).whole + 1)};
}
__device__ Range covering_rows(const PoolSpec& s, std::int64_t h) {
    return cover(h, s.in_h, s.out_h, s.k_h, s.stride_h, s.pad_h, s.adaptive);
}
__device__ Range covering_columns(const PoolSpec& s, std::int64_t w) {
    return cover(w, s.in_w, s.out_w, s.k_w, s.stride_w, s.pad_w, s.adaptive);
}

// Winners are moved 16 bytes at a time where packs are.
template <int kWidth>
__device__ void read_winners(const std::int32_t* from, std::int32_t* winners) {
    if constexpr (kWidth % 4 == 0) {
#pragma unroll
        for (int i = 0; i < kWidth / 4; ++i) {
            const int4 four = reinterpret_cast<const int4*>(from)[i];
            winners[4 * i] = four.x, winners[4 * i + 1] = four.y, winners[4 * i + 2] = four.z,
                        winners[4 * i + 3] = four.w;
        }
    } else {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) winners[i] = from[i];
    }
}

template <int kWidth>
__device__ void write_winners(const std::int32_t* winners, std::int32_t* to) {
    if constexpr (kWidth % 4 == 0) {
#pragma unroll
        for (int i = 0; i < kWidth / 4; ++i)
            reinterpret_cast<int4*>(to)[i] =
                make_int4(winners[4 * i], winners[4 * i + 1], winners[4 * i + 2], winners[4 * i + 3]);
    } else {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) to[i] = winners[i];
    }
}

template <class Source>
__global__ __launch_bounds__(kThreads) void max_forward(const PoolSpec s, const Source x, const Dense y,
                                                        std::int32_t* winners, const std::int64_t items) {
    using C = typename Source::C;
    constexpr int kWidth = Source::kWidth;
    for (std::int64_t item = global_thread(); item < items; item += grid_threads()) {
        const Place out(item, s.out_h, s.out_w, s.channels / kWidth, kWidth);
        const Range rows = s.rows(out.h), columns = s.columns(out.w);
        C best[kWidth] = {};
        std::int32_t winner[kWidth];
#pragma unroll
        for (int k = 0; k < kWidth; ++k) winner[k] = -1;
        for (std::int64_t h = rows.begin; h < rows.end; ++h)
            for (std::int64_t w = columns.begin; w < columns.end; ++w) {
                const std::int64_t position = h * s.in_w + w;
                typename Source::Raw raw;
                C v[kWidth];
                x.read((out.batch * s.in_h * s.in_w + position) * s.channels + out.channel, raw);
                Source::unpack(raw, v);
#pragma unroll
                for (int k = 0; k < kWidth; ++k) {
                    const bool take = winner[k] < 0 || v[k] > best[k] || v[k] != v[k];  // NaN is passed on
                    best[k] = take ? v[k] : best[k];
                    winner[k] = take ? std::int32_t(position) : winner[k];
                }
            }
        Source::store(best, y, item * kWidth);
        write_winners<kWidth>(winner, winners + item * kWidth);
    }
}

template <class Source>
__global__ __launch_bounds__(kThreads) void max_backward(const PoolSpec s, const Source gy, const std::int32_t* winners,
                                                         const Dense gx, const std::int64_t items) {
    using C = typename Source::C;
    constexpr int kWidth = Source::kWidth;
    for (std::int64_t item = global_thread(); item < items; item += grid_threads()) {
        const Place in(item, s.in_h, s.in_w, s.channels / kWidth, kWidth);
        const Range rows = covering_rows(s, in.h), columns = covering_columns(s, in.w);
        const std::int32_t position = std::int32_t(in.h * s.in_w + in.w);
        C sum[kWidth] = {};
        for (std::int64_t h = rows.begin; h < rows.end; ++h)
            for (std::int64_t w = columns.begin; w < columns.end; ++w) {
                const std::int64_t at = ((in.batch * s.out_h + h) * s.out_w + w) * s.channels + in.channel;
                typename Source::Raw raw;
                C g[kWidth];
                std::int32_t winner[kWidth];
                gy.read(at, raw);
                read_winners<kWidth>(winners + at, winner);
                Source::unpack(raw, g);
#pragma unroll
                for (int k = 0; k < kWidth; ++k) sum[k] += winner[k] == position ? g[k] : C(0);
            }
        Source::store(sum, gx, item * kWidth);
    }
}

template <class Source>
__global__ __launch_bounds__(kThreads) void average_forward(const PoolSpec s, const Source x, const Dense y,
                                                            const std::int64_t items) {
    using C = typename Source::C;
    constexpr int kWidth = Source::kWidth;
    for (std::int64_t item = global_thread(); item < items; item += grid_threads()) {
        const Place out(item, s.out_h, s.out_w, s.channels / kWidth, kWidth);
        const Range rows = s.rows(out.h), columns = s.columns(out.w);
        const C factor = C(1.0 / double(s.divisor(rows, columns)));
        C sum[kWidth] = {};
        for (std::int64_t h = rows.begin; h < rows.end; ++h) {
            C line[kWidth] = {};  // line by line, so that a plane's average adds few terms at a time
            for (std::int64_t w = columns.begin; w < columns.end; ++w) {
                typename Source::Raw raw;
                C v[kWidth];
                x.read(((out.batch * s.in_h + h) * s.in_w + w) * s.channels + out.channel, raw);
                Source::unpack(raw, v);
#pragma unroll
                for (int k = 0; k < kWidth; ++k) line[k] += v[k];
            }
#pragma unroll
            for (int k = 0; k < kWidth; ++k) sum[k] += line[k] * factor;
        }
        Source::store(sum, y, item * kWidth);
    }
}

template <class Source>
__global__ __launch_bounds__(kThreads) void average_backward(const PoolSpec s, const Source gy, const Dense gx,
                                                             const std::int64_t items) {
    using C = typename Source::C;
    constexpr int kWidth = Source::kWidth;
    const C fixed = s.adaptive ? C(0) : C(1.0 / double(s.k_h * s.k_w));
    for (std::int64_t item = global_thread(); item < items; item += grid_threads()) {
        const Place in(item, s.in_h, s.in_w, s.channels / kWidth, kWidth);
        const Range rows = covering_rows(s, in.h), columns = covering_columns(s, in.w);
        C sum[kWidth] = {};
        for (std::int64_t h = rows.begin; h < rows.end; ++h)
            for (std::int64_t w = columns.begin; w < columns.end; ++w) {
                const C factor = s.adaptive ? C(1.0 / double(s.divisor(s.rows(h), s.columns(w)))) : fixed;
                typename Source::Raw raw;
                C g[kWidth];
                gy.read(((in.batch * s.out_h + h) * s.out_w + w) * s.channels + in.channel, raw);
                Source::unpack(raw, g);
#pragma unroll
                for (int k = 0; k < kWidth; ++k) sum[k] += g[k] * factor;
            }
        Source::store(sum, gx, item * kWidth);
    }
}

std::int64_t inputs(const PoolSpec& s) {
    return s.batch * s.in_h * s.in_w * s.channels;
}
std::int64_t outputs(const PoolSpec& s) {
    return s.batch * s.out_h * s.out_w * s.channels;
}

}  // namespace

void max_pool(const PoolSpec& spec, const View& x, const View& y, const View& winners, cudaStream_t stream) {
    if (outputs(spec) == 0) return;
    with_source(spec.channels, {&x, &y}, {&winners}, [&](auto tag) {
        using Source = typename decltype(tag)::type;
        const std::int64_t items = outputs(spec) / Source::kWidth;
        max_forward<Source>
            <<<grid_for(items, kThreads), kThreads, 0, stream>>>(spec, Source(x), y, winners.as<std::int32_t>(), items);
    });
}

void max_pool_backward(const PoolSpec& spec, const View& gy, const View& winners, const View& gx, cudaStream_t stream) {
    if (inputs(spec) == 0) return;
    with_source(spec.channels, {&gy, &gx}, {&winners}, [&](auto tag) {
        using Source = typename decltype(tag)::type;
        const std::int64_t items = inputs(spec) / Source::kWidth;
        max_backward<Source><<<grid_for(items, kThreads), kThreads, 0, stream>>>(
            spec, Source(gy), winners.as<const std::int32_t>(), gx, items);
    });
}

void avg_pool(const PoolSpec& spec, const View& x, const View& y, cudaStream_t stream) {
    if (outputs(spec) == 0) return;
    with_source(spec.channels, {&x, &y}, {}, [&](auto tag) {
        using Source = typename decltype(tag)::type;
        const std::int64_t items = outputs(spec) / Source::kWidth;
        average_forward<Source><<<grid_for(items, kThreads), kThreads, 0, stream>>>(spec, Source(x), y, items);
    });
}

void avg_pool_backward(const PoolSpec& spec, const View& gy, const View& gx, cudaStream_t stream) {
    if (inputs(spec) == 0) return;
    with_source(spec.channels, {&gy, &gx}, {}, [&](auto tag) {
        using Source = typename decltype(tag)::type;
        const std::int64_t items = inputs(spec) / Source::kWidth;
        average_backward<Source><<<grid_for(items, kThreads), kThreads, 0, stream>>>(spec, Source(gy), gx, items);
    });
}

}  // namespace invar::cuda
