// Running sums over the middle of [outer, n, inner]: a block on each line, or, where there are many lines side by side,
// a thread.
#include "invar/kernels/cuda/launch.h"
#include "invar/kernels/cuda/vector.cuh"

namespace invar::cuda {
namespace {

// The sum of what the threads up to this one hold, and of what all of them hold, in an order that is always the same.
template <class A>
__device__ inline A scan_block(A mine, A& all) {
    constexpr int kWarps = kThreads / kWarp;
    __shared__ A parts[kWarps];
    const int lane = int(threadIdx.x) % kWarp, warp = int(threadIdx.x) / kWarp;
#pragma unroll
    for (int step = 1; step < kWarp; step *= 2) {
        const A before = __shfl_up_sync(0xffffffffu, mine, unsigned(step));
        if (lane >= step) mine = before + mine;
    }
    __syncthreads();  // the threads may still be reading what an earlier call left there
    if (lane == kWarp - 1) parts[warp] = mine;
    __syncthreads();
    A before = 0;
    all = 0;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) {
        if (i == warp) before = all;
        all = all + parts[i];
    }
    return before + mine;
}

// Sums are kept in A, double or, for whole numbers in two's complement, std::uint64_t; elements are of type V.
template <class A, class V>
__global__ __launch_bounds__(kThreads) void scan_lines(const Dense x, const Dense y, const Span3 span,
                                                       const bool reverse) {
    const std::int64_t lines = span.outer * span.inner;
    for (std::int64_t line = blockIdx.x; line < lines; line += gridDim.x) {
        const Quotient q = divide(line, span.inner);
        const std::int64_t base = q.whole * span.n * span.inner + q.rest;
        A total = 0;
        for (std::int64_t begin = 0; begin < span.n; begin += kThreads) {
            const std::int64_t i = begin + threadIdx.x, at = base + (reverse ? span.n - 1 - i : i) * span.inner;
            A all;
            const A sum = scan_block<A>(i < span.n ? A(x.get<V>(at)) : A(0), all);
            if (i < span.n) y.put<V>(at, V(total + sum));
            total = total + all;
        }
    }
}

template <class A, class V>
__global__ __launch_bounds__(kThreads) void scan_columns(const Dense x, const Dense y, const Span3 span,
                                                         const bool reverse) {
    const std::int64_t lines = span.outer * span.inner;
    for (std::int64_t line = global_thread(); line < lines; line += grid_threads()) {
        const Quotient q = divide(line, span.inner);
        const std::int64_t base = q.whole * span.n * span.inner + q.rest;
        A total = 0;
        for (std::int64_t i = 0; i < span.n; ++i) {
            const std::int64_t at = base + (reverse ? span.n - 1 - i : i) * span.inner;
            total = total + A(x.get<V>(at));
            y.put<V>(at, V(total));
        }
    }
}

// As many lines that lie side by side keep the GPU busy with a thread on each.
inline constexpr std::int64_t kManyLines = 16384;

template <class A, class V>
void scan(const Span3& span, const View& x, const View& y, bool reverse, cudaStream_t stream) {
    const std::int64_t lines = span.outer * span.inner;
    if (lines * span.n == 0) return;
    if (span.inner >= kWarp && lines >= kManyLines)
        scan_columns<A, V><<<grid_for(lines, kThreads, 1 << 20), kThreads, 0, stream>>>(x, y, span, reverse);
    else
        scan_lines<A, V><<<grid_for(lines, 1, 1 << 20), kThreads, 0, stream>>>(x, y, span, reverse);
}

}  // namespace

void CudaKernels::cumsum(const Span3& span, const View& x, const View& y, bool reverse) {
    const Launch stream("cumsum");
    if (y.dtype == Dtype::i64)
        scan<std::uint64_t, std::int64_t>(span, x, y, reverse, stream);
    else
        scan<double, double>(span, x, y, reverse, stream);
}

}  // namespace invar::cuda
