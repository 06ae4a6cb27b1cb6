// Pooling over windows of [batch, h, w, channels]. Backward gathers: each input position asks the windows that cover
// it, so that every gradient is written once, in a fixed order, whatever the overlap.
#include "invar/kernels/cuda/division.cuh"
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
    __device__ Place(int batch_, int h_, int w_, int channel_) : batch(batch_), h(h_), w(w_), channel(channel_) {}
};

// The same by divisions that cost little, for tensors of less than 2^31 packs: one thread has one of them.
struct Places {
    int height, width, packs, items;
    Division by_height, by_width, by_packs;
    Places(std::int64_t batch, std::int64_t height_, std::int64_t width_, std::int64_t packs_)
        : height(int(height_)),
          width(int(width_)),
          packs(int(packs_)),
          items(int(batch * height_ * width_ * packs_)),
          by_height(height_),
          by_width(width_),
          by_packs(packs_) {}
    static bool suit(std::int64_t batch, std::int64_t height, std::int64_t width, std::int64_t packs) {
        return batch * height * width * packs <= 0x7fffffff - kThreads;
    }
    unsigned blocks() const { return unsigned((items + kThreads - 1) / kThreads); }
    __device__ Place of(int item, int pack) const {
        const int pixel = by_packs.of(item), line = by_width.of(pixel), image = by_height.of(line);
        return {image, line - image * height, pixel - line * width, (item - pixel * packs) * pack};
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

// Winners of a pack are moved together, in units as large as they fill.
template <class W, int kWidth>
struct alignas(sizeof(W) * kWidth > 16 ? 16 : sizeof(W) * kWidth) Winners {
    W v[kWidth];
};

// Writes a pack of results. What ReLU stops has no winner, so that no gradient comes back; NaN is not stopped.
template <class Source, class W>
__device__ void finish(bool relu, typename Source::C* best, Winners<W, Source::kWidth>& winner, const Dense& y,
                       W* winners, std::int64_t item) {
    using C = typename Source::C;
    if (relu) {
#pragma unroll
        for (int k = 0; k < Source::kWidth; ++k) {
            winner.v[k] = best[k] <= C(0) ? PoolSpec::no_winner<W>() : winner.v[k];
            best[k] = best[k] < C(0) ? C(0) : best[k];
        }
    }
    Source::store(best, y, item * Source::kWidth);
    *reinterpret_cast<Winners<W, Source::kWidth>*>(winners + item * Source::kWidth) = winner;
}

template <class Source, class W>
__global__ __launch_bounds__(kThreads) void max_forward(const PoolSpec s, const Source x, const Dense y, W* winners,
                                                        const std::int64_t items) {
    using C = typename Source::C;
    constexpr int kWidth = Source::kWidth;
    constexpr Dtype kWinners = sizeof(W) == 1 ? Dtype::u8 : Dtype::i32;
    for (std::int64_t item = global_thread(); item < items; item += grid_threads()) {
        const Place out(item, s.out_h, s.out_w, s.channels / kWidth, kWidth);
        const Range rows = s.rows(out.h), columns = s.columns(out.w);
        C best[kWidth] = {};
        Winners<W, kWidth> winner = {};
        bool first = true;
        for (std::int64_t h = rows.begin; h < rows.end; ++h)
            for (std::int64_t w = columns.begin; w < columns.end; ++w) {
                const W code = W(s.winner(kWinners, out.h, out.w, h, w));
                typename Source::Raw raw;
                C v[kWidth];
                x.read(((out.batch * s.in_h + h) * s.in_w + w) * s.channels + out.channel, raw);
                Source::unpack(raw, v);
#pragma unroll
                for (int k = 0; k < kWidth; ++k) {
                    const bool take = first || v[k] > best[k] || v[k] != v[k];  // NaN is passed on
                    best[k] = take ? v[k] : best[k];
                    winner.v[k] = take ? code : winner.v[k];
                }
                first = false;
            }
        finish<Source>(s.relu, best, winner, y, winners, item);
    }
}

// Where a window of those that lie side by side begins.
__device__ inline std::int64_t corner_of(const PoolSpec& s, const Place& out, std::int64_t k_h, std::int64_t k_w) {
    return ((out.batch * s.in_h + out.h * k_h) * s.in_w + out.w * k_w) * s.channels + out.channel;
}

// The common case, windows of two by two side by side that cover the image: its four packs are fetched together.
template <class Source>
__global__ __launch_bounds__(kThreads) void max_of_four(const PoolSpec s, const Places places, const Source x,
                                                        const Dense y, std::uint8_t* winners) {
    using C = typename Source::C;
    constexpr int kWidth = Source::kWidth;
    const int item = int(global_thread());
    if (item >= places.items) return;
    const std::int64_t corner = corner_of(s, places.of(item, kWidth), 2, 2);
    typename Source::Raw raw[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) x.read(corner + (i / 2 * s.in_w + i % 2) * s.channels, raw[i]);
    C best[kWidth], v[kWidth];
    Winners<std::uint8_t, kWidth> winner = {};
    Source::unpack(raw[0], best);
#pragma unroll
    for (int i = 1; i < 4; ++i) {
        Source::unpack(raw[i], v);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) {
            const bool take = v[k] > best[k] || v[k] != v[k];
            best[k] = take ? v[k] : best[k];
            winner.v[k] = take ? std::uint8_t(i) : winner.v[k];
        }
    }
    finish<Source>(s.relu, best, winner, y, winners, item);
}

template <class Source, class W>
__global__ __launch_bounds__(kThreads) void max_backward(const PoolSpec s, const Source gy, const W* winners,
                                                         const Dense gx, const std::int64_t items) {
    using C = typename Source::C;
    constexpr int kWidth = Source::kWidth;
    constexpr Dtype kWinners = sizeof(W) == 1 ? Dtype::u8 : Dtype::i32;
    for (std::int64_t item = global_thread(); item < items; item += grid_threads()) {
        const Place in(item, s.in_h, s.in_w, s.channels / kWidth, kWidth);
        const Range rows = covering_rows(s, in.h), columns = covering_columns(s, in.w);
        C sum[kWidth] = {};
        for (std::int64_t h = rows.begin; h < rows.end; ++h)
            for (std::int64_t w = columns.begin; w < columns.end; ++w) {
                const std::int64_t at = ((in.batch * s.out_h + h) * s.out_w + w) * s.channels + in.channel;
                const W code = W(s.winner(kWinners, h, w, in.h, in.w));
                typename Source::Raw raw;
                C g[kWidth];
                gy.read(at, raw);
                const auto winner = *reinterpret_cast<const Winners<W, kWidth>*>(winners + at);
                Source::unpack(raw, g);
#pragma unroll
                for (int k = 0; k < kWidth; ++k) sum[k] += winner.v[k] == code ? g[k] : C(0);
            }
        Source::store(sum, gx, item * kWidth);
    }
}

// The common case, windows of three by three two apart: one thread does the two by two pixels around the middle of a
// window, which four windows hold in all.
template <class Source>
__global__ __launch_bounds__(kThreads) void max_backward_by_fours(const PoolSpec s, const Places places,
                                                                  const Source gy, const std::uint8_t* winners,
                                                                  const Dense gx) {
    using C = typename Source::C;
    constexpr int kWidth = Source::kWidth;
    const int item = int(global_thread());
    if (item >= places.items) return;
    const Place at_corner = places.of(item, kWidth);
    const int image = int(at_corner.batch), below = int(at_corner.h), right = int(at_corner.w),
              channel = int(at_corner.channel);
    typename Source::Raw raw[4];
    Winners<std::uint8_t, kWidth> winner[4];
    bool there[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // the windows above and left first
        const int h = below - 1 + i / 2, w = right - 1 + i % 2;
        there[i] = h >= 0 && w >= 0 && h < s.out_h && w < s.out_w;
        if (!there[i]) continue;
        const std::int64_t at = ((image * s.out_h + h) * s.out_w + w) * s.channels + channel;
        gy.read(at, raw[i]);
        winner[i] = *reinterpret_cast<const Winners<std::uint8_t, kWidth>*>(winners + at);
    }
    C sum[4][kWidth] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (!there[i]) continue;
        C g[kWidth];
        Source::unpack(raw[i], g);
#pragma unroll
        for (int pixel = 0; pixel < 4; ++pixel) {
            // Of the window's rows 0, 1, 2 the pixels are, from above, 2 and beyond; from below, 0 and 1. So for
            // columns.
            const int r = pixel / 2 + (i / 2 == 0 ? 2 : 0), c = pixel % 2 + (i % 2 == 0 ? 2 : 0);
            if (r > 2 || c > 2) continue;
#pragma unroll
            for (int k = 0; k < kWidth; ++k) sum[pixel][k] += winner[i].v[k] == r * 3 + c ? g[k] : C(0);
        }
    }
#pragma unroll
    for (int pixel = 0; pixel < 4; ++pixel) {
        const std::int64_t h = 2 * below - s.pad_h + pixel / 2, w = 2 * right - s.pad_w + pixel % 2;
        if (h >= 0 && w >= 0 && h < s.in_h && w < s.in_w)
            Source::store(sum[pixel], gx, ((image * s.in_h + h) * s.in_w + w) * s.channels + channel);
    }
}

