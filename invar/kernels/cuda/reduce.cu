// Sums and products over the middle of [outer, n, inner], and where its largest or smallest elements are.
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

// --- folds: what is joined two by two, in any order ---

// A fold says what an element is, how two are joined, and where the last one goes.

// A value and its place. NaN is larger than anything, so that it is seen; of equals the first wins.
template <class C>
struct Best {
    C value = 0;
    std::int64_t at = -1;  // -1: none yet
};

template <class C>
struct FindBest {
    using Value = Best<C>;
    Dense x;
    std::int64_t* index;
    bool smallest;

    __device__ Value get(std::int64_t at, std::int64_t place) const {
        const C value = x.get<C>(at);
        if constexpr (std::is_integral_v<C>)
            return {smallest ? ~value : value, place};  // the other way round in order, without leaving the range
        else
            return {smallest ? -value : value, place};
    }
    __device__ Value operator()(const Value& a, const Value& b) const {
        if (b.at < 0) return a;
        if (a.at < 0) return b;
        const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
        const bool same = a_nan ? b_nan : a.value == b.value;
        if (same) return a.at < b.at ? a : b;
        return b_nan || (!a_nan && b.value > a.value) ? b : a;
    }
    __device__ void put(std::int64_t at, const Value& best) const { index[at] = best.at; }
};

// Whole numbers, in two's complement: what leaves the range comes in again at the other end.
struct SumWhole {
    using Value = std::uint64_t;
    Dense x;
    std::int64_t* y;

    __device__ Value get(std::int64_t at, std::int64_t) const { return Value(x.get<std::int64_t>(at)); }
    __device__ Value operator()(Value a, Value b) const { return a + b; }
    __device__ void put(std::int64_t at, Value total) const { y[at] = std::int64_t(total); }
};

// What is not 0 multiplied up, and the zeros counted.
struct Product {
    double value = 1;
    std::int64_t zeros = 0;
};
struct Multiply {
    using Value = Product;
    Dense x;
    double* product;
    std::int64_t* zeros;

    __device__ Value get(std::int64_t at, std::int64_t) const {
        const double v = x.get<double>(at);
        return {v == 0 ? 1 : v, v == 0};
    }
    __device__ Value operator()(const Value& a, const Value& b) const { return {a.value * b.value, a.zeros + b.zeros}; }
    __device__ void put(std::int64_t at, const Value& total) const {
        product[at] = total.value;
        zeros[at] = total.zeros;
    }
};

// Whole numbers, in two's complement. Values are products less 1, so that 0 is the product of nothing.
struct MultiplyWhole {
    using Value = std::uint64_t;
    Dense x;
    std::int64_t* product;

    __device__ Value get(std::int64_t at, std::int64_t) const { return Value(x.get<std::int64_t>(at)) - 1; }
    __device__ Value operator()(Value a, Value b) const { return a * b + a + b; }
    __device__ void put(std::int64_t at, Value total) const { product[at] = std::int64_t(total + 1); }
};

template <int kGroup, class Fold>
__global__ __launch_bounds__(kThreads) void fold_rows(const Fold fold, const std::int64_t rows, const std::int64_t n,
                                                      const Pieces pieces, typename Fold::Value* partial) {
    const std::int64_t item = first_row<kGroup>();
    if (item >= rows * pieces.count) return;
    const Quotient q = divide(item, pieces.count);
    const std::int64_t end = smaller(n, (q.rest + 1) * pieces.length);
    typename Fold::Value value{};
    for (std::int64_t i = q.rest * pieces.length + threadIdx.x % kGroup; i < end; i += kGroup)
        value = fold(value, fold.get(q.whole * n + i, i));
    value = reduce<kGroup>(value, fold);
    if (threadIdx.x % kGroup != 0) return;
    if (pieces.count > 1)
        partial[item] = value;
    else
        fold.put(q.whole, value);
}

template <class Fold>
__global__ __launch_bounds__(kThreads) void fold_pieces(const Fold fold, const std::int64_t pieces,
                                                        const typename Fold::Value* partial) {
    typename Fold::Value value{};
    for (std::int64_t i = threadIdx.x; i < pieces; i += kThreads) value = fold(value, partial[blockIdx.x * pieces + i]);
    value = reduce<kThreads>(value, fold);
    if (threadIdx.x == 0) fold.put(blockIdx.x, value);
}

template <class Fold>
__global__ __launch_bounds__(kThreads) void fold_columns(const Fold fold, const Span3 span) {
    const std::int64_t count = span.outer * span.inner;
    for (std::int64_t at = global_thread(); at < count; at += grid_threads()) {
        const Quotient q = divide(at, span.inner);
        typename Fold::Value value{};
        for (std::int64_t row = 0; row < span.n; ++row)
            value = fold(value, fold.get((q.whole * span.n + row) * span.inner + q.rest, row));
        fold.put(at, value);
    }
}

template <class Fold>
void run_fold(const Fold& fold, const Span3& span, cudaStream_t stream) {
    using Value = typename Fold::Value;
    if (span.outer * span.inner == 0) return;
    if (span.inner > 1) {
        fold_columns<<<grid_for(span.outer * span.inner, kThreads), kThreads, 0, stream>>>(fold, span);
        return;
    }
    const Pieces pieces(span);
    const std::int64_t items = span.outer * pieces.count;
    const Scratch memory(pieces.count > 1 ? std::size_t(items) * sizeof(Value) : 0);
    auto* const partial = static_cast<Value*>(memory.data());
    if (span.n <= 1024)
        fold_rows<kWarp><<<grid_for(items, kRowsABlock<kWarp>), kBlock<kWarp>, 0, stream>>>(fold, span.outer, span.n,
                                                                                            pieces, partial);
    else
        fold_rows<kThreads><<<grid_for(items, 1), kThreads, 0, stream>>>(fold, span.outer, span.n, pieces, partial);
    if (pieces.count > 1) fold_pieces<<<unsigned(span.outer), kThreads, 0, stream>>>(fold, pieces.count, partial);
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
    if (y.dtype == Dtype::i64) return run_fold(SumWhole{x, y.as<std::int64_t>()}, span, stream);
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

void CudaKernels::prod(const Span3& span, const View& x, const View& product, const View& zeros) {
    const Launch stream("prod");
    if (zeros)
        run_fold(Multiply{x, product.as<double>(), zeros.as<std::int64_t>()}, span, stream);
    else
        run_fold(MultiplyWhole{x, product.as<std::int64_t>()}, span, stream);
}

void CudaKernels::extreme(const Span3& span, const View& x, const View& index, bool smallest) {
    const Launch stream("extreme");
    if (is_floating(x.dtype))
        run_fold(FindBest<double>{x, index.as<std::int64_t>(), smallest}, span, stream);
    else
        run_fold(FindBest<std::int64_t>{x, index.as<std::int64_t>(), smallest}, span, stream);
}

}  // namespace invar::cuda
