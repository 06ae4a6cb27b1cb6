// Running sums over the middle of [outer, n, inner].
#include "invar/kernels/cpu/simd/cpu_kernels.h"
#include "invar/kernels/cpu/simd/loops.h"

namespace invar::INVAR_ISA {
namespace {

// What sums are kept in, and how they grow: whole numbers in two's complement.
inline double grown(double total, double value) {
    return total + value;
}
inline std::int64_t grown(std::int64_t total, std::int64_t value) {
    return std::int64_t(std::uint64_t(total) + std::uint64_t(value));
}

template <class A>
void scan_row(const View& x, const View& y, std::int64_t at, std::int64_t n, bool reverse) {
    A buffer[kBlock], total = 0;
    const std::int64_t blocks = divide_up(n, kBlock);
    for (std::int64_t block = 0; block < blocks; ++block) {
        const std::int64_t begin = (reverse ? blocks - 1 - block : block) * kBlock, count = std::min(kBlock, n - begin);
        const A* v = load(byte_at(x.data, x.dtype, at + begin), x.dtype, 1, count, buffer);
        for (std::int64_t i = 0; i < count; ++i) {
            const std::int64_t place = reverse ? count - 1 - i : i;
            buffer[place] = total = grown(total, v[place]);
        }
        store(buffer, byte_at(y.data, y.dtype, at + begin), y.dtype, 1, count);
    }
}

template <class A>
void scan_columns(const Span3& span, const View& x, const View& y, bool reverse, std::int64_t item) {
    const std::int64_t blocks = divide_up(span.inner, kBlock);
    const std::int64_t o = item / blocks, column = item % blocks * kBlock, w = std::min(kBlock, span.inner - column);
    A buffer[kBlock], totals[kBlock] = {};
    for (std::int64_t i = 0; i < span.n; ++i) {
        const std::int64_t row = reverse ? span.n - 1 - i : i, at = (o * span.n + row) * span.inner + column;
        const A* v = load(byte_at(x.data, x.dtype, at), x.dtype, 1, w, buffer);
        for (std::int64_t k = 0; k < w; ++k) totals[k] = grown(totals[k], v[k]);
        store(totals, byte_at(y.data, y.dtype, at), y.dtype, 1, w);
    }
}

}  // namespace

void CpuKernels::cumsum(const Span3& span, const View& x, const View& y, bool reverse) {
    const std::int64_t elements = span.outer * span.n * span.inner;
    const auto run = [&](auto zero) {
        using A = decltype(zero);
        if (span.inner == 1)
            parallel_for(span.outer, elements,
                         [&](std::int64_t row) { scan_row<A>(x, y, row * span.n, span.n, reverse); });
        else
            parallel_for(span.outer * divide_up(span.inner, kBlock), elements,
                         [&](std::int64_t item) { scan_columns<A>(span, x, y, reverse, item); });
    };
    y.dtype == Dtype::i64 ? run(std::int64_t{}) : run(double{});
}

}  // namespace invar::INVAR_ISA