// The common case, windows side by side that cover the image: each output writes its own window.
template <class Source, class W>
__global__ __launch_bounds__(kThreads) void spread_gradients(const PoolSpec s, const Places places, const Source gy,
                                                             const W* winners, const Dense gx) {
    using C = typename Source::C;
    constexpr int kWidth = Source::kWidth;
    const int item = int(global_thread());
    if (item >= places.items) return;
    typename Source::Raw raw;
    C g[kWidth], moved[kWidth];
    gy.read(std::int64_t(item) * kWidth, raw);
    const auto winner = *reinterpret_cast<const Winners<W, kWidth>*>(winners + std::int64_t(item) * kWidth);
    Source::unpack(raw, g);
    const std::int64_t corner = corner_of(s, places.of(item, kWidth), s.k_h, s.k_w);
    int code = 0;
    for (int h = 0; h < int(s.k_h); ++h)
        for (int w = 0; w < int(s.k_w); ++w, ++code) {
#pragma unroll
            for (int k = 0; k < kWidth; ++k) moved[k] = int(winner.v[k]) == code ? g[k] : C(0);
            Source::store(moved, gx, corner + (h * s.in_w + w) * s.channels);
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
        const C divisor = C(s.divisor(out.h, out.w));
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
            for (int k = 0; k < kWidth; ++k) sum[k] += line[k];
        }
#pragma unroll
        for (int k = 0; k < kWidth; ++k) sum[k] /= divisor;  // as in PyTorch: times 1 / divisor would be rounded twice
        Source::store(sum, y, item * kWidth);
    }
}

