// Sums down the columns of [outer, rows, columns], of one or more quantities at once, in two stages: blocks sum
// stretches of rows, then the stretches are added up, as a ColumnPlan cuts them.
#pragma once

#include "invar/kernels/column_plan.h"
#include "invar/kernels/cuda/source.cuh"

namespace invar::cuda {

static_assert(ColumnPlan::kThreads == kThreads && ColumnPlan::kWarp == kWarp);

// The sum over y of what the threads at (y, x) hold, for every x, to thread j < across * kWidth: that of column j of
// the block.
template <int kWidth, class C>
[[nodiscard]] __device__ inline double sum_over_y(const C* mine, int across, double* shared) {
    const int width = across * kWidth, x = int(threadIdx.x) % across, y = int(threadIdx.x) / across;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kWidth; ++i) shared[y * width + i * across + x] = double(mine[i]);  // banks side by side
    __syncthreads();
    for (int half = kThreads / across / 2; half > 0; half /= 2) {
        for (int i = int(threadIdx.x); i < half * width; i += kThreads) shared[i] += shared[i + half * width];
        __syncthreads();
    }
    const int j = int(threadIdx.x);
    return j < width ? shared[j % kWidth * across + j / kWidth] : 0.0;
}

// A Term reads one pack a row and adds it to its kinds of sums:
//   Raw, Local, kWidth, kKinds, C;  prepare(column, local);  read(row, column, raw);  add(raw, local,
//   sums[kKinds][kWidth]).
// With kShifted it also has first(raw, values) and shift, where the mean of the first few rows goes, to subtract.
// finish(outer, column, sums) takes the totals.
template <class Term, class Finish>
__global__ __launch_bounds__(kThreads, 2) void sum_columns(const Term term, const Finish finish, const ColumnPlan plan,
                                                           double* partial) {
    using C = typename Term::C;
    constexpr int kWidth = Term::kWidth, kKinds = Term::kKinds, kUnroll = 4, kShort = 8;
    __shared__ double shared[kThreads * kWidth];
    const int across = plan.across, x = int(threadIdx.x) % across, y = int(threadIdx.x) / across,
              down = kThreads / across;
    // From the end on: what was written last is still in the cache.
    const Quotient by_column = divide(gridDim.x - 1 - blockIdx.x, plan.column_blocks),
                   by_chunk = divide(by_column.whole, plan.chunks);
    const std::int64_t o = by_chunk.whole, chunk = by_chunk.rest;
    const std::int64_t first_column = by_column.rest * across * kWidth, column = first_column + x * kWidth;
    const std::int64_t mine = first_column + threadIdx.x;  // the column whose total this thread handles
    const bool owner = int(threadIdx.x) < across * kWidth && mine < plan.columns;
    const bool active = column < plan.columns;
    typename Term::Local local{};
    if (active) term.prepare(column, local);

    if constexpr (Term::kShifted) {
        // The mean of the first few rows, which every thread finds for itself, to the same bits.
        constexpr int kFew = 8;
        const int few = int(smaller<std::int64_t>(kFew, plan.rows));
        typename Term::Raw raw[kFew];
        C mean[kWidth] = {};
        if (active) {
#pragma unroll
            for (int i = 0; i < kFew; ++i)
                if (i < few) term.read(i, column, raw[i]);
#pragma unroll
            for (int i = 0; i < kFew; ++i) {
                C values[kWidth];
                if (i < few) {
                    term.first(raw[i], values);
#pragma unroll
                    for (int k = 0; k < kWidth; ++k) mean[k] += values[k];
                }
            }
        }
#pragma unroll
        for (int k = 0; k < kWidth; ++k) {
            local.center[k] = few > 0 ? mean[k] / C(few) : C(0);
            if (active && chunk == 0 && y == 0) term.shift[column + k] = double(local.center[k]);
        }
    }

    double totals[kKinds][kWidth] = {};
    if (active) {
        const std::int64_t end = smaller(plan.rows, (chunk + 1) * plan.rows_each);
        for (std::int64_t first = chunk * plan.rows_each + y; first < end; first += kShort * kUnroll * down) {
            C sums[kKinds][kWidth] = {};  // of a few rows; in double they would cost more than the loads
            for (int part = 0; part < kShort; ++part) {
                const std::int64_t row = first + part * kUnroll * down;
                typename Term::Raw raw[kUnroll];
#pragma unroll
                for (int u = 0; u < kUnroll; ++u)
                    if (row + u * down < end) term.read(o * plan.rows + row + u * down, column, raw[u]);
#pragma unroll
                for (int u = 0; u < kUnroll; ++u)
                    if (row + u * down < end) term.add(raw[u], local, sums);
            }
#pragma unroll
            for (int k = 0; k < kKinds; ++k)
#pragma unroll
                for (int i = 0; i < kWidth; ++i) totals[k][i] += double(sums[k][i]);
        }
    }
    double result[kKinds];
#pragma unroll
    for (int k = 0; k < kKinds; ++k) result[k] = sum_over_y<kWidth>(totals[k], across, shared);
    if (!owner) return;
    if (plan.chunks == 1) return finish(o, mine, result);
#pragma unroll
    for (int k = 0; k < kKinds; ++k)
        partial[((o * plan.chunks + chunk) * kKinds + k) * plan.columns + mine] = result[k];
}

