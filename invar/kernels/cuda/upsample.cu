// Upsampling of [batch, h, w, channels], nearest or bilinear. Backward gathers: each input position collects from the
// outputs that read it, so that every gradient is written once and in a fixed order.
#include "invar/kernels/cuda/launch.h"
#include "invar/kernels/cuda/source.cuh"

namespace invar::cuda {
namespace {

using Tap = UpsampleSpec::Tap;

// A tap as at most two places with their weights; what is not read is not touched, not even multiplied by zero.
struct Places {
    std::int64_t at[2];
    double weight[2];
    int count;
    __device__ explicit Places(const Tap& t)
        : at{t.first, t.second}, weight{1.0 - t.weight, t.weight}, count(t.first == t.second || t.weight == 0 ? 1 : 2) {
        if (count == 1) weight[0] = 1.0;
    }
    // How much of input i this output takes.
    __device__ double share(std::int64_t i) const {
        return (at[0] == i ? weight[0] : 0.0) + (count == 2 && at[1] == i ? weight[1] : 0.0);
    }
};

struct Span {
    std::int64_t begin, end;
};

// The outputs that may read input i; the taps themselves decide. Taps only move forward, so that these are neighbours.
__device__ Span readers(const UpsampleSpec& s, std::int64_t i, std::int64_t in, std::int64_t out) {
    if (!s.bilinear && s.given_step == 0)
        return {divide(i * out + in - 1, in).whole, divide((i + 1) * out + in - 1, in).whole};
    double low, high;
    if (!s.bilinear) {
        low = double(i) / s.given_step, high = double(i + 1) / s.given_step;
    } else if (s.align_corners) {
        if (in == 1 || out == 1) return {0, out};
        const double step = double(out - 1) / double(in - 1);
        low = double(i - 1) * step, high = double(i + 1) * step;
    } else {
        const double step = s.given_step > 0 ? 1.0 / s.given_step : double(out) / double(in);
        low = (double(i) - 0.5) * step - 0.5, high = (double(i) + 1.5) * step - 0.5;
    }
    const std::int64_t begin = std::int64_t(floor(low)) - 1, end = std::int64_t(ceil(high)) + 2;
    return {i == 0 || begin < 0 ? 0 : begin, i == in - 1 || end > out ? out : end};
}

template <class Source>
__global__ __launch_bounds__(kThreads) void forward(const UpsampleSpec s, const Source x, const Dense y,
                                                    const std::int64_t items) {
    using C = typename Source::C;
    constexpr int kWidth = Source::kWidth;
    for (std::int64_t item = global_thread(); item < items; item += grid_threads()) {
        const Quotient c = divide(item, s.channels / kWidth), column = divide(c.whole, s.out_w),
                       row = divide(column.whole, s.out_h);
        const Places rows(s.row(row.rest)), columns(s.column(column.rest));
        C sum[kWidth] = {};
        for (int i = 0; i < rows.count; ++i)
            for (int j = 0; j < columns.count; ++j) {
                typename Source::Raw raw;
                C v[kWidth];
                x.read(((row.whole * s.in_h + rows.at[i]) * s.in_w + columns.at[j]) * s.channels + c.rest * kWidth,
                       raw);
                Source::unpack(raw, v);
                const C factor = C(rows.weight[i] * columns.weight[j]);
#pragma unroll
                for (int k = 0; k < kWidth; ++k) sum[k] += v[k] * factor;
            }
        Source::store(sum, y, item * kWidth);
    }
}

template <class Source>
__global__ __launch_bounds__(kThreads) void backward(const UpsampleSpec s, const Source gy, const Dense gx,
                                                     const std::int64_t items) {
    using C = typename Source::C;
    constexpr int kWidth = Source::kWidth;
    for (std::int64_t item = global_thread(); item < items; item += grid_threads()) {
        const Quotient c = divide(item, s.channels / kWidth), column = divide(c.whole, s.in_w),
                       row = divide(column.whole, s.in_h);
        const Span rows = readers(s, row.rest, s.in_h, s.out_h), columns = readers(s, column.rest, s.in_w, s.out_w);
        C sum[kWidth] = {};
        for (std::int64_t h = rows.begin; h < rows.end; ++h) {
            const double down = Places(s.row(h)).share(row.rest);
            if (down == 0) continue;
            for (std::int64_t w = columns.begin; w < columns.end; ++w) {
                const double across = Places(s.column(w)).share(column.rest);
                if (across == 0) continue;
                typename Source::Raw raw;
                C g[kWidth];
                gy.read(((row.whole * s.out_h + h) * s.out_w + w) * s.channels + c.rest * kWidth, raw);
                Source::unpack(raw, g);
                const C factor = C(down * across);
#pragma unroll
                for (int k = 0; k < kWidth; ++k) sum[k] += g[k] * factor;
            }
        }
        Source::store(sum, gx, item * kWidth);
    }
}

}  // namespace

void CudaKernels::upsample(const UpsampleSpec& spec, const View& x, const View& y) {
    const Launch stream("upsample");
    const std::int64_t outputs = spec.batch * spec.out_h * spec.out_w * spec.channels;
    if (outputs == 0) return;
    with_source(spec.channels, {&x, &y}, {}, [&](auto tag) {
        using Source = typename decltype(tag)::type;
        const std::int64_t items = outputs / Source::kWidth;
        forward<Source><<<grid_for(items, kThreads), kThreads, 0, stream>>>(spec, Source(x), y, items);
    });
}

void CudaKernels::upsample_backward(const UpsampleSpec& spec, const View& gy, const View& gx) {
    const Launch stream("upsample_backward");
    const std::int64_t inputs = spec.batch * spec.in_h * spec.in_w * spec.channels;
    if (inputs == 0) return;
    with_source(spec.channels, {&gy, &gx}, {}, [&](auto tag) {
        using Source = typename decltype(tag)::type;
        const std::int64_t items = inputs / Source::kWidth;
        backward<Source><<<grid_for(items, kThreads), kThreads, 0, stream>>>(spec, Source(gy), gx, items);
    });
}

}  // namespace invar::cuda