// The common case, windows of two by two side by side that cover the image: its four packs are fetched together.
template <class Source>
__global__ __launch_bounds__(kThreads) void average_of_four(const PoolSpec s, const Places places, const Source x,
                                                            const Dense y) {
    using C = typename Source::C;
    constexpr int kWidth = Source::kWidth;
    const int item = int(global_thread());
    if (item >= places.items) return;
    const std::int64_t corner = corner_of(s, places.of(item, kWidth), 2, 2);
    typename Source::Raw raw[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) x.read(corner + (i / 2 * s.in_w + i % 2) * s.channels, raw[i]);
    C sum[kWidth], v[4][kWidth];
#pragma unroll
    for (int i = 0; i < 4; ++i) Source::unpack(raw[i], v[i]);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) sum[k] = ((v[0][k] + v[1][k]) + (v[2][k] + v[3][k])) / C(4);
    Source::store(sum, y, std::int64_t(item) * kWidth);
}

// Up to four of the windows that hold a pixel are fetched at once. Where all averages divide by the same, the sum does.
template <class Source>
__global__ __launch_bounds__(kThreads) void average_backward(const PoolSpec s, const Source gy, const Dense gx,
                                                             const std::int64_t items) {
    using C = typename Source::C;
    constexpr int kWidth = Source::kWidth;
    const bool alike = s.divides_by_window();
    const C window = C(s.k_h * s.k_w);
    for (std::int64_t item = global_thread(); item < items; item += grid_threads()) {
        const Place in(item, s.in_h, s.in_w, s.channels / kWidth, kWidth);
        const Range rows = covering_rows(s, in.h), columns = covering_columns(s, in.w);
        C sum[kWidth] = {};
        for (std::int64_t top = rows.begin; top < rows.end; top += 2)
            for (std::int64_t left = columns.begin; left < columns.end; left += 2) {
                typename Source::Raw raw[4];
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const std::int64_t h = top + i / 2, w = left + i % 2;
                    if (h < rows.end && w < columns.end)
                        gy.read(((in.batch * s.out_h + h) * s.out_w + w) * s.channels + in.channel, raw[i]);
                }
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const std::int64_t h = top + i / 2, w = left + i % 2;
                    if (h >= rows.end || w >= columns.end) continue;
                    C g[kWidth];
                    Source::unpack(raw[i], g);
                    const C divisor = alike ? C(1) : C(s.divisor(h, w));
#pragma unroll
                    for (int k = 0; k < kWidth; ++k) sum[k] += alike ? g[k] : g[k] / divisor;
                }
            }
        if (alike) {
#pragma unroll
            for (int k = 0; k < kWidth; ++k) sum[k] /= window;
        }
        Source::store(sum, gx, item * kWidth);
    }
}