// The second stage: few columns a block, so that there are many blocks, and as many threads as fit on the chunks of
// each.
inline constexpr int kAddedColumns = 8, kAddingThreads = 512 / kAddedColumns;

template <int kKinds, class Finish>
__global__ __launch_bounds__(kAddedColumns* kAddingThreads) void add_chunks(const Finish finish, const ColumnPlan plan,
                                                                            const double* partial) {
    __shared__ double shared[kKinds][kAddingThreads][kAddedColumns];
    const Quotient by_column = divide(blockIdx.x, divide_up(plan.columns, kAddedColumns));
    const int x = int(threadIdx.x) % kAddedColumns, y = int(threadIdx.x) / kAddedColumns;
    const std::int64_t o = by_column.whole, column = by_column.rest * kAddedColumns + x;
    double totals[kKinds] = {};
    if (column < plan.columns) {
#pragma unroll 4
        for (std::int64_t chunk = y; chunk < plan.chunks; chunk += kAddingThreads)
#pragma unroll
            for (int k = 0; k < kKinds; ++k)
                totals[k] += partial[((o * plan.chunks + chunk) * kKinds + k) * plan.columns + column];
    }
#pragma unroll
    for (int k = 0; k < kKinds; ++k) shared[k][y][x] = totals[k];
    for (int half = kAddingThreads / 2; half > 0; half /= 2) {
        __syncthreads();
        if (y < half)
#pragma unroll
            for (int k = 0; k < kKinds; ++k) shared[k][y][x] += shared[k][y + half][x];
    }
    double result[kKinds];  // of use to the first row of threads, which wrote it
#pragma unroll
    for (int k = 0; k < kKinds; ++k) result[k] = shared[k][0][x];
    if (y == 0 && column < plan.columns) finish(o, column, result);
}

template <int kKinds, class Finish>
void launch_add_chunks(const Finish& finish, const ColumnPlan& plan, const double* partial, cudaStream_t stream) {
    const std::int64_t blocks = plan.outer * divide_up(plan.columns, kAddedColumns);
    add_chunks<kKinds><<<unsigned(blocks), kAddedColumns * kAddingThreads, 0, stream>>>(finish, plan, partial);
}

template <class Term, class Finish>
void launch_columns(const Term& term, const Finish& finish, std::int64_t outer, std::int64_t rows, std::int64_t columns,
                    void* scratch, cudaStream_t stream) {
    if (outer * columns == 0) return;
    const ColumnPlan plan(outer, rows, columns, Term::kWidth);
    double* partial = static_cast<double*>(scratch);
    sum_columns<<<unsigned(plan.blocks()), kThreads, 0, stream>>>(term, finish, plan, partial);
    if (plan.chunks == 1) return;
    launch_add_chunks<Term::kKinds>(finish, plan, partial, stream);
}

}  // namespace invar::cuda
