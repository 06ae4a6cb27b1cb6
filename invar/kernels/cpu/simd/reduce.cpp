// Sums and products over the middle of [outer, n, inner], and where its largest or smallest elements are.
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

// Whole numbers, in two's complement: what leaves the range comes in again at the other end.
std::int64_t whole_row_sum(const View& x, std::int64_t at, std::int64_t n) {
    std::int64_t buffer[kBlock];
    std::uint64_t total = 0;
    for (std::int64_t begin = 0; begin < n; begin += kBlock) {
        const std::int64_t count = std::min(kBlock, n - begin);
        const std::int64_t* v = load(byte_at(x.data, x.dtype, at + begin), x.dtype, 1, count, buffer);
        for (std::int64_t i = 0; i < count; ++i) total += std::uint64_t(v[i]);
    }
    return std::int64_t(total);
}

void sum_whole(const Span3& span, const View& x, std::int64_t* y) {
    const std::int64_t elements = span.outer * span.n * span.inner;
    if (span.inner == 1) {
        const std::int64_t pieces = std::max<std::int64_t>(1, divide_up(span.n, kPiece));
        std::vector<std::int64_t> partial(std::size_t(span.outer * pieces));
        parallel_for(span.outer * pieces, elements, [&](std::int64_t item) {
            const std::int64_t begin = item % pieces * kPiece;
            partial[std::size_t(item)] =
                whole_row_sum(x, item / pieces * span.n + begin, std::min(kPiece, span.n - begin));
        });
        for (std::int64_t o = 0; o < span.outer; ++o) {
            std::uint64_t total = 0;
            for (std::int64_t i = 0; i < pieces; ++i) total += std::uint64_t(partial[std::size_t(o * pieces + i)]);
            y[o] = std::int64_t(total);
        }
        return;
    }
    const std::int64_t blocks = divide_up(span.inner, kBlock);
    parallel_for(span.outer * blocks, elements, [&](std::int64_t item) {
        const std::int64_t o = item / blocks, column = item % blocks * kBlock,
                           w = std::min(kBlock, span.inner - column);
        std::int64_t buffer[kBlock];
        std::uint64_t totals[kBlock] = {};
        for (std::int64_t row = 0; row < span.n; ++row) {
            const std::int64_t at = (o * span.n + row) * span.inner + column;
            const std::int64_t* v = load(byte_at(x.data, x.dtype, at), x.dtype, 1, w, buffer);
            for (std::int64_t i = 0; i < w; ++i) totals[i] += std::uint64_t(v[i]);
        }
        for (std::int64_t i = 0; i < w; ++i) y[o * span.inner + column + i] = std::int64_t(totals[i]);
    });
}

// Of one line along n: what is multiplied up, and the zeros that are left out of it.
struct Product {
    double value;
    std::int64_t zeros;
    void take(double v) {
        value *= v == 0 ? 1 : v;
        zeros += v == 0;
    }
};
struct WholeProduct {
    std::uint64_t value;
    void take(std::int64_t v) { value *= std::uint64_t(v); }
};

// Calls put(line, product) for the lines, taken in some columns at a time.
template <class P, class V, class Put>
void products(const Span3& span, const View& x, const Put& put) {
    const std::int64_t blocks = divide_up(span.inner, kBlock), elements = span.outer * span.n * span.inner;
    parallel_for(span.outer * blocks, elements, [&](std::int64_t item) {
        const std::int64_t o = item / blocks, column = item % blocks * kBlock,
                           w = std::min(kBlock, span.inner - column);
        const std::int64_t together = w == span.inner ? std::max<std::int64_t>(1, kBlock / w) : 1;
        V buffer[kBlock];
        P products[kBlock];
        std::fill_n(products, w, P{1});
        for (std::int64_t row = 0; row < span.n; row += together) {
            const std::int64_t count = std::min(together, span.n - row);
            const std::int64_t at = (o * span.n + row) * span.inner + column;
            const V* v = load(byte_at(x.data, x.dtype, at), x.dtype, 1, count * w, buffer);
            for (std::int64_t r = 0; r < count; ++r)
                for (std::int64_t i = 0; i < w; ++i) products[i].take(v[r * w + i]);
        }
        for (std::int64_t i = 0; i < w; ++i) put(o * span.inner + column + i, products[i]);
    });
}