// The common case, windows side by side that cover the image: each output writes its own window.
template <class Source>
__global__ __launch_bounds__(kThreads) void spread_average(const PoolSpec s, const Places places, const Source gy,
                                                           const Dense gx) {
    using C = typename Source::C;
    constexpr int kWidth = Source::kWidth;
    const int item = int(global_thread());
    if (item >= places.items) return;
    const C window = C(s.k_h * s.k_w);
    typename Source::Raw raw;
    C g[kWidth];
    gy.read(std::int64_t(item) * kWidth, raw);
    Source::unpack(raw, g);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) g[k] /= window;
    const std::int64_t corner = corner_of(s, places.of(item, kWidth), s.k_h, s.k_w);
    for (int h = 0; h < int(s.k_h); ++h)
        for (int w = 0; w < int(s.k_w); ++w) Source::store(g, gx, corner + (h * s.in_w + w) * s.channels);
}

std::int64_t inputs(const PoolSpec& s) {
    return s.batch * s.in_h * s.in_w * s.channels;
}
std::int64_t outputs(const PoolSpec& s) {
    return s.batch * s.out_h * s.out_w * s.channels;
}

// Whether the windows lie side by side and leave nothing out.
bool tiles(const PoolSpec& s) {
    const bool side_by_side = s.stride_h == s.k_h && s.stride_w == s.k_w && s.pad_h == 0 && s.pad_w == 0;
    return !s.adaptive && side_by_side && s.out_h * s.k_h == s.in_h && s.out_w * s.k_w == s.in_w;
}

// Whether they are of two by two.
bool halves(const PoolSpec& s) {
    return tiles(s) && s.k_h == 2 && s.k_w == 2;
}

// Whether windows of three by three lie two apart and end where the image does.
bool two_apart(const PoolSpec& s) {
    const bool sizes = s.k_h == 3 && s.k_w == 3 && s.stride_h == 2 && s.stride_w == 2 && !s.adaptive;
    return sizes && 2 * s.out_h + 2 >= s.in_h + s.pad_h && 2 * s.out_w + 2 >= s.in_w + s.pad_w;
}

// Calls f with the winners by their type.
template <class F>
void with_winners(const View& winners, const F& f) {
    if (winners.dtype == Dtype::u8)
        f(winners.as<std::uint8_t>());
    else
        f(winners.as<std::int32_t>());
}
}  // namespace

