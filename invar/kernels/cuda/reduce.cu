// Sums and maxima over the middle of [outer, n, inner].
#include "invar/kernels/cuda/columns.cuh"
#include "invar/kernels/cuda/launch.h"

namespace invar::cuda {
namespace {

// y = total / divisor (+ y)
struct Put {
    Dense y;
    std::int64_t inner;
    double divisor;
    bool accumulate;
    __device__ void operator()(std::int64_t o, std::int64_t column, const double* total) const {
        const std::int64_t at = o * inner + column;
        double value = divisor == 1 ? total[0] : total[0] / divisor;
        if (accumulate) value += y.get<double>(at);
        y.put<double>(at, value);
    }
};

// --- rows ---

// Few long rows are cut into pieces, so that the whole GPU can work on them; pieces start on a pack.
struct Pieces {
    std::int64_t count, length;
    explicit Pieces(const Span3& span) {
        const std::int64_t most = span.outer < 1056 && span.outer > 0 ? 1056 / span.outer : 1;
        count = smaller(most, span.n / 8192);
        if (count < 1) count = 1;
        length = divide_up(divide_up(span.n, count), 64) * 64;
        count = span.n > 0 ? divide_up(span.n, length) : 1;
    }
};

template <class Source, int kGroup>
__global__ __launch_bounds__(kBlock<kGroup>) void sum_rows(const Source x, const Dense all, const Put put,
                                                           const std::int64_t rows, const std::int64_t n,
                                                           const Pieces pieces, double* partial) {
    using C = typename Source::C;
    constexpr int kWidth = Source::kWidth, kUnroll = 4;
    const std::int64_t item = first_row<kGroup>();
    if (item >= rows * pieces.count) return;  // whole groups leave together
    const Quotient q = divide(item, pieces.count);
    const std::int64_t base = q.whole * n, last = smaller(n, (q.rest + 1) * pieces.length),
                       end = last / kWidth * kWidth;
    double total = 0;
    for (std::int64_t i = q.rest * pieces.length + threadIdx.x % kGroup * kWidth; i < end;
         i += kUnroll * kGroup * kWidth) {
        typename Source::Raw raw[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u)
            if (i + u * kGroup * kWidth < end) x.read(base + i + u * kGroup * kWidth, raw[u]);
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            if (i + u * kGroup * kWidth >= end) break;
            C values[kWidth];
            Source::unpack(raw[u], values);
            total += small_sum<kWidth>(values);
        }
    }
    const std::int64_t left = end + threadIdx.x % kGroup;  // a single row need not end on a pack
    if (left < last) total += all.get<double>(base + left);
    total = reduce<kGroup>(total, Add{});
    if (threadIdx.x % kGroup != 0) return;
    if (pieces.count > 1)
        partial[item] = total;
    else
        put(q.whole, 0, &total);
}

__global__ __launch_bounds__(kThreads) void add_pieces(const Put put, const std::int64_t pieces,
                                                       const double* partial) {
    double total = 0;
    for (std::int64_t i = threadIdx.x; i < pieces; i += kThreads) total += partial[blockIdx.x * pieces + i];
    total = reduce<kThreads>(total, Add{});
    if (threadIdx.x == 0) put(blockIdx.x, 0, &total);
}

// --- columns ---

template <class Source>
struct Values {
    using C = typename Source::C;
    using Raw = typename Source::Raw;
    struct Local {};
    static constexpr int kWidth = Source::kWidth, kKinds = 1;
    static constexpr bool kShifted = false;
    Source x;
    std::int64_t columns;
    __device__ void prepare(std::int64_t, Local&) const {}
    __device__ void read(std::int64_t row, std::int64_t column, Raw& raw) const { x.read(row * columns + column, raw); }
    __device__ void add(const Raw& raw, const Local&, C (*sums)[kWidth]) const {
        C values[kWidth];
        Source::unpack(raw, values);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) sums[0][i] += values[i];
    }
};

// --- many small sums, a thread on each ---

bool many_and_small(const Span3& span) {
    return span.outer > 1056 && span.n * span.inner < 16384 && (span.inner > 1 || span.n <= 16);
}

template <class C>
__global__ __launch_bounds__(kThreads) void sum_each(const Dense x, const Put put, const Span3 span) {
    const std::int64_t count = span.outer * span.inner;
    for (std::int64_t at = global_thread(); at < count; at += grid_threads()) {
        const Quotient q = divide(at, span.inner);
        double total = 0;
        for (std::int64_t row = 0; row < span.n; ++row)
            total += double(x.get<C>((q.whole * span.n + row) * span.inner + q.rest));
        put(q.whole, q.rest, &total);
    }
}

// --- maxima ---

// A value and its place. NaN is larger than anything, so that it is seen; of equals the first wins.
struct Best {
    double value = 0;
    std::int64_t at = -1;  // -1: none yet
};

struct Better {
    __device__ Best operator()(const Best& a, const Best& b) const {
        if (b.at < 0) return a;
        if (a.at < 0) return b;
        const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
        const bool same = a_nan ? b_nan : a.value == b.value;
        if (same) return a.at < b.at ? a : b;
        return b_nan || (!a_nan && b.value > a.value) ? b : a;
    }
};

struct PutBest {
    Dense y;
    std::int64_t* index;
    __device__ void operator()(std::int64_t at, const Best& best) const {
        if (y.data != nullptr) y.put<double>(at, best.value);
        if (index != nullptr) index[at] = best.at;
    }
};

