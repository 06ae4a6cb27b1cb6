// Rows and elements picked by index, and their gradients. Where several picks fall on one place they are added in
// double, in the order of the picks, by one thread: the result is the same on every run.
#include <numeric>

#include "invar/kernels/cpu/simd/cpu_kernels.h"
#include "invar/kernels/cpu/simd/loops.h"

namespace invar::INVAR_ISA {
namespace {

std::vector<std::int64_t> load_indices(const View& ids) {
    std::vector<std::int64_t> result(std::size_t(ids.numel()));
    for (std::size_t i = 0; i < result.size(); ++i)
        result[i] = ids.dtype == Dtype::i32 ? ids.as<const std::int32_t>()[i] : ids.as<const std::int64_t>()[i];
    return result;
}

// An unsigned integer as wide as the dtype: to move elements it is enough to know their size.
template <class F>
void with_bits(Dtype dtype, const F& f) {
    switch (size_of(dtype)) {
        case 8:
            return f(std::uint64_t{});
        case 4:
            return f(std::uint32_t{});
        case 2:
            return f(std::uint16_t{});
        default:
            return f(std::uint8_t{});
    }
}

}  // namespace

void CpuKernels::embedding(const View& table, const View& ids, const View& y) {
    const std::int64_t width = table.size[table.rank - 1];
    const auto rows = load_indices(ids);
    const std::int64_t count = std::int64_t(rows.size());
    parallel_for(count, count * width, [&](std::int64_t i) {
        const void* from = byte_at(static_cast<const void*>(table.data), table.dtype, rows[std::size_t(i)] * width);
        void* to = byte_at(y.data, y.dtype, i * width);
        if (table.dtype == y.dtype) {
            std::memcpy(to, from, std::size_t(width) * size_of(y.dtype));
            return;
        }
        double buffer[kBlock];
        for (std::int64_t begin = 0; begin < width; begin += kBlock) {
            const std::int64_t n = std::min(kBlock, width - begin);
            store(load(byte_at(from, table.dtype, begin), table.dtype, 1, n, buffer), byte_at(to, y.dtype, begin),
                  y.dtype, 1, n);
        }
    });
}

void CpuKernels::embedding_backward(const View& gy, const View& ids, const View& gtable) {
    const std::int64_t width = gtable.size[gtable.rank - 1];
    const auto rows = load_indices(ids);
    if (rows.empty() || width == 0) return;
    // Positions sorted by the table row they fall on: each row is read, added to and written once, by one thread.
    std::vector<std::int64_t> order(rows.size()), groups;
    std::iota(order.begin(), order.end(), std::int64_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int64_t a, std::int64_t b) { return rows[std::size_t(a)] < rows[std::size_t(b)]; });
    for (std::size_t i = 0; i < order.size(); ++i)
        if (i == 0 || rows[std::size_t(order[i])] != rows[std::size_t(order[i - 1])]) groups.push_back(std::int64_t(i));
    const std::int64_t distinct = std::int64_t(groups.size());
    groups.push_back(std::int64_t(order.size()));
    const std::int64_t block = std::min<std::int64_t>(width, 256), blocks = divide_up(width, block);
    parallel_for(distinct * blocks, gy.numel(), [&](std::int64_t item) {
        const std::size_t group = std::size_t(item / blocks);
        const std::int64_t begin = item % blocks * block, n = std::min(block, width - begin);
        double sum[kBlock], loaded[kBlock];
        void* to =
            byte_at(gtable.data, gtable.dtype, rows[std::size_t(order[std::size_t(groups[group])])] * width + begin);
        const double* before = load(to, gtable.dtype, 1, n, loaded);
        std::copy_n(before, n, sum);
        for (std::int64_t i = groups[group]; i < groups[group + 1]; ++i) {
            const std::int64_t at = order[std::size_t(i)] * width + begin;
            const double* g = load(byte_at(gy.data, gy.dtype, at), gy.dtype, 1, n, loaded);
            for (std::int64_t k = 0; k < n; ++k) sum[k] += g[k];
        }
        store(sum, to, gtable.dtype, 1, n);
    });
}

// y[o, p, i] = x[o, index[o, p, i], i]
void CpuKernels::gather(const Span3& span, std::int64_t picks, const View& x, const View& index, const View& y) {
    const std::int64_t inner = span.inner;
    with_bits(x.dtype, [&](auto bits) {
        using T = decltype(bits);
        parallel_for(span.outer * picks, span.outer * picks * inner, [&](std::int64_t line) {
            const T* from = x.as<const T>() + line / picks * span.n * inner;
            const std::int64_t* at = index.as<const std::int64_t>() + line * inner;
            T* to = y.as<T>() + line * inner;
            for (std::int64_t i = 0; i < inner; ++i) to[i] = from[at[i] * inner + i];
        });
    });
}

// gx[o, index[o, p, i], i] += gy[o, p, i]
void CpuKernels::scatter_add(const Span3& span, std::int64_t picks, const View& gy, const View& index, const View& gx) {
    const std::int64_t n = span.n, inner = span.inner;
    if (span.outer * picks * n * inner == 0) return;
    // A block of columns belongs to one thread, which adds up in scratch and empties again only what it touched: the
    // work goes with the picks, not with n.
    const std::int64_t width = std::min(inner, std::clamp<std::int64_t>(65536 / n, 1, 64));
    const std::int64_t blocks = divide_up(inner, width);
    ThreadRows<double> scratch(n * width);
    dispatch(gx.dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        parallel_for(span.outer * blocks, span.outer * picks * inner, [&](std::int64_t item) {
            const std::int64_t o = item / blocks, column = item % blocks * width, w = std::min(width, inner - column);
            double* sums = scratch.mine();
            double loaded[64];
            for (std::int64_t p = 0; p < picks; ++p) {
                const std::int64_t from = (o * picks + p) * inner + column;
                const std::int64_t* at = index.as<const std::int64_t>() + from;
                const double* g = load(byte_at(gy.data, gy.dtype, from), gy.dtype, 1, w, loaded);
                for (std::int64_t i = 0; i < w; ++i) sums[at[i] * width + i] += g[i];
            }
            T* to = gx.as<T>() + o * n * inner + column;
            for (std::int64_t p = 0; p < picks; ++p) {
                const std::int64_t* at = index.as<const std::int64_t>() + (o * picks + p) * inner + column;
                for (std::int64_t i = 0; i < w; ++i) {
                    double& sum = sums[at[i] * width + i];
                    if (sum == 0) continue;  // nothing, or already written at an earlier pick of the same place
                    T& cell = to[at[i] * inner + i];
                    cell = static_cast<T>(static_cast<double>(cell) + sum);
                    sum = 0;
                }
            }
        });
    });
}

}  // namespace invar::INVAR_ISA