void CudaKernels::max_pool(const PoolSpec& spec, const View& x, const View& y, const View& winners) {
    const Launch stream("max_pool");
    if (outputs(spec) == 0) return;
    with_source(spec.channels, {&x, &y}, {&winners}, [&](auto tag) {
        using Source = typename decltype(tag)::type;
        const std::int64_t items = outputs(spec) / Source::kWidth, packs = spec.channels / Source::kWidth;
        if (winners.dtype == Dtype::u8 && halves(spec) && Places::suit(spec.batch, spec.out_h, spec.out_w, packs)) {
            const Places places(spec.batch, spec.out_h, spec.out_w, packs);
            max_of_four<<<places.blocks(), kThreads, 0, stream>>>(spec, places, Source(x), Dense(y),
                                                                  winners.as<std::uint8_t>());
            return;
        }
        with_winners(winners, [&](auto* places) {
            max_forward<<<grid_for(items, kThreads), kThreads, 0, stream>>>(spec, Source(x), Dense(y), places, items);
        });
    });
}

void CudaKernels::max_pool_backward(const PoolSpec& spec, const View& gy, const View& winners, const View& gx) {
    const Launch stream("max_pool_backward");
    if (inputs(spec) == 0) return;
    with_source(spec.channels, {&gy, &gx}, {&winners}, [&](auto tag) {
        using Source = typename decltype(tag)::type;
        const std::int64_t items = inputs(spec) / Source::kWidth, packs = spec.channels / Source::kWidth;
        const bool small = winners.dtype == Dtype::u8;
        if (small && two_apart(spec) && Places::suit(spec.batch, spec.out_h + 1, spec.out_w + 1, packs)) {
            const Places corners(spec.batch, spec.out_h + 1, spec.out_w + 1, packs);
            max_backward_by_fours<<<corners.blocks(), kThreads, 0, stream>>>(
                spec, corners, Source(gy), winners.as<const std::uint8_t>(), Dense(gx));
        } else if (small && tiles(spec) && Places::suit(spec.batch, spec.out_h, spec.out_w, packs)) {
            const Places windows(spec.batch, spec.out_h, spec.out_w, packs);
            spread_gradients<<<windows.blocks(), kThreads, 0, stream>>>(spec, windows, Source(gy),
                                                                        winners.as<const std::uint8_t>(), Dense(gx));
        } else {
            with_winners(winners, [&](const auto* codes) {
                max_backward<<<grid_for(items, kThreads), kThreads, 0, stream>>>(spec, Source(gy), codes, Dense(gx),
                                                                                 items);
            });
        }
    });
}

void CudaKernels::avg_pool(const PoolSpec& spec, const View& x, const View& y) {
    const Launch stream("avg_pool");
    if (outputs(spec) == 0) return;
    with_source(spec.channels, {&x, &y}, {}, [&](auto tag) {
        using Source = typename decltype(tag)::type;
        const std::int64_t items = outputs(spec) / Source::kWidth, packs = spec.channels / Source::kWidth;
        if (halves(spec) && Places::suit(spec.batch, spec.out_h, spec.out_w, packs)) {
            const Places places(spec.batch, spec.out_h, spec.out_w, packs);
            average_of_four<<<places.blocks(), kThreads, 0, stream>>>(spec, places, Source(x), Dense(y));
        } else {
            average_forward<<<grid_for(items, kThreads), kThreads, 0, stream>>>(spec, Source(x), Dense(y), items);
        }
    });
}

void CudaKernels::avg_pool_backward(const PoolSpec& spec, const View& gy, const View& gx) {
    const Launch stream("avg_pool_backward");
    if (inputs(spec) == 0) return;
    with_source(spec.channels, {&gy, &gx}, {}, [&](auto tag) {
        using Source = typename decltype(tag)::type;
        const std::int64_t items = inputs(spec) / Source::kWidth, packs = spec.channels / Source::kWidth;
        if (tiles(spec) && Places::suit(spec.batch, spec.out_h, spec.out_w, packs)) {
            const Places windows(spec.batch, spec.out_h, spec.out_w, packs);
            spread_average<<<windows.blocks(), kThreads, 0, stream>>>(spec, windows, Source(gy), Dense(gx));
        } else {
            average_backward<<<grid_for(items, kThreads), kThreads, 0, stream>>>(spec, Source(gy), Dense(gx), items);
        }
    });
}

}  // namespace invar::cuda
