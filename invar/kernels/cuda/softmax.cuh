// What softmax and cross-entropy do with a row: its largest value, and the sum of the exponentials of what the others
// are below it. The largest is subtracted first, so that no exponential overflows; a row of nothing but -inf gives NaN.
#pragma once

#include "invar/kernels/cuda/brief.cuh"
#include "invar/kernels/cuda/source.cuh"

namespace invar::cuda {

// Rows of 16 bits keep fewer digits than the short form has; results of FP32 made of them do not.
template <class Source, bool kWide = false, class C>
__device__ inline C exponential(C x) {
    if constexpr (std::is_same_v<C, double>)
        return exp(x);
    else if constexpr (!kWide && (std::is_same_v<Source, PackSource<f16>> || std::is_same_v<Source, PackSource<bf16>>))
        return brief_exp(x);
    else
        return expf(x);
}

template <int kGroup, class Row>
__device__ auto largest_of(const Row& row) {
    using C = typename Row::C;
    C best = C(-INFINITY);
    row.each([&](std::int64_t, const C* v) {
#pragma unroll
        for (int i = 0; i < Row::kWidth; ++i) best = Larger{}(best, v[i]);
    });
    return reduce<kGroup>(best, Larger{});
}

template <int kGroup, bool kWide = false, class Row, class C>
__device__ double sum_of_exponentials(const Row& row, C largest) {
    double total = 0;
    row.each([&](std::int64_t, C* v) {
#pragma unroll
        for (int i = 0; i < Row::kWidth; ++i) v[i] = exponential<typename Row::Source, kWide>(v[i] - largest);
        total += small_sum<Row::kWidth>(v);
    });
    return reduce<kGroup>(total, Add{});
}

// f(Source tag, group) for rows of n elements.
template <class F>
void for_rows(std::int64_t n, std::initializer_list<const View*> tensors, const F& f) {
    with_source(n, tensors, {}, [&](auto source) {
        with_group<typename decltype(source)::type>(n, [&](auto group) { f(source, group); });
    });
}

}  // namespace invar::cuda
