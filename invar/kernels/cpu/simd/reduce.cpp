// Sums and maxima over the middle of [outer, n, inner].
#include "invar/kernels/cpu/simd/cpu_kernels.h"
#include "invar/kernels/cpu/simd/loops.h"

namespace invar::INVAR_ISA {
namespace {

// Elements of a row that is summed as one piece; longer rows are cut, so that threads can share them.
constexpr std::int64_t kPiece = 32 * kBlock;

template <class C>
double row_sum(const View& x, std::int64_t at, std::int64_t n) {
    C buffer[kBlock];
    double total = 0;
    for (std::int64_t begin = 0; begin < n; begin += kBlock) {
        const std::int64_t count = std::min(kBlock, n - begin);
        const C* v = load(byte_at(x.data, x.dtype, at + begin), x.dtype, 1, count, buffer);
        total += lane_sum<C>(count, [v](std::int64_t i) { return v[i]; });
    }
    return total;
}

// y = totals / divisor (+ y), `n` elements from `at`.
void put(const double* totals, const View& y, std::int64_t at, std::int64_t n, double divisor, bool accumulate) {
    double values[kBlock], before[kBlock];
    for (std::int64_t begin = 0; begin < n; begin += kBlock) {
        const std::int64_t count = std::min(kBlock, n - begin);
        void* to = byte_at(y.data, y.dtype, at + begin);
        for (std::int64_t i = 0; i < count; ++i) values[i] = totals[begin + i] / divisor;
        if (accumulate) {
            const double* old = load(to, y.dtype, 1, count, before);
            for (std::int64_t i = 0; i < count; ++i) values[i] += old[i];
        }
        store(values, to, y.dtype, 1, count);
    }
}

template <class C>
void sum_rows(const Span3& span, const View& x, const View& y, double divisor, bool accumulate) {
    const std::int64_t pieces = divide_up(span.n, kPiece), elements = span.outer * span.n;
    if (pieces <= 1) {  // short rows: some at a time, stored together
        constexpr std::int64_t kTogether = 64;
        parallel_for(divide_up(span.outer, kTogether), elements, [&](std::int64_t item) {
            const std::int64_t row = item * kTogether, count = std::min(kTogether, span.outer - row);
            double totals[kTogether];
            for (std::int64_t i = 0; i < count; ++i) totals[i] = row_sum<C>(x, (row + i) * span.n, span.n);
            put(totals, y, row, count, divisor, accumulate);
        });
        return;
    }
    std::vector<double> partial(std::size_t(span.outer * pieces));
    parallel_for(span.outer * pieces, elements, [&](std::int64_t item) {
        const std::int64_t begin = item % pieces * kPiece;
        partial[std::size_t(item)] = row_sum<C>(x, item / pieces * span.n + begin, std::min(kPiece, span.n - begin));
    });
    for (std::int64_t o = 0; o < span.outer; ++o) {
        double total = 0;
        for (std::int64_t i = 0; i < pieces; ++i) total += partial[std::size_t(o * pieces + i)];
        put(&total, y, o, 1, divisor, accumulate);
    }
}

template <class C>
void sum_columns(const Span3& span, const View& x, const View& y, double divisor, bool accumulate) {
    const std::int64_t width = std::min(kBlock, span.inner);
    const auto totals = column_sums<C>(span.outer, span.n, span.inner, width, 1,
                                       [&](std::int64_t o, std::int64_t row, std::int64_t end, std::int64_t column,
                                           std::int64_t w, C* __restrict sums) {
                                           C buffer[kBlock];
                                           const std::int64_t together = w == span.inner ? kBlock / w : 1;
                                           for (; row < end; row += together) {
                                               const std::int64_t count = std::min(together, end - row);
                                               const std::int64_t at = (o * span.n + row) * span.inner + column;
                                               const C* v =
                                                   load(byte_at(x.data, x.dtype, at), x.dtype, 1, count * w, buffer);
                                               for (std::int64_t r = 0; r < count; ++r)
                                                   for (std::int64_t i = 0; i < w; ++i) sums[i] += v[r * w + i];
                                           }
                                       });
    put(totals.data(), y, 0, span.outer * span.inner, divisor, accumulate);
}

template <class C>
void max_row(const Span3& span, const View& x, const View& y, const View& index, std::int64_t row) {
    C buffer[kBlock], best = 0;
    std::int64_t at = 0;
    for (std::int64_t begin = 0; begin < span.n; begin += kBlock) {
        const std::int64_t count = std::min(kBlock, span.n - begin);
        const C* v = load(byte_at(x.data, x.dtype, row * span.n + begin), x.dtype, 1, count, buffer);
        const C largest = lane_max(v, count);
        if (begin > 0 && !beats(largest, best)) continue;
        best = largest;
        if (index) {
            at = begin;
            for (const C* i = v; !(*i == largest) && *i == *i; ++i) ++at;  // stops at NaN, which is then the largest
        }
        if (best != best) break;
    }
    if (y) store(&best, byte_at(y.data, y.dtype, row), y.dtype, 1, 1);
    if (index) index.as<std::int64_t>()[row] = at;
}

template <class C>
void max_columns(const Span3& span, const View& x, const View& y, const View& index, std::int64_t item) {
    const std::int64_t blocks = divide_up(span.inner, kBlock);
    const std::int64_t o = item / blocks, column = item % blocks * kBlock, w = std::min(kBlock, span.inner - column);
    C buffer[kBlock], best[kBlock];
    std::int64_t at[kBlock];
    for (std::int64_t row = 0; row < span.n; ++row) {
        const C* v = load(byte_at(x.data, x.dtype, (o * span.n + row) * span.inner + column), x.dtype, 1, w, buffer);
        for (std::int64_t i = 0; i < w; ++i) {
            const bool take = row == 0 || v[i] > best[i] || (v[i] != v[i] && best[i] == best[i]);
            best[i] = take ? v[i] : best[i];
            at[i] = take ? row : at[i];
        }
    }
    if (y) store(best, byte_at(y.data, y.dtype, o * span.inner + column), y.dtype, 1, w);
    if (index) std::copy_n(at, w, index.as<std::int64_t>() + o * span.inner + column);
}

}  // namespace

void CpuKernels::sum(const Span3& span, const View& x, const View& y, double divisor, bool accumulate) {
    compute_as(x.dtype, [&](auto tag) {
        using C = typename decltype(tag)::type;
        if (span.inner == 1)
            sum_rows<C>(span, x, y, divisor, accumulate);
        else if (span.outer * span.inner > 0)
            sum_columns<C>(span, x, y, divisor, accumulate);
    });
}

void CpuKernels::max(const Span3& span, const View& x, const View& y, const View& index) {
    compute_as(x.dtype, [&](auto tag) {
        using C = typename decltype(tag)::type;
        const std::int64_t elements = span.outer * span.n * span.inner;
        if (span.inner == 1) {
            parallel_for(span.outer, elements, [&](std::int64_t row) { max_row<C>(span, x, y, index, row); });
        } else {
            parallel_for(span.outer * divide_up(span.inner, kBlock), elements,
                         [&](std::int64_t item) { max_columns<C>(span, x, y, index, item); });
        }
    });
}

}  // namespace invar::INVAR_ISA
