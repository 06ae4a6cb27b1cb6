// Pooling over windows of [batch, h, w, channels]. Backward gathers: each input position asks the windows that cover
// it, so that every gradient is written once, in a fixed order, whatever the overlap.
#include "invar/kernels/cpu/simd/cpu_kernels.h"
#include "invar/kernels/cpu/simd/loops.h"

namespace invar::INVAR_ISA {
namespace {

using Range = PoolSpec::Range;

// For each input position the outputs whose windows hold it; they are neighbours, for windows only move forward.
template <class Window>
std::vector<Range> covers(std::int64_t in, std::int64_t out, const Window& window) {
    std::vector<Range> result(std::size_t(in), Range{0, 0});
    for (std::int64_t o = 0; o < out; ++o) {
        const Range r = window(o);
        for (std::int64_t i = r.begin; i < r.end; ++i) {
            Range& cover = result[std::size_t(i)];
            if (cover.end == 0) cover.begin = o;
            cover.end = o + 1;
        }
    }
    return result;
}

std::int64_t inputs(const PoolSpec& s) {
    return s.batch * s.in_h * s.in_w * s.channels;
}
std::int64_t outputs(const PoolSpec& s) {
    return s.batch * s.out_h * s.out_w * s.channels;
}

template <class C, class W>
void take_larger(const C* __restrict v, W at, C* __restrict best, W* __restrict winner, std::int64_t n) {
    for (std::int64_t c = 0; c < n; ++c) {
        const bool take = beats(v[c], best[c]);
        best[c] = take ? v[c] : best[c];
        winner[c] = take ? at : winner[c];
    }
}

template <class C, class W>
void add_where(const C* __restrict g, const W* __restrict winner, W at, C* __restrict sum, std::int64_t n) {
    for (std::int64_t c = 0; c < n; ++c) sum[c] += winner[c] == at ? g[c] : C(0);
}

template <class C>
void add(const C* __restrict v, C* __restrict sum, std::int64_t n) {
    for (std::int64_t c = 0; c < n; ++c) sum[c] += v[c];
}

// Divided, as in PyTorch: times 1 / divisor would be rounded twice.
template <class C>
void add_divided(const C* __restrict v, C divisor, C* __restrict sum, std::int64_t n) {
    for (std::int64_t c = 0; c < n; ++c) sum[c] += v[c] / divisor;
}

// ReLU: what it stops has no winner, so that no gradient comes back. NaN is passed on, and wins.
template <class C, class W>
void keep_positive(C* __restrict best, W* __restrict winner, std::int64_t n) {
    for (std::int64_t c = 0; c < n; ++c) {
        const C v = best[c];
        winner[c] = v <= C(0) ? PoolSpec::no_winner<W>() : winner[c];
        best[c] = v < C(0) ? C(0) : v;
    }
}

template <class C, class W>
void max_pool_row(const PoolSpec& s, const View& x, const View& y, const View& winners, std::int64_t row) {
    const std::int64_t plane = row / s.out_h * s.in_h * s.in_w;
    const Range r = s.rows(row % s.out_h);
    C loaded[kBlock], largest[kBlock];
    for (std::int64_t ow = 0; ow < s.out_w; ++ow) {
        const Range c = s.columns(ow);
        for (std::int64_t begin = 0; begin < s.channels; begin += kBlock) {
            const std::int64_t n = std::min(kBlock, s.channels - begin);
            const std::int64_t at = (row * s.out_w + ow) * s.channels + begin;
            void* out = byte_at(y.data, y.dtype, at);
            C* best = target(out, y.dtype, 1, largest);
            W* winner = winners.as<W>() + at;
            bool first = true;
            for (std::int64_t h = r.begin; h < r.end; ++h)
                for (std::int64_t w = c.begin; w < c.end; ++w) {
                    const std::int64_t position = plane + h * s.in_w + w;
                    const W code = W(s.winner(winners.dtype, row % s.out_h, ow, h, w));
                    const C* v = load(byte_at(x.data, x.dtype, position * s.channels + begin), x.dtype, 1, n,
                                      first ? best : loaded);
                    if (first) {
                        if (v != best) std::copy_n(v, n, best);
                        std::fill_n(winner, n, code);
                        first = false;
                    } else {
                        take_larger(v, code, best, winner, n);
                    }
                }
            if (s.relu) keep_positive(best, winner, n);
            store(best, out, y.dtype, 1, n);
        }
    }
}

// gx of one input row: add(position, sum, begin, n) adds, for n channels from `begin`, what each covering output sends.
template <class C, class Add>
void gather_row(const PoolSpec& s, const View& gx, std::int64_t row, Range rows, const std::vector<Range>& columns,
                const Add& add) {
    const std::int64_t batch = row / s.in_h;
    C buffer[kBlock];
    for (std::int64_t w = 0; w < s.in_w; ++w) {
        const Range cols = columns[std::size_t(w)];
        for (std::int64_t begin = 0; begin < s.channels; begin += kBlock) {
            const std::int64_t n = std::min(kBlock, s.channels - begin);
            void* out = byte_at(gx.data, gx.dtype, (row * s.in_w + w) * s.channels + begin);
            C* sum = target(out, gx.dtype, 1, buffer);
            std::fill_n(sum, n, C(0));
            for (std::int64_t oh = rows.begin; oh < rows.end; ++oh)
                for (std::int64_t ow = cols.begin; ow < cols.end; ++ow)
                    add(oh, ow, w, ((batch * s.out_h + oh) * s.out_w + ow) * s.channels + begin, sum, n);
            store(sum, out, gx.dtype, 1, n);
        }
    }
}

// Windows that do not overlap, the common case: gradients are moved, not added, so that T only has to have their size.
template <class T, class W>
void move_gradients(const PoolSpec& s, const View& gy, const View& winners, const View& gx,
                    const std::vector<Range>& rows, const std::vector<Range>& columns) {
    parallel_for(s.batch * s.in_h, inputs(s), [&](std::int64_t row) {
        const std::int64_t h = row % s.in_h;
        const Range r = rows[std::size_t(h)];
        for (std::int64_t w = 0; w < s.in_w; ++w) {
            const Range c = columns[std::size_t(w)];
            T* __restrict to = gx.as<T>() + (row * s.in_w + w) * s.channels;
            if (r.begin == r.end || c.begin == c.end) {
                std::fill_n(to, s.channels, T(0));
                continue;
            }
            const std::int64_t from = ((row / s.in_h * s.out_h + r.begin) * s.out_w + c.begin) * s.channels;
            const T* __restrict g = gy.as<const T>() + from;
            const W* __restrict winner = winners.as<const W>() + from;
            const W at = W(s.winner(winners.dtype, r.begin, c.begin, h, w));
            // A mask rather than a choice: compilers vectorise it for every size of T.
            for (std::int64_t i = 0; i < s.channels; ++i) to[i] = T(g[i] & T(-std::int32_t(winner[i] == at)));
        }
    });
}

// Calls f with a value of the type that winners are noted in.
template <class F>
void with_winners(const View& winners, const F& f) {
    if (winners.dtype == Dtype::u8)
        f(std::uint8_t{});
    else
        f(std::int32_t{});
}

bool overlap(const std::vector<Range>& covers) {
    return std::any_of(covers.begin(), covers.end(), [](Range r) { return r.end - r.begin > 1; });
}

}  // namespace

void CpuKernels::max_pool(const PoolSpec& spec, const View& x, const View& y, const View& winners) {
    compute_as(x.dtype, [&](auto tag) {
        using C = typename decltype(tag)::type;
        with_winners(winners, [&](auto winner) {
            parallel_for(spec.batch * spec.out_h, inputs(spec),
                         [&](std::int64_t row) { max_pool_row<C, decltype(winner)>(spec, x, y, winners, row); });
        });
    });
}

void CpuKernels::max_pool_backward(const PoolSpec& spec, const View& gy, const View& winners, const View& gx) {
    const auto rows = covers(spec.in_h, spec.out_h, [&](std::int64_t i) { return spec.rows(i); });
    const auto columns = covers(spec.in_w, spec.out_w, [&](std::int64_t i) { return spec.columns(i); });
    if (gy.dtype == gx.dtype && !overlap(rows) && !overlap(columns)) {
        return with_winners(winners, [&](auto winner) {
            using W = decltype(winner);
            switch (size_of(gx.dtype)) {
                case 8:
                    return move_gradients<std::uint64_t, W>(spec, gy, winners, gx, rows, columns);
                case 4:
                    return move_gradients<std::uint32_t, W>(spec, gy, winners, gx, rows, columns);
                default:
                    return move_gradients<std::uint16_t, W>(spec, gy, winners, gx, rows, columns);
            }
        });
    }
    compute_as(gx.dtype, [&](auto tag) {
        using C = typename decltype(tag)::type;
        with_winners(winners, [&](auto winner) {
            using W = decltype(winner);
            parallel_for(spec.batch * spec.in_h, inputs(spec), [&](std::int64_t row) {
                const std::int64_t h = row % spec.in_h;
                C loaded[kBlock];
                const auto add = [&](std::int64_t oh, std::int64_t ow, std::int64_t w, std::int64_t from, C* sum,
                                     std::int64_t n) {
                    const C* g = load(byte_at(gy.data, gy.dtype, from), gy.dtype, 1, n, loaded);
                    add_where(g, winners.as<const W>() + from, W(spec.winner(winners.dtype, oh, ow, h, w)), sum, n);
                };
                gather_row<C>(spec, gx, row, rows[std::size_t(h)], columns, add);
            });
        });
    });
}

void CpuKernels::avg_pool(const PoolSpec& spec, const View& x, const View& y) {
    compute_as(x.dtype, [&](auto tag) {
        using C = typename decltype(tag)::type;
        parallel_for(spec.batch * spec.out_h, std::max(inputs(spec), outputs(spec)), [&](std::int64_t row) {
            const std::int64_t plane = row / spec.out_h * spec.in_h * spec.in_w;
            const Range r = spec.rows(row % spec.out_h);
            C loaded[kBlock], line[kBlock], buffer[kBlock];
            for (std::int64_t ow = 0; ow < spec.out_w; ++ow) {
                const Range c = spec.columns(ow);
                const C divisor = C(spec.divisor(row % spec.out_h, ow));
                for (std::int64_t begin = 0; begin < spec.channels; begin += kBlock) {
                    const std::int64_t n = std::min(kBlock, spec.channels - begin);
                    void* out = byte_at(y.data, y.dtype, (row * spec.out_w + ow) * spec.channels + begin);
                    C* sum = target(out, y.dtype, 1, buffer);
                    std::fill_n(sum, n, C(0));
                    for (std::int64_t h = r.begin; h < r.end; ++h) {
                        std::fill_n(line, n, C(0));  // line by line, so that a plane's average adds few terms at a time
                        for (std::int64_t w = c.begin; w < c.end; ++w) {
                            const std::int64_t at = (plane + h * spec.in_w + w) * spec.channels + begin;
                            add(load(byte_at(x.data, x.dtype, at), x.dtype, 1, n, loaded), line, n);
                        }
                        add(line, sum, n);
                    }
                    for (std::int64_t i = 0; i < n; ++i) sum[i] /= divisor;
                    store(sum, out, y.dtype, 1, n);
                }
            }
        });
    });
}

void CpuKernels::avg_pool_backward(const PoolSpec& spec, const View& gy, const View& gx) {
    const auto rows = covers(spec.in_h, spec.out_h, [&](std::int64_t i) { return spec.rows(i); });
    const auto columns = covers(spec.in_w, spec.out_w, [&](std::int64_t i) { return spec.columns(i); });
    compute_as(gx.dtype, [&](auto tag) {
        using C = typename decltype(tag)::type;
        parallel_for(spec.batch * spec.in_h, inputs(spec), [&](std::int64_t row) {
            C loaded[kBlock];
            gather_row<C>(
                spec, gx, row, rows[std::size_t(row % spec.in_h)], columns,
                [&](std::int64_t oh, std::int64_t ow, std::int64_t, std::int64_t from, C* sum, std::int64_t n) {
                    const C divisor = C(spec.divisor(oh, ow));
                    add_divided(load(byte_at(gy.data, gy.dtype, from), gy.dtype, 1, n, loaded), divisor, sum, n);
                });
        });
    });
}

}  // namespace invar::INVAR_ISA
