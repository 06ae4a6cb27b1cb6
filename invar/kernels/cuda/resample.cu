// Images [batch, h, w, channels] in another size, or padded by themselves. Backward gathers: each input position
// collects from the outputs that read it, so that every gradient is written once and in a fixed order.
#include "invar/kernels/cuda/launch.h"
#include "invar/kernels/cuda/source.cuh"

namespace invar::cuda {
namespace {

using Taps = ResampleSpec::Taps;

// How much of input i an output takes.
template <int kTaps>
__device__ double share(const Taps& taps, std::int64_t i) {
    double total = 0;
#pragma unroll
    for (int k = 0; k < kTaps; ++k) total += taps.at[k] == i ? taps.weight[k] : 0.0;
    return total;
}

struct Span {
    std::int64_t begin, end;
};
// The outputs that may read an input, in up to three spans; the taps themselves decide.
struct Readers {
    static constexpr int kMost = 3;
    Span spans[kMost];
};

// Taps of interpolation only move forward, so that the outputs are neighbours.
__device__ Span interpolating(const ResampleSpec& s, std::int64_t i, std::int64_t in, std::int64_t out, double given) {
    if (s.mode == Sampling::nearest && given == 0)
        return {divide(i * out + in - 1, in).whole, divide((i + 1) * out + in - 1, in).whole};
    const double step = given > 0 ? 1.0 / given : double(out) / double(in);
    double low, high;
    if (s.taps() == 1) {
        low = double(i) * step - 1, high = double(i + 1) * step;
    } else if (s.align_corners) {
        if (in == 1 || out == 1) return {0, out};
        const double apart = double(out - 1) / double(in - 1), reach = s.taps() / 2;
        low = (double(i) - reach) * apart, high = (double(i) + reach) * apart;
    } else {
        const double reach = s.taps() / 2;
        low = (double(i) + 0.5 - reach) * step - 0.5, high = (double(i) + 0.5 + reach) * step - 0.5;
    }
    const std::int64_t begin = std::int64_t(floor(low)) - 1, end = std::int64_t(ceil(high)) + 2;
    return {i == 0 || begin < 0 ? 0 : begin, i == in - 1 || end > out ? out : end};
}

__device__ Readers readers(const ResampleSpec& s, std::int64_t i, std::int64_t in, std::int64_t out, double given,
                           std::int64_t before) {
    if (!s.pads()) return {{interpolating(s, i, in, out, given), {0, 0}, {0, 0}}};
    const std::int64_t own = before + i;
    if (s.mode == Sampling::replicate) return {{{i == 0 ? 0 : own, i == in - 1 ? out : own + 1}, {0, 0}, {0, 0}}};
    const auto one = [&](std::int64_t at) { return at >= 0 && at < out ? Span{at, at + 1} : Span{0, 0}; };
    if (s.mode == Sampling::circular) return {{one(own - in), one(own), one(own + in)}};
    const Span none{0, 0};
    return {{i > 0 ? one(before - i) : none, one(own), i < in - 1 ? one(before + 2 * (in - 1) - i) : none}};
}

template <class Source, int kTaps>
__global__ __launch_bounds__(kThreads) void forward(const ResampleSpec s, const Source x, const Dense y,
                                                    const std::int64_t items) {
    using C = typename Source::C;
    constexpr int kWidth = Source::kWidth;
    for (std::int64_t item = global_thread(); item < items; item += grid_threads()) {
        const Quotient c = divide(item, s.channels / kWidth), column = divide(c.whole, s.out_w),
                       row = divide(column.whole, s.out_h);
        const Taps rows = s.row(row.rest), columns = s.column(column.rest);
        C sum[kWidth] = {};
#pragma unroll
        for (int i = 0; i < kTaps; ++i) {
            if (rows.weight[i] == 0) continue;
#pragma unroll
            for (int j = 0; j < kTaps; ++j) {
                if (columns.weight[j] == 0) continue;
                typename Source::Raw raw;
                C v[kWidth];
                x.read(((row.whole * s.in_h + rows.at[i]) * s.in_w + columns.at[j]) * s.channels + c.rest * kWidth,
                       raw);
                Source::unpack(raw, v);
                const C factor = C(rows.weight[i] * columns.weight[j]);
#pragma unroll
                for (int k = 0; k < kWidth; ++k) sum[k] += v[k] * factor;
            }
        }
        Source::store(sum, y, item * kWidth);
    }
}

template <class Source, int kTaps>
__global__ __launch_bounds__(kThreads) void backward(const ResampleSpec s, const Source gy, const Dense gx,
                                                     const std::int64_t items) {
    using C = typename Source::C;
    constexpr int kWidth = Source::kWidth;
    for (std::int64_t item = global_thread(); item < items; item += grid_threads()) {
        const Quotient c = divide(item, s.channels / kWidth), column = divide(c.whole, s.in_w),
                       row = divide(column.whole, s.in_h);
        const Readers rows = readers(s, row.rest, s.in_h, s.out_h, s.step_h, s.top);
        const Readers columns = readers(s, column.rest, s.in_w, s.out_w, s.step_w, s.left);
        C sum[kWidth] = {};
        const auto collect = [&](Span down, Span across) {
            for (std::int64_t h = down.begin; h < down.end; ++h) {
                const double of_row = share<kTaps>(s.row(h), row.rest);
                if (of_row == 0) continue;
                for (std::int64_t w = across.begin; w < across.end; ++w) {
                    const double of_column = share<kTaps>(s.column(w), column.rest);
                    if (of_column == 0) continue;
                    typename Source::Raw raw;
                    C g[kWidth];
                    gy.read(((row.whole * s.out_h + h) * s.out_w + w) * s.channels + c.rest * kWidth, raw);
                    Source::unpack(raw, g);
                    const C factor = C(of_row * of_column);
#pragma unroll
                    for (int k = 0; k < kWidth; ++k) sum[k] += g[k] * factor;
                }
            }
        };
        if (kTaps > 1 || !s.pads()) {
            collect(rows.spans[0], columns.spans[0]);
        } else {
            for (int i = 0; i < Readers::kMost; ++i)
                for (int j = 0; j < Readers::kMost; ++j) collect(rows.spans[i], columns.spans[j]);
        }
        Source::store(sum, gx, item * kWidth);
    }
}

// Calls f(std::integral_constant<int, kTaps>).
template <class F>
void with_taps(const ResampleSpec& spec, const F& f) {
    if (spec.taps() == 4)
        f(std::integral_constant<int, 4>{});
    else if (spec.taps() == 2)
        f(std::integral_constant<int, 2>{});
    else
        f(std::integral_constant<int, 1>{});
}

}  // namespace

void CudaKernels::resample(const ResampleSpec& spec, const View& x, const View& y) {
    const Launch stream("resample");
    const std::int64_t outputs = spec.batch * spec.out_h * spec.out_w * spec.channels;
    if (outputs == 0) return;
    with_source(spec.channels, {&x, &y}, {}, [&](auto tag) {
        using Source = typename decltype(tag)::type;
        const std::int64_t items = outputs / Source::kWidth;
        with_taps(spec, [&](auto taps) {
            forward<Source, decltype(taps)::value>
                <<<grid_for(items, kThreads), kThreads, 0, stream>>>(spec, Source(x), y, items);
        });
    });
}

void CudaKernels::resample_backward(const ResampleSpec& spec, const View& gy, const View& gx) {
    const Launch stream("resample_backward");
    const std::int64_t inputs = spec.batch * spec.in_h * spec.in_w * spec.channels;
    if (inputs == 0) return;
    with_source(spec.channels, {&gy, &gx}, {}, [&](auto tag) {
        using Source = typename decltype(tag)::type;
        const std::int64_t items = inputs / Source::kWidth;
        with_taps(spec, [&](auto taps) {
            backward<Source, decltype(taps)::value>
                <<<grid_for(items, kThreads), kThreads, 0, stream>>>(spec, Source(gy), gx, items);
        });
    });
}

}  // namespace invar::cuda