// The other way round in order, without leaving the range; NaN stays NaN.
template <class C>
inline C flipped(C v) {
    if constexpr (std::is_integral_v<C>)
        return ~v;
    else
        return -v;
}

template <class C>
const C* flip(const C* v, std::int64_t n, C* buffer) {
    for (std::int64_t i = 0; i < n; ++i) buffer[i] = flipped(v[i]);
    return buffer;
}

template <class C>
void find_in_row(const Span3& span, const View& x, const View& index, bool smallest, std::int64_t row) {
    C buffer[kBlock], best = 0;
    std::int64_t at = 0;
    for (std::int64_t begin = 0; begin < span.n; begin += kBlock) {
        const std::int64_t count = std::min(kBlock, span.n - begin);
        const C* v = load(byte_at(x.data, x.dtype, row * span.n + begin), x.dtype, 1, count, buffer);
        if (smallest) v = flip(v, count, buffer);
        const C largest = lane_max(v, count);
        if (begin > 0 && !beats(largest, best)) continue;
        best = largest;
        at = begin;
        for (const C* i = v; !(*i == largest) && *i == *i; ++i) ++at;  // stops at NaN, which is then the largest
        if (best != best) break;
    }
    index.as<std::int64_t>()[row] = at;
}

template <class C>
void find_in_columns(const Span3& span, const View& x, const View& index, bool smallest, std::int64_t item) {
    const std::int64_t blocks = divide_up(span.inner, kBlock);
    const std::int64_t o = item / blocks, column = item % blocks * kBlock, w = std::min(kBlock, span.inner - column);
    C buffer[kBlock], best[kBlock];
    std::int64_t at[kBlock];
    for (std::int64_t row = 0; row < span.n; ++row) {
        const C* v = load(byte_at(x.data, x.dtype, (o * span.n + row) * span.inner + column), x.dtype, 1, w, buffer);
        if (smallest) v = flip(v, w, buffer);
        for (std::int64_t i = 0; i < w; ++i) {
            const bool take = row == 0 || v[i] > best[i] || (v[i] != v[i] && best[i] == best[i]);
            best[i] = take ? v[i] : best[i];
            at[i] = take ? row : at[i];
        }
    }
    std::copy_n(at, w, index.as<std::int64_t>() + o * span.inner + column);
}

}  // namespace

void CpuKernels::sum(const Span3& span, const View& x, const View& y, double divisor, bool accumulate) {
    if (y.dtype == Dtype::i64) return sum_whole(span, x, y.as<std::int64_t>());
    compute_as(x.dtype, [&](auto tag) {
        using C = typename decltype(tag)::type;
        if (span.inner == 1)
            sum_rows<C>(span, x, y, divisor, accumulate);
        else if (span.outer * span.inner > 0)
            sum_columns<C>(span, x, y, divisor, accumulate);
    });
}

void CpuKernels::prod(const Span3& span, const View& x, const View& product, const View& zeros) {
    if (!zeros)
        return products<WholeProduct, std::int64_t>(span, x, [&](std::int64_t line, const WholeProduct& p) {
            product.as<std::int64_t>()[line] = std::int64_t(p.value);
        });
    products<Product, double>(span, x, [&](std::int64_t line, const Product& p) {
        product.as<double>()[line] = p.value;
        zeros.as<std::int64_t>()[line] = p.zeros;
    });
}

void CpuKernels::extreme(const Span3& span, const View& x, const View& index, bool smallest) {
    const auto run = [&](auto zero) {
        using C = decltype(zero);
        const std::int64_t elements = span.outer * span.n * span.inner;
        if (span.inner == 1)
            parallel_for(span.outer, elements,
                         [&](std::int64_t row) { find_in_row<C>(span, x, index, smallest, row); });
        else
            parallel_for(span.outer * divide_up(span.inner, kBlock), elements,
                         [&](std::int64_t item) { find_in_columns<C>(span, x, index, smallest, item); });
    };
    if (!is_floating(x.dtype))
        run(std::int64_t{});
    else if (x.dtype == Dtype::f64)
        run(double{});
    else
        run(float{});
}

}  // namespace invar::INVAR_ISA
