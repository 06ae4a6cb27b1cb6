// Softmax, log-softmax and cross-entropy. The largest value is subtracted first, so that no exponential overflows; a
// row of nothing but -inf gives NaN.
#include "invar/kernels/cuda/brief.cuh"
#include "invar/kernels/cuda/launch.h"
#include "invar/kernels/cuda/source.cuh"

namespace invar::cuda {
namespace {

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

// --- rows (inner == 1), a warp or a block on each ---

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

// --- cross-entropy ---

template <class Source, int kGroup>
__global__ __launch_bounds__(kBlock<kGroup>) void cross_entropy_rows(const CrossEntropySpec spec, const Source x,
                                                                     const Dense logits, const std::int64_t* target,
                                                                     const Dense losses, const Dense kept) {
    using C = typename Source::C;
    constexpr int kWidth = Source::kWidth;
    const std::int64_t r = first_row<kGroup>(), n = spec.classes;
    if (r >= spec.rows) return;
    const std::int64_t label = target[r];
    double loss = 0, sum = 1;
    C largest = 0;
    if (label != spec.ignore_index) {
        const Row<Source, kGroup> row(x, r * n, n);
        largest = largest_of<kGroup>(row);
        sum = sum_of_exponentials<kGroup>(row, largest);
        const double rest = log(sum);
        // Differences from the largest, not from the whole: the logarithm is small beside a large logit.
        loss = (double(largest) - logits.get<double>(r * n + label)) + rest;
        if (spec.label_smoothing != 0) {
            double below = 0;
            row.each([&](std::int64_t, C* v) {
#pragma unroll
                for (int i = 0; i < kWidth; ++i) v[i] = largest - v[i];
                below += small_sum<kWidth>(v);
            });
            const double mean = reduce<kGroup>(below, Add{}) / double(n);
            loss = (1.0 - spec.label_smoothing) * loss + spec.label_smoothing * (mean + rest);
        }
    }
    if (threadIdx.x % kGroup != 0) return;
    losses.put<double>(r, loss);
    kept.put<C>(r, largest);
    kept.put<double>(spec.rows + r, sum);
}

template <class Source, int kGroup>
__global__ __launch_bounds__(kBlock<kGroup>) void cross_entropy_backward_rows(
    const CrossEntropySpec spec, const Source x, const std::int64_t* target, const Dense kept, const Dense glosses,
    const bool one_for_all, const Dense count, const Dense glogits) {
    using C = typename Source::C;
    constexpr int kWidth = Source::kWidth;
    const std::int64_t r = first_row<kGroup>(), n = spec.classes;
    if (r >= spec.rows) return;
    const std::int64_t label = target[r];
    const bool ignored = label == spec.ignore_index;
    const C spread = C(spec.label_smoothing / double(n)), sure = C(1.0 - spec.label_smoothing);
    const C g = glosses.get<C>(one_for_all ? 0 : r) / count.get_or<C>(0, C(1));
    const C largest = kept.get<C>(r), share = C(1) / kept.get<C>(spec.rows + r);
    const Row<Source, kGroup> row(x, r * n, n);
    row.each([&](std::int64_t i, C* v) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k) {
            const C p = exponential<Source>(v[k] - largest) * share - spread;
            v[k] = ignored ? C(0) : (i + k == label ? p - sure : p) * g;
        }
        Source::store(v, glogits, r * n + i);
    });
}

// One block: the losses of a batch are few beside its logits.
__global__ __launch_bounds__(kThreads) void mean_of_losses(const Dense losses, const std::int64_t* target,
                                                           const std::int64_t rows, const std::int64_t ignore_index,
                                                           const Dense mean, const Dense count) {
    constexpr int kUnroll = 8;
    double total = 0;
    std::int64_t counted = 0;
    for (std::int64_t at = threadIdx.x; at < rows; at += kThreads * kUnroll) {
        double loss[kUnroll];
        std::int64_t label[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            const std::int64_t i = at + u * kThreads;
            loss[u] = i < rows ? losses.get<double>(i) : 0.0;
            label[u] = i < rows ? target[i] : ignore_index;
        }
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) total += loss[u], counted += label[u] != ignore_index;
    }
    total = reduce<kThreads>(total, Add{});
    counted = reduce<kThreads>(counted, Add{});
    if (threadIdx.x != 0) return;
    mean.put<double>(0, total / double(counted));
    count.put<double>(0, double(counted));
}

// f(Source tag, group) for rows of n elements.
template <class F>
void for_rows(std::int64_t n, std::initializer_list<const View*> tensors, const F& f) {
    with_source(n, tensors, {}, [&](auto source) {
        with_group<typename decltype(source)::type>(n, [&](auto group) { f(source, group); });
    });
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

void CudaKernels::cross_entropy(const CrossEntropySpec& spec, const View& logits, const View& target,
                                const View& losses, const View& kept) {
    const Launch stream("cross_entropy");
    if (spec.rows == 0) return;
    for_rows(spec.classes, {&logits}, [&](auto tag, auto group) {
        using Source = typename decltype(tag)::type;
        constexpr int kGroup = decltype(group)::value;
        cross_entropy_rows<Source, kGroup><<<grid_for(spec.rows, kRowsABlock<kGroup>), kBlock<kGroup>, 0, stream>>>(
            spec, Source(logits), logits, target.as<const std::int64_t>(), losses, kept);
    });
}

void CudaKernels::cross_entropy_backward(const CrossEntropySpec& spec, const View& logits, const View& target,
                                         const View& kept, const View& glosses, const View& count,
                                         const View& glogits) {
    const Launch stream("cross_entropy_backward");
    if (spec.rows * spec.classes == 0) return;
    for_rows(spec.classes, {&logits, &glogits}, [&](auto tag, auto group) {
        using Source = typename decltype(tag)::type;
        constexpr int kGroup = decltype(group)::value;
        cross_entropy_backward_rows<Source, kGroup>
            <<<grid_for(spec.rows, kRowsABlock<kGroup>), kBlock<kGroup>, 0, stream>>>(
                spec, Source(logits), target.as<const std::int64_t>(), kept, glosses, glosses.numel() == 1, count,
                glogits);
    });
}

void CudaKernels::mean_loss(const View& losses, const View& target, std::int64_t ignore_index, const View& mean,
                            const View& count) {
    const Launch stream("mean_loss");
    mean_of_losses<<<1, kThreads, 0, stream>>>(losses, target.as<const std::int64_t>(), losses.numel(), ignore_index,
                                               mean, count);
}

}  // namespace invar::cuda
