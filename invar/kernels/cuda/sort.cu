// The order of elements along the middle of [outer, n, inner]: all lines in one sort, by line and then by value.
#include <utility>

#include "invar/kernels/cuda/launch.h"
#include "invar/kernels/cuda/radix_sort.h"
#include "invar/kernels/cuda/vector.cuh"
#include "invar/kernels/sort_key.h"

namespace invar::cuda {
namespace {

// Elements one line after the other: where the p-th of a line lies in memory.
__device__ inline std::int64_t place_of(const Span3& span, std::int64_t line, std::int64_t p) {
    const Quotient q = divide(line, span.inner);
    return (q.whole * span.n + p) * span.inner + q.rest;
}

// A small key has the line above it in the same number; a large one has no room for it.
template <class V>
__global__ __launch_bounds__(kThreads) void make_keys(const Dense x, const Span3 span, const bool descending,
                                                      std::uint64_t* keys, std::int64_t* order) {
    const std::int64_t count = span.outer * span.n * span.inner;
    for (std::int64_t e = global_thread(); e < count; e += grid_threads()) {
        const Quotient q = divide(e, span.n);
        const auto key = sort_key(x.get<V>(place_of(span, q.whole, q.rest)));
        const auto directed = descending ? decltype(key)(~key) : key;
        keys[e] = sizeof(key) == 4 ? std::uint64_t(q.whole) << 32 | directed : directed;
        order[e] = e;
    }
}

__global__ __launch_bounds__(kThreads) void make_line_keys(const std::int64_t n, const std::int64_t count,
                                                           const std::int64_t* order, std::uint64_t* keys) {
    for (std::int64_t e = global_thread(); e < count; e += grid_threads())
        keys[e] = std::uint64_t(divide(order[e], n).whole);
}

__global__ __launch_bounds__(kThreads) void write_places(const Span3 span, const std::int64_t picks,
                                                         const std::int64_t* order, std::int64_t* index) {
    const std::int64_t count = span.outer * picks * span.inner;
    for (std::int64_t at = global_thread(); at < count; at += grid_threads()) {
        const Quotient inner = divide(at, span.inner), pick = divide(inner.whole, picks);
        const std::int64_t line = pick.whole * span.inner + inner.rest;
        index[at] = order[line * span.n + pick.rest] - line * span.n;
    }
}

}  // namespace

void CudaKernels::sort(const Span3& span, std::int64_t picks, const View& x, const View& index, bool descending) {
    const Launch stream("sort");
    const std::int64_t lines = span.outer * span.inner, count = lines * span.n;
    if (lines * picks == 0) return;
    const std::size_t list = round_up(std::size_t(count) * 8), bytes = radix_sort_bytes(count);
    const Scratch memory(4 * list + bytes);
    char* const base = static_cast<char*>(memory.data());
    SortBuffers buffers{reinterpret_cast<std::uint64_t*>(base), reinterpret_cast<std::uint64_t*>(base + list),
                        reinterpret_cast<std::int64_t*>(base + 2 * list),
                        reinterpret_cast<std::int64_t*>(base + 3 * list)};
    const unsigned blocks = grid_for(count, kThreads, 1 << 20);
    const auto fill = [&](auto tag) {
        using V = typename decltype(tag)::type;
        make_keys<V><<<blocks, kThreads, 0, stream>>>(x, span, descending, buffers.keys, buffers.values);
    };
    const bool large = x.dtype == Dtype::f64 || x.dtype == Dtype::i64;
    if (x.dtype == Dtype::f64)
        fill(TypeTag<double>{});
    else if (x.dtype == Dtype::i64)
        fill(TypeTag<std::int64_t>{});
    else if (is_floating(x.dtype))
        fill(TypeTag<float>{});
    else
        fill(TypeTag<std::int32_t>{});
    const int line_bits = lines > 1 ? bits_below(lines) : 0;
    radix_sort(buffers, count, large ? 64 : 32 + line_bits, base + 4 * list, bytes, stream);
    if (large && lines > 1) {  // by value they are; the sort is stable, so that they stay so within each line
        std::swap(buffers.values, buffers.sorted_values);
        make_line_keys<<<blocks, kThreads, 0, stream>>>(span.n, count, buffers.values, buffers.keys);
        radix_sort(buffers, count, line_bits, base + 4 * list, bytes, stream);
    }
    write_places<<<grid_for(lines * picks, kThreads, 1 << 20), kThreads, 0, stream>>>(
        span, picks, buffers.sorted_values, index.as<std::int64_t>());
}

}  // namespace invar::cuda
