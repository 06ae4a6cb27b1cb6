// Softmax, log-softmax and cross-entropy. The largest value is subtracted first, so that no exponential overflows; a
// row of nothing but -inf gives NaN.
#include <cmath>

#include "invar/kernels/cpu/simd/cpu_kernels.h"
#include "invar/kernels/cpu/simd/exponential.h"
#include "invar/kernels/cpu/simd/loops.h"

namespace invar::INVAR_ISA {
namespace {

template <class C>
double sum_of_exponentials(const C* x, C shift, std::int64_t n) {
    C buffer[kBlock];
    double total = 0;
    for (std::int64_t begin = 0; begin < n; begin += kBlock)
        total += exponentials(x + begin, shift, buffer, std::min(kBlock, n - begin));
    return total;
}

// --- rows (inner == 1): a whole row at a time, widened into `buffer` where it is not of type C ---

template <class C>
void softmax_row(const View& x, const View& y, std::int64_t at, std::int64_t n, bool log, C* buffer) {
    const C* v = load(byte_at(x.data, x.dtype, at), x.dtype, 1, n, buffer);
    void* to = byte_at(y.data, y.dtype, at);
    C* out = target(to, y.dtype, 1, buffer);
    const C largest = lane_max(v, n);
    if (log) {
        const C rest = C(std::log(sum_of_exponentials(v, largest, n)));
        for (std::int64_t i = 0; i < n; ++i) out[i] = (v[i] - largest) - rest;
    } else {
        double total = 0;
        for (std::int64_t begin = 0; begin < n; begin += kBlock)
            total += exponentials(v + begin, largest, out + begin, std::min(kBlock, n - begin));
        const C factor = C(1.0 / total);
        for (std::int64_t i = 0; i < n; ++i) out[i] *= factor;
    }
    store(out, to, y.dtype, 1, n);
}

template <class C>
void backward_row(const View& gy, const View& y, const View& gx, std::int64_t at, std::int64_t n, bool log, C* buffer) {
    const C* g = load(byte_at(gy.data, gy.dtype, at), gy.dtype, 1, n, buffer);
    const C* p = load(byte_at(y.data, y.dtype, at), y.dtype, 1, n, buffer + n);
    void* to = byte_at(gx.data, gx.dtype, at);
    C* out = target(to, gx.dtype, 1, buffer);
    if (log) {
        const C total = C(lane_sum<C>(n, [g](std::int64_t i) { return g[i]; }));
        for (std::int64_t i = 0; i < n; ++i) out[i] = g[i] - exponential(p[i]) * total;
    } else {
        const C total = C(lane_sum<C>(n, [g, p](std::int64_t i) { return g[i] * p[i]; }));
        for (std::int64_t i = 0; i < n; ++i) out[i] = p[i] * (g[i] - total);
    }
    store(out, to, gx.dtype, 1, n);
}

// --- columns (inner > 1): blocks of columns, row by row, exponentials computed twice rather than kept ---

// One block of columns of a view of [outer, n, inner].
struct Columns {
    Span3 span;
    std::int64_t o, column, width;
    Columns(const Span3& s, std::int64_t item) : span(s) {
        const std::int64_t blocks = divide_up(s.inner, kBlock);
        o = item / blocks;
        column = item % blocks * kBlock;
        width = std::min(kBlock, s.inner - column);
    }
    template <class C>
    const C* read(const View& x, std::int64_t row, C* buffer) const {
        return load(byte_at(x.data, x.dtype, at(row)), x.dtype, 1, width, buffer);
    }
    template <class C>
    C* place(const View& y, std::int64_t row, C* buffer) const {
        return target(byte_at(y.data, y.dtype, at(row)), y.dtype, 1, buffer);
    }
    template <class C>
    void write(const C* from, const View& y, std::int64_t row) const {
        store(from, byte_at(y.data, y.dtype, at(row)), y.dtype, 1, width);
    }
    std::int64_t at(std::int64_t row) const { return (o * span.n + row) * span.inner + column; }
};

template <class C>
void softmax_columns(const Columns& block, const View& x, const View& y, bool log) {
    const std::int64_t n = block.span.n, w = block.width;
    C buffer[kBlock], largest[kBlock];
    double total[kBlock] = {};
    for (std::int64_t row = 0; row < n; ++row) {
        const C* v = block.read(x, row, buffer);
        for (std::int64_t i = 0; i < w; ++i) largest[i] = row == 0 || beats(v[i], largest[i]) ? v[i] : largest[i];
    }
    for (std::int64_t row = 0; row < n; ++row) {
        const C* v = block.read(x, row, buffer);
        for (std::int64_t i = 0; i < w; ++i) total[i] += double(exponential(v[i] - largest[i]));
    }
    C last[kBlock];
    for (std::int64_t i = 0; i < w; ++i) last[i] = C(log ? std::log(total[i]) : 1.0 / total[i]);
    for (std::int64_t row = 0; row < n; ++row) {
        const C* v = block.read(x, row, buffer);
        C* out = block.place(y, row, buffer);
        if (log) {
            for (std::int64_t i = 0; i < w; ++i) out[i] = (v[i] - largest[i]) - last[i];
        } else {
            for (std::int64_t i = 0; i < w; ++i) out[i] = exponential(v[i] - largest[i]) * last[i];
        }
        block.write(out, y, row);
    }
}

template <class C>
void backward_columns(const Columns& block, const View& gy, const View& y, const View& gx, bool log) {
    const std::int64_t n = block.span.n, w = block.width;
    C first[kBlock], second[kBlock];
    double total[kBlock] = {};
    for (std::int64_t row = 0; row < n; ++row) {
        const C* g = block.read(gy, row, first);
        const C* p = block.read(y, row, second);
        for (std::int64_t i = 0; i < w; ++i) total[i] += double(log ? g[i] : g[i] * p[i]);
    }
    for (std::int64_t row = 0; row < n; ++row) {
        const C* g = block.read(gy, row, first);
        const C* p = block.read(y, row, second);
        C* out = block.place(gx, row, first);
        if (log) {
            for (std::int64_t i = 0; i < w; ++i) out[i] = g[i] - exponential(p[i]) * C(total[i]);
        } else {
            for (std::int64_t i = 0; i < w; ++i) out[i] = p[i] * (g[i] - C(total[i]));
        }
        block.write(out, gx, row);
    }
}

}  // namespace

void CpuKernels::softmax(const Span3& span, const View& x, const View& y, bool log) {
    const std::int64_t elements = span.outer * span.n * span.inner;
    if (elements == 0) return;
    compute_as(x.dtype, [&](auto tag) {
        using C = typename decltype(tag)::type;
        if (span.inner == 1) {
            ThreadRows<C> scratch(span.n);
            parallel_for(span.outer, elements,
                         [&](std::int64_t row) { softmax_row<C>(x, y, row * span.n, span.n, log, scratch.mine()); });
        } else {
            parallel_for(span.outer * divide_up(span.inner, kBlock), elements,
                         [&](std::int64_t item) { softmax_columns<C>(Columns(span, item), x, y, log); });
        }
    });
}

void CpuKernels::softmax_backward(const Span3& span, const View& gy, const View& y, const View& gx, bool log) {
    const std::int64_t elements = span.outer * span.n * span.inner;
    if (elements == 0) return;
    compute_as(gx.dtype, [&](auto tag) {
        using C = typename decltype(tag)::type;
        if (span.inner == 1) {
            ThreadRows<C> scratch(2 * span.n);
            parallel_for(span.outer, elements, [&](std::int64_t row) {
                backward_row<C>(gy, y, gx, row * span.n, span.n, log, scratch.mine());
            });
        } else {
            parallel_for(span.outer * divide_up(span.inner, kBlock), elements,
                         [&](std::int64_t item) { backward_columns<C>(Columns(span, item), gy, y, gx, log); });
        }
    });
}

void CpuKernels::cross_entropy(const CrossEntropySpec& spec, const View& logits, const View& target, const View& losses,
                               const View& kept) {
    const std::int64_t n = spec.classes;
    compute_as(logits.dtype, [&](auto tag) {
        using C = typename decltype(tag)::type;
        ThreadRows<C> scratch(n);
        parallel_for(spec.rows, spec.rows * n, [&](std::int64_t row) {
            const std::int64_t label = target.as<const std::int64_t>()[row];
            double loss = 0;
            C mine[2] = {0, 1};
            if (label != spec.ignore_index) {
                const C* v = load(byte_at(logits.data, logits.dtype, row * n), logits.dtype, 1, n, scratch.mine());
                const C largest = lane_max(v, n);
                const double sum = sum_of_exponentials(v, largest, n), rest = std::log(sum);
                mine[0] = largest, mine[1] = C(sum);
                // Differences from the largest, not from the whole: the logarithm is small beside a large logit.
                loss = (double(largest) - double(v[label])) + rest;
                if (spec.label_smoothing != 0) {
                    const double mean =
                        lane_sum<C>(n, [v, largest](std::int64_t i) { return largest - v[i]; }) / double(n);
                    loss = (1.0 - spec.label_smoothing) * loss + spec.label_smoothing * (mean + rest);
                }
            }
            store(&loss, byte_at(losses.data, losses.dtype, row), losses.dtype, 1, 1);
            store(mine, byte_at(kept.data, kept.dtype, row), kept.dtype, spec.rows, 2);
        });
    });
}

void CpuKernels::cross_entropy_backward(const CrossEntropySpec& spec, const View& logits, const View& target,
                                        const View& kept, const View& glosses, const View& count_of_rows,
                                        const View& glogits) {
    const std::int64_t n = spec.classes, step = glosses.numel() == 1 ? 0 : 1;
    compute_as(logits.dtype, [&](auto tag) {
        using C = typename decltype(tag)::type;
        C count_buffer;
        const C counted = count_of_rows ? *load(count_of_rows.data, count_of_rows.dtype, 1, 1, &count_buffer) : C(1);
        const C spread = C(spec.label_smoothing / double(n)), sure = C(1.0 - spec.label_smoothing);
        parallel_for(spec.rows, spec.rows * n, [&](std::int64_t row) {
            const std::int64_t label = target.as<const std::int64_t>()[row];
            const bool ignored = label == spec.ignore_index;
            C g_buffer, mine[2], buffer[kBlock];
            const C g =
                *load(byte_at(glosses.data, glosses.dtype, row * step), glosses.dtype, 1, 1, &g_buffer) / counted;
            load_as(kept.as<const C>() + row, spec.rows, mine, 2);
            const C largest = mine[0], share = C(1) / mine[1];
            for (std::int64_t begin = 0; begin < n; begin += kBlock) {
                const std::int64_t count = std::min(kBlock, n - begin);
                void* to = byte_at(glogits.data, glogits.dtype, row * n + begin);
                C* out = INVAR_ISA::target(to, glogits.dtype, 1, buffer);
                if (ignored) {
                    std::fill_n(out, count, C(0));
                } else {
                    const C* v =
                        load(byte_at(logits.data, logits.dtype, row * n + begin), logits.dtype, 1, count, buffer);
                    for (std::int64_t i = 0; i < count; ++i) out[i] = exponential(v[i] - largest) * share - spread;
                    if (label >= begin && label < begin + count) out[label - begin] -= sure;
                    for (std::int64_t i = 0; i < count; ++i) out[i] *= g;
                }
                store(out, to, glogits.dtype, 1, count);
            }
        });
    });
}

void CpuKernels::mean_loss(const View& losses, const View& target, std::int64_t ignore_index, const View& mean,
                           const View& count) {
    const std::int64_t rows = losses.numel();
    sum({1, rows, 1}, losses, mean, 1.0, false);
    std::int64_t counted = 0;
    for (std::int64_t i = 0; i < rows; ++i) counted += target.as<const std::int64_t>()[i] != ignore_index;
    compute_as(mean.dtype, [&](auto tag) {
        using C = typename decltype(tag)::type;
        *count.as<C>() = C(counted);
        *mean.as<C>() /= C(counted);
    });
}

}  // namespace invar::INVAR_ISA
