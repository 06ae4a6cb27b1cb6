// The order of elements along the middle of [outer, n, inner].
#include "invar/kernels/cpu/simd/cpu_kernels.h"
#include "invar/kernels/cpu/simd/loops.h"
#include "invar/kernels/sort_key.h"

namespace invar::INVAR_ISA {
namespace {

// Keys and places of one line, compared by both: equals stay in the order of their places.
struct Place {
    std::uint64_t key;
    std::int64_t at;
    bool operator<(const Place& other) const { return key != other.key ? key < other.key : at < other.at; }
};

template <class C>
void read_line(const View& x, std::int64_t first, std::int64_t n, std::int64_t step, bool descending, Place* line) {
    C buffer[kBlock];
    for (std::int64_t begin = 0; begin < n; begin += kBlock) {
        const std::int64_t count = std::min(kBlock, n - begin);
        const C* v = load(byte_at(x.data, x.dtype, first + begin * step), x.dtype, step, count, buffer);
        for (std::int64_t i = 0; i < count; ++i) {
            const std::uint64_t key = sort_key(v[i]);
            line[begin + i] = {descending ? ~key : key, begin + i};
        }
    }
}

}  // namespace

void CpuKernels::sort(const Span3& span, std::int64_t picks, const View& x, const View& index, bool descending) {
    const std::int64_t n = span.n, lines = span.outer * span.inner;
    ThreadRows<Place> scratch(n);
    const auto run = [&](auto zero) {
        using C = decltype(zero);
        parallel_for(lines, lines * n, [&](std::int64_t item) {
            const std::int64_t o = item / span.inner, i = item % span.inner;
            Place* line = scratch.mine();
            read_line<C>(x, o * n * span.inner + i, n, span.inner, descending, line);
            if (picks < n)
                std::partial_sort(line, line + picks, line + n);
            else
                std::sort(line, line + n);
            std::int64_t* to = index.as<std::int64_t>() + o * picks * span.inner + i;
            for (std::int64_t p = 0; p < picks; ++p) to[p * span.inner] = line[p].at;
        });
    };
    if (!is_floating(x.dtype))
        run(std::int64_t{});
    else if (x.dtype == Dtype::f64)
        run(double{});
    else
        run(float{});
}

}  // namespace invar::INVAR_ISA
