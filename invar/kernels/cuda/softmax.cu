// Softmax and log-softmax.
#include "invar/kernels/cuda/launch.h"
#include "invar/kernels/cuda/softmax.cuh"

namespace invar::cuda {
namespace {

// --- rows (inner == 1), a warp or a block on each ---

// kWide: the result is f32, whatever the source is.
template <class Source, int kGroup, bool kWide>
__global__ __launch_bounds__(kBlock<kGroup>) void softmax_rows(const Source x, const Dense y, const std::int64_t rows,
                                                               const std::int64_t n, const bool log_form) {
    using C = typename Source::C;
    constexpr int kWidth = Source::kWidth;
    const std::int64_t r = first_row<kGroup>();
    if (r >= rows) return;
    const Row<Source, kGroup> row(x, r * n, n);
    const C largest = largest_of<kGroup>(row);
    const double total = sum_of_exponentials<kGroup, kWide>(row, largest);
    const C last = C(log_form ? log(total) : 1.0 / total);
    row.each([&](std::int64_t i, C* v) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k)
            v[k] = log_form ? (v[k] - largest) - last : exponential<Source, kWide>(v[k] - largest) * last;
        if constexpr (kWide)
            store_pack<kWidth>(v, y, r * n + i);
        else
            Source::store(v, y, r * n + i);
    });
}

// kNarrow: the gradient is of 16 bits, beside a source of f32.
template <class Source, int kGroup, bool kNarrow>
__global__ __launch_bounds__(kBlock<kGroup>) void softmax_backward_rows(const Source gy, const Source y, const Dense gx,
                                                                        const std::int64_t rows, const std::int64_t n,
                                                                        const bool log_form) {
    using C = typename Source::C;
    constexpr int kWidth = Source::kWidth;
    const std::int64_t r = first_row<kGroup>();
    if (r >= rows) return;
    const Row<Source, kGroup> gradients(gy, r * n, n), outputs(y, r * n, n);
    double sum = 0;
    gradients.each_with(outputs, [&](std::int64_t, C* g, const C* p) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k) g[k] = log_form ? g[k] : g[k] * p[k];
        sum += small_sum<kWidth>(g);
    });
    const C total = C(reduce<kGroup>(sum, Add{}));
    gradients.each_with(outputs, [&](std::int64_t i, C* g, const C* p) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k)
            g[k] = log_form ? g[k] - exponential<Source>(p[k]) * total : p[k] * (g[k] - total);
        if constexpr (kNarrow)
            store_pack<kWidth>(g, gx, r * n + i);
        else
            Source::store(g, gx, r * n + i);
    });
}

// --- columns (inner > 1), a thread on each; neighbours read side by side ---

template <class C>
__global__ __launch_bounds__(kThreads) void softmax_columns(const Dense x, const Dense y, const Span3 span,
                                                            const bool log_form) {
    const std::int64_t count = span.outer * span.inner;
    for (std::int64_t item = global_thread(); item < count; item += grid_threads()) {
        const Quotient q = divide(item, span.inner);
        const std::int64_t base = q.whole * span.n * span.inner + q.rest;
        C largest = C(-INFINITY);
        for (std::int64_t i = 0; i < span.n; ++i) largest = Larger{}(largest, x.get<C>(base + i * span.inner));
        double total = 0;
        for (std::int64_t i = 0; i < span.n; ++i)
            total += double(exponential<AnySource<C>>(x.get<C>(base + i * span.inner) - largest));
        const C last = C(log_form ? log(total) : 1.0 / total);
        for (std::int64_t i = 0; i < span.n; ++i) {
            const std::int64_t at = base + i * span.inner;
            const C v = x.get<C>(at) - largest;
            y.put<C>(at, log_form ? v - last : exponential<AnySource<C>>(v) * last);
        }
    }
}

template <class C>
__global__ __launch_bounds__(kThreads) void softmax_backward_columns(const Dense gy, const Dense y, const Dense gx,
                                                                     const Span3 span, const bool log_form) {
    const std::int64_t count = span.outer * span.inner;
    for (std::int64_t item = global_thread(); item < count; item += grid_threads()) {
        const Quotient q = divide(item, span.inner);
        const std::int64_t base = q.whole * span.n * span.inner + q.rest;
        double sum = 0;
        for (std::int64_t i = 0; i < span.n; ++i) {
            const C g = gy.get<C>(base + i * span.inner);
            sum += double(log_form ? g : g * y.get<C>(base + i * span.inner));
        }
        const C total = C(sum);
        for (std::int64_t i = 0; i < span.n; ++i) {
            const std::int64_t at = base + i * span.inner;
            const C g = gy.get<C>(at), p = y.get<C>(at);
            gx.put<C>(at, log_form ? g - exponential<AnySource<C>>(p) * total : p * (g - total));
        }
    }
}

}  // namespace

void CudaKernels::softmax(const Span3& span, const View& x, const View& y, bool log) {
    const Launch stream("softmax");
    if (span.outer * span.n * span.inner == 0) return;
    if (span.inner > 1) {
        const unsigned blocks = grid_for(span.outer * span.inner, kThreads);
        if (needs_double(x.dtype))
            softmax_columns<double><<<blocks, kThreads, 0, stream>>>(x, y, span, log);
        else
            softmax_columns<float><<<blocks, kThreads, 0, stream>>>(x, y, span, log);
        return;
    }
    const auto run = [&](auto tag, auto group, auto wide) {
        using Source = typename decltype(tag)::type;
        constexpr int kGroup = decltype(group)::value;
        softmax_rows<Source, kGroup, decltype(wide)::value>
            <<<grid_for(span.outer, kRowsABlock<kGroup>), kBlock<kGroup>, 0, stream>>>(Source(x), y, span.outer, span.n,
                                                                                       log);
    };
    if (is_sixteen_bit(x.dtype) && y.dtype == Dtype::f32 && aligned(y.data))
        for_rows(span.n, {&x}, [&](auto tag, auto group) { run(tag, group, std::true_type{}); });
    else
        for_rows(span.n, {&x, &y}, [&](auto tag, auto group) { run(tag, group, std::false_type{}); });
}

void CudaKernels::softmax_backward(const Span3& span, const View& gy, const View& y, const View& gx, bool log) {
    const Launch stream("softmax_backward");
    if (span.outer * span.n * span.inner == 0) return;
    if (span.inner > 1) {
        const unsigned blocks = grid_for(span.outer * span.inner, kThreads);
        if (needs_double(gx.dtype))
            softmax_backward_columns<double><<<blocks, kThreads, 0, stream>>>(gy, y, gx, span, log);
        else
            softmax_backward_columns<float><<<blocks, kThreads, 0, stream>>>(gy, y, gx, span, log);
        return;
    }
    const auto run = [&](auto tag, auto group, auto narrow) {
        using Source = typename decltype(tag)::type;
        constexpr int kGroup = decltype(group)::value;
        softmax_backward_rows<Source, kGroup, decltype(narrow)::value>
            <<<grid_for(span.outer, kRowsABlock<kGroup>), kBlock<kGroup>, 0, stream>>>(Source(gy), Source(y), gx,
                                                                                       span.outer, span.n, log);
    };
    if (gy.dtype == Dtype::f32 && is_sixteen_bit(gx.dtype) && aligned(gx.data))
        for_rows(span.n, {&gy, &y}, [&](auto tag, auto group) { run(tag, group, std::true_type{}); });
    else
        for_rows(span.n, {&gy, &y, &gx}, [&](auto tag, auto group) { run(tag, group, std::false_type{}); });
}

}  // namespace invar::cuda