template <int kGroup>
__global__ __launch_bounds__(kThreads) void max_rows(const Dense x, const PutBest put, const std::int64_t rows,
                                                     const std::int64_t n, const Pieces pieces, Best* partial) {
    const std::int64_t item = first_row<kGroup>();
    if (item >= rows * pieces.count) return;
    const Quotient q = divide(item, pieces.count);
    const std::int64_t end = smaller(n, (q.rest + 1) * pieces.length);
    Best best;
    for (std::int64_t i = q.rest * pieces.length + threadIdx.x % kGroup; i < end; i += kGroup)
        best = Better{}(best, Best{x.get<double>(q.whole * n + i), i});
    best = reduce<kGroup>(best, Better{});
    if (threadIdx.x % kGroup != 0) return;
    if (pieces.count > 1)
        partial[item] = best;
    else
        put(q.whole, best);
}

__global__ __launch_bounds__(kThreads) void max_pieces(const PutBest put, const std::int64_t pieces,
                                                       const Best* partial) {
    Best best;
    for (std::int64_t i = threadIdx.x; i < pieces; i += kThreads)
        best = Better{}(best, partial[blockIdx.x * pieces + i]);
    best = reduce<kThreads>(best, Better{});
    if (threadIdx.x == 0) put(blockIdx.x, best);
}

__global__ __launch_bounds__(kThreads) void max_columns(const Dense x, const PutBest put, const Span3 span) {
    const std::int64_t count = span.outer * span.inner;
    for (std::int64_t at = global_thread(); at < count; at += grid_threads()) {
        const Quotient q = divide(at, span.inner);
        Best best;
        for (std::int64_t row = 0; row < span.n; ++row)
            best = Better{}(best, Best{x.get<double>((q.whole * span.n + row) * span.inner + q.rest), row});
        put(at, best);
    }
}

}  // namespace

static std::size_t sum_scratch_bytes(const Span3& span) {
    if (span.outer * span.inner == 0 || many_and_small(span)) return 0;
    if (span.inner > 1) return ColumnPlan::scratch_bytes(span.outer, span.n, span.inner, 1);
    const Pieces pieces(span);
    return pieces.count > 1 ? std::size_t(span.outer * pieces.count) * sizeof(double) : 0;
}

void CudaKernels::sum(const Span3& span, const View& x, const View& y, double divisor, bool accumulate) {
    const Launch stream("sum");
    const Scratch memory(sum_scratch_bytes(span));
    void* const scratch = memory.data();
    if (span.outer * span.inner == 0) return;
    const Put put{y, span.inner, divisor, accumulate};
    if (many_and_small(span)) {
        const unsigned blocks = grid_for(span.outer * span.inner, kThreads);
        if (needs_double(x.dtype))
            sum_each<double><<<blocks, kThreads, 0, stream>>>(x, put, span);
        else
            sum_each<float><<<blocks, kThreads, 0, stream>>>(x, put, span);
        return;
    }
    // A single row need not be a whole number of packs; several must, to start on one.
    const std::int64_t whole = span.inner > 1 ? span.inner : span.outer > 1 ? span.n : 0;
    with_source(whole, {&x}, {}, [&](auto tag) {
        using Source = typename decltype(tag)::type;
        if (span.inner > 1) {
            launch_columns(Values<Source>{Source(x), span.inner}, put, span.outer, span.n, span.inner, scratch, stream);
            return;
        }
        const Pieces pieces(span);
        double* partial = static_cast<double*>(scratch);
        const std::int64_t items = span.outer * pieces.count;
        with_group<Source>(smaller(span.n, pieces.length), [&](auto group) {
            constexpr int kGroup = decltype(group)::value;
            sum_rows<Source, kGroup><<<grid_for(items, kRowsABlock<kGroup>), kBlock<kGroup>, 0, stream>>>(
                Source(x), x, put, span.outer, span.n, pieces, partial);
        });
        if (pieces.count > 1) add_pieces<<<unsigned(span.outer), kThreads, 0, stream>>>(put, pieces.count, partial);
    });
}

static std::size_t max_scratch_bytes(const Span3& span) {
    if (span.inner > 1) return 0;
    const Pieces pieces(span);
    return pieces.count > 1 ? std::size_t(span.outer * pieces.count) * sizeof(Best) : 0;
}

void CudaKernels::max(const Span3& span, const View& x, const View& y, const View& index) {
    const Launch stream("max");
    const Scratch memory(max_scratch_bytes(span));
    void* const scratch = memory.data();
    if (span.outer * span.inner == 0) return;
    const PutBest put{y, index.as<std::int64_t>()};
    if (span.inner > 1) {
        max_columns<<<grid_for(span.outer * span.inner, kThreads), kThreads, 0, stream>>>(x, put, span);
        return;
    }
    const Pieces pieces(span);
    Best* partial = static_cast<Best*>(scratch);
    const std::int64_t items = span.outer * pieces.count;
    if (span.n <= 1024)
        max_rows<kWarp><<<grid_for(items, kRowsABlock<kWarp>), kBlock<kWarp>, 0, stream>>>(x, put, span.outer, span.n,
                                                                                           pieces, partial);
    else
        max_rows<kThreads><<<grid_for(items, 1), kThreads, 0, stream>>>(x, put, span.outer, span.n, pieces, partial);
    if (pieces.count > 1) max_pieces<<<unsigned(span.outer), kThreads, 0, stream>>>(put, pieces.count, partial);
}

}  // namespace invar::cuda
