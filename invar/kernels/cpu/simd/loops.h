// What the reductions of this folder share: parallel loops, sums along a row in lanes, and sums down the columns.
// Work is cut into pieces of fixed size, summed in a fixed order: the result does not depend on the thread count.
#pragma once

#include <omp.h>

#include <algorithm>
#include <vector>

#include "invar/kernels/cpu/simd/rows.h"

namespace invar::INVAR_ISA {

// Below this many elements waking the other threads costs more than it saves.
inline constexpr std::int64_t kSerial = 8192;

// f(i) for each of the items, which together touch `elements` elements.
template <class F>
void parallel_for(std::int64_t items, std::int64_t elements, const F& f) {
#pragma omp parallel for schedule(static) if (elements > kSerial)
    for (std::int64_t i = 0; i < items; ++i) f(i);
}

// f(TypeTag<C>{}) with the type to compute in.
template <class F>
void compute_as(Dtype dtype, const F& f) {
    if (needs_double(dtype))
        f(TypeTag<double>{});
    else
        f(TypeTag<float>{});
}

inline std::int64_t divide_up(std::int64_t a, std::int64_t b) {
    return (a + b - 1) / b;
}

// One row of scratch for each thread.
template <class C>
class ThreadRows {
  public:
    explicit ThreadRows(std::int64_t n) : n_(n), rows_(std::size_t(n * omp_get_max_threads())) {}
    C* mine() { return rows_.data() + n_ * omp_get_thread_num(); }

  private:
    std::int64_t n_;
    std::vector<C> rows_;
};

// A vector's values as C; empty where there is no tensor.
template <class C>
std::vector<C> load_vector(const View& view) {
    std::vector<C> values(view ? std::size_t(view.numel()) : 0);
    if (values.empty()) return values;
    const C* loaded = load(view.data, view.dtype, 1, view.numel(), values.data());
    if (loaded != values.data()) std::copy_n(loaded, values.size(), values.data());
    return values;
}
// The same, or n times one value where there is no tensor.
template <class C>
std::vector<C> load_or(const View& view, std::int64_t n, C otherwise) {
    return view ? load_vector<C>(view) : std::vector<C>(std::size_t(n), otherwise);
}

// A dense tensor seen as rows along its last dimension.
inline std::int64_t columns_of(const View& x) {
    return x.size[x.rank - 1];
}
inline std::int64_t rows_of(const View& x) {
    return columns_of(x) > 0 ? x.numel() / columns_of(x) : 0;
}

// --- along a row: lanes that the compiler keeps in vector registers, since it may not reorder a sum by itself ---

inline constexpr int kLanes = 32;

// Joins lanes pair by pair, halving their number until one is left.
template <int kCount, class C, class Join>
C fold(C* lanes, const Join& join) {
    if constexpr (kCount == 1) {
        return lanes[0];
    } else {
        for (int k = 0; k < kCount / 2; ++k) lanes[k] = join(lanes[k], lanes[k + kCount / 2]);
        return fold<kCount / 2>(lanes, join);
    }
}

// The sum over i < n of term(i). Each lane adds few terms before the total, in double, takes over.
template <class C, class Term>
double lane_sum(std::int64_t n, const Term& term) {
    double total = 0;
    for (std::int64_t begin = 0; begin < n; begin += kBlock) {
        const std::int64_t end = std::min(n, begin + kBlock);
        C lanes[kLanes] = {};
        std::int64_t i = begin;
        for (; i + kLanes <= end; i += kLanes)
            for (int k = 0; k < kLanes; ++k) lanes[k] += term(i + k);
        for (int k = 0; i < end; ++i, ++k) lanes[k] += term(i);
        total += double(fold<kLanes>(lanes, [](C a, C b) { return a + b; }));
    }
    return total;
}

// True where v takes the place of the best so far: NaN always does, so that it is seen.
template <class C>
inline bool beats(C v, C best) {
    return (v > best) | (v != v);
}

// The largest of n > 0 values, NaN where there is one.
template <class C>
C lane_max(const C* x, std::int64_t n) {
    C best = x[0];
    std::int64_t i = 0;
    if (n >= kLanes) {
        C lanes[kLanes];
        std::copy_n(x, kLanes, lanes);
        for (i = kLanes; i + kLanes <= n; i += kLanes)
            for (int k = 0; k < kLanes; ++k) lanes[k] = beats(x[i + k], lanes[k]) ? x[i + k] : lanes[k];
        best = fold<kLanes>(lanes, [](C a, C b) { return beats(b, a) ? b : a; });
    }
    for (; i < n; ++i) best = beats(x[i], best) ? x[i] : best;
    return best;
}

// --- down the columns of [outer, rows, columns] ---

// Sums `kinds` quantities over the rows; the result is [outer, kinds, columns]. add(o, row, end, column, width, sums)
// adds those rows, at most 64, of `width` columns to sums [kinds, width] of type C; `width` divides the work where
// rows are wide. Sums of so few rows are then added in double.
template <class C, class Add>
std::vector<double> column_sums(std::int64_t outer, std::int64_t rows, std::int64_t columns, std::int64_t width,
                                int kinds, const Add& add) {
    const std::int64_t few = std::clamp<std::int64_t>(4096 / std::max<std::int64_t>(width, 1), 16, 64);
    const std::int64_t per_chunk = few * std::max<std::int64_t>(1, 65536 / (few * std::max<std::int64_t>(width, 1)));
    const std::int64_t chunks = std::max<std::int64_t>(1, divide_up(rows, per_chunk));
    const std::int64_t blocks = divide_up(columns, width);
    std::vector<double> partial(std::size_t(outer * chunks * kinds * columns));
    ThreadRows<C> scratch(kinds * width);
    parallel_for(outer * chunks * blocks, outer * rows * columns, [&](std::int64_t item) {
        const std::int64_t block = item % blocks, chunk = item / blocks % chunks, o = item / blocks / chunks;
        const std::int64_t column = block * width, w = std::min(width, columns - column);
        const std::int64_t end = std::min(rows, (chunk + 1) * per_chunk);
        double* into = partial.data() + (o * chunks + chunk) * kinds * columns + column;
        C* sums = scratch.mine();
        for (std::int64_t row = chunk * per_chunk; row < end; row += few) {
            std::fill_n(sums, kinds * w, C(0));
            add(o, row, std::min(end, row + few), column, w, sums);
            for (int kind = 0; kind < kinds; ++kind)
                for (std::int64_t i = 0; i < w; ++i) into[kind * columns + i] += double(sums[kind * w + i]);
        }
    });
    if (chunks == 1) return partial;
    std::vector<double> total(std::size_t(outer * kinds * columns));
    parallel_for(outer, outer * chunks * kinds * columns, [&](std::int64_t o) {
        double* into = total.data() + o * kinds * columns;
        for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
            const double* from = partial.data() + (o * chunks + chunk) * kinds * columns;
            for (std::int64_t i = 0; i < kinds * columns; ++i) into[i] += from[i];
        }
    });
    return total;
}

}  // namespace invar::INVAR_ISA
