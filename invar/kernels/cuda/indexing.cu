// Rows and elements picked by index, and their gradients. Picks are sorted by the place they fall on, so that each
// place is read, added to and written by one thread, in the order of the picks: the result is the same on every run.
#include "invar/kernels/cuda/launch.h"
#include "invar/kernels/cuda/radix_sort.h"
#include "invar/kernels/cuda/vector.cuh"

namespace invar::cuda {
namespace {

struct Ids {
    const void* data;
    bool small;  // i32
    explicit Ids(const View& view) : data(view.data), small(view.dtype == Dtype::i32) {}
    __device__ std::int64_t operator[](std::int64_t i) const {
        return small ? std::int64_t(static_cast<const std::int32_t*>(data)[i])
                     : static_cast<const std::int64_t*>(data)[i];
    }
};

template <class Unit>
__global__ __launch_bounds__(kThreads) void pick_rows(const Unit* table, const Ids ids, Unit* y,
                                                      const std::int64_t width, const std::int64_t count) {
    for (std::int64_t i = global_thread(); i < count; i += grid_threads()) {
        const Quotient q = divide(i, width);
        y[i] = table[ids[q.whole] * width + q.rest];
    }
}

__global__ __launch_bounds__(kThreads) void pick_rows_any(const Dense table, const Ids ids, const Dense y,
                                                          const std::int64_t width, const std::int64_t count) {
    for (std::int64_t i = global_thread(); i < count; i += grid_threads()) {
        const Quotient q = divide(i, width);
        y.put<double>(i, table.get<double>(ids[q.whole] * width + q.rest));
    }
}

// Calls f with an unsigned type as large as neighbouring bytes can be moved at once.
template <class F>
void with_unit(std::size_t bytes, const F& f) {
    if (bytes % 16 == 0)
        f(TypeTag<uint4>{});
    else if (bytes % 8 == 0)
        f(TypeTag<uint2>{});
    else if (bytes % 4 == 0)
        f(TypeTag<std::uint32_t>{});
    else if (bytes % 2 == 0)
        f(TypeTag<std::uint16_t>{});
    else
        f(TypeTag<std::uint8_t>{});
}

// y[o, p, i] = x[o, index[o, p, i], i]
template <class Unit>
__global__ __launch_bounds__(kThreads) void gather_elements(const Span3 span, const std::int64_t picks, const Unit* x,
                                                            const std::int64_t* index, Unit* y) {
    const std::int64_t count = span.outer * picks * span.inner;
    for (std::int64_t at = global_thread(); at < count; at += grid_threads()) {
        const Quotient line = divide(at, span.inner), o = divide(line.whole, picks);
        y[at] = x[(o.whole * span.n + index[at]) * span.inner + line.rest];
    }
}

// --- sums of what falls on one place ---

__global__ __launch_bounds__(kThreads) void row_keys(const Ids ids, const std::int64_t count, std::uint64_t* keys,
                                                     std::int64_t* order) {
    for (std::int64_t i = global_thread(); i < count; i += grid_threads())
        keys[i] = std::uint64_t(ids[i]), order[i] = i;
}

__device__ inline std::int64_t target_of(const Span3& span, std::int64_t picks, const std::int64_t* index,
                                         std::int64_t at) {
    const Quotient line = divide(at, span.inner), o = divide(line.whole, picks);
    return (o.whole * span.n + index[at]) * span.inner + line.rest;
}

__global__ __launch_bounds__(kThreads) void element_keys(const Span3 span, const std::int64_t picks,
                                                         const std::int64_t* index, const std::int64_t count,
                                                         std::uint64_t* keys, std::int64_t* order) {
    for (std::int64_t i = global_thread(); i < count; i += grid_threads())
        keys[i] = std::uint64_t(target_of(span, picks, index, i)), order[i] = i;
}

// One pick a line: nothing can fall on the same place twice.
__global__ __launch_bounds__(kThreads) void scatter_single(const Span3 span, const Dense gy, const std::int64_t* index,
                                                           const Dense gx) {
    const std::int64_t count = span.outer * span.inner;
    for (std::int64_t i = global_thread(); i < count; i += grid_threads()) {
        const std::int64_t to = target_of(span, 1, index, i);
        gx.put<double>(to, gx.get<double>(to) + gy.get<double>(i));
    }
}

// Sorted picks, `width` elements each. A run of equal keys is cut at multiples of kStretch, so that one frequent id
// does not leave a single thread with all the work.
inline constexpr std::int64_t kStretch = 64;

struct Runs {
    const std::uint64_t* keys;
    const std::int64_t* order;
    std::int64_t count, width;
    double* partial;  // [count / kStretch, width]
    Dense from, to;

    __device__ bool starts(std::int64_t j) const { return j == 0 || keys[j] != keys[j - 1]; }
    // The sum from j to the end of its run or stretch; j moves there.
    __device__ double stretch(std::int64_t& j, std::int64_t column) const {
        const std::uint64_t key = keys[j];
        double sum = 0;
        do {
            sum += from.get<double>(order[j] * width + column);
            ++j;
        } while (j < count && j % kStretch != 0 && keys[j] == key);
        return sum;
    }
};

__global__ __launch_bounds__(kThreads) void sum_stretches(const Runs runs) {
    const std::int64_t items = divide_up(runs.count, kStretch) * runs.width;
    for (std::int64_t item = global_thread(); item < items; item += grid_threads()) {
        const Quotient q = divide(item, runs.width);
        std::int64_t j = q.whole * kStretch;
        if (!runs.starts(j)) runs.partial[item] = runs.stretch(j, q.rest);
    }
}

__global__ __launch_bounds__(kThreads) void sum_runs(const Runs runs) {
    const std::int64_t items = runs.count * runs.width;
    for (std::int64_t item = global_thread(); item < items; item += grid_threads()) {
        const Quotient q = divide(item, runs.width);
        std::int64_t j = q.whole;
        if (!runs.starts(j)) continue;
        const std::uint64_t key = runs.keys[j];
        const std::int64_t to = std::int64_t(key) * runs.width + q.rest;
        double sum = runs.to.get<double>(to) + runs.stretch(j, q.rest);
        for (; j < runs.count && runs.keys[j] == key; j += kStretch)
            sum += runs.partial[j / kStretch * runs.width + q.rest];
        runs.to.put<double>(to, sum);
    }
}

// Scratch: keys and order, before and after the sort, the stretches' sums, and what the sort itself wants.
struct Workspace {
    std::size_t list, partial, sort;
    Workspace(std::int64_t count, std::int64_t width)
        : list(round_up(std::size_t(count) * 8)),
          partial(round_up(std::size_t(divide_up(count, kStretch) * width) * sizeof(double))),
          sort(radix_sort_bytes(count)) {}
    std::size_t bytes() const { return 4 * list + partial + sort; }
};

// Fills keys and order by fill(keys, order), sorts them and adds the runs; keys are below `places`.
template <class Fill>
void add_sorted(std::int64_t count, std::int64_t width, std::int64_t places, const View& from, const View& to,
                void* scratch, cudaStream_t stream, const Fill& fill) {
    const Workspace space(count, width);
    char* base = static_cast<char*>(scratch);
    auto* keys = reinterpret_cast<std::uint64_t*>(base);
    auto* sorted = reinterpret_cast<std::uint64_t*>(base + space.list);
    auto* order = reinterpret_cast<std::int64_t*>(base + 2 * space.list);
    auto* sorted_order = reinterpret_cast<std::int64_t*>(base + 3 * space.list);
    auto* partial = reinterpret_cast<double*>(base + 4 * space.list);
    fill(keys, order);
    radix_sort({keys, sorted, order, sorted_order}, count, bits_below(places), base + 4 * space.list + space.partial,
               space.sort, stream);
    const Runs runs{sorted, sorted_order, count, width, partial, from, to};
    sum_stretches<<<grid_for(divide_up(count, kStretch) * width, kThreads), kThreads, 0, stream>>>(runs);
    sum_runs<<<grid_for(count * width, kThreads), kThreads, 0, stream>>>(runs);
}

}  // namespace

void CudaKernels::embedding(const View& table, const View& ids, const View& y) {
    const Launch stream("embedding");
    const std::int64_t width = table.size[table.rank - 1], count = ids.numel() * width;
    if (count == 0) return;
    if (table.dtype != y.dtype) {
        pick_rows_any<<<grid_for(count, kThreads), kThreads, 0, stream>>>(table, Ids(ids), y, width, count);
        return;
    }
    const std::size_t row = std::size_t(width) * size_of(y.dtype);
    const std::size_t together =
        row | reinterpret_cast<std::uintptr_t>(table.data) | reinterpret_cast<std::uintptr_t>(y.data);
    with_unit(together, [&](auto tag) {
        using Unit = typename decltype(tag)::type;
        const std::int64_t units = std::int64_t(row / sizeof(Unit)), total = ids.numel() * units;
        pick_rows<Unit><<<grid_for(total, kThreads), kThreads, 0, stream>>>(table.as<const Unit>(), Ids(ids),
                                                                            y.as<Unit>(), units, total);
    });
}

static std::size_t embedding_backward_scratch_bytes(const View& gy, const View& ids) {
    const std::int64_t count = ids.numel();
    return gy.numel() == 0 || count == 0 ? 0 : Workspace(count, gy.numel() / count).bytes();
}

void CudaKernels::embedding_backward(const View& gy, const View& ids, const View& gtable) {
    const Launch stream("embedding_backward");
    const Scratch memory(embedding_backward_scratch_bytes(gy, ids));
    void* const scratch = memory.data();
    const std::int64_t width = gtable.size[gtable.rank - 1], count = ids.numel();
    if (count == 0 || width == 0) return;
    add_sorted(count, width, gtable.numel() / width, gy, gtable, scratch, stream,
               [&](std::uint64_t* keys, std::int64_t* order) {
                   row_keys<<<grid_for(count, kThreads), kThreads, 0, stream>>>(Ids(ids), count, keys, order);
               });
}

void CudaKernels::gather(const Span3& span, std::int64_t picks, const View& x, const View& index, const View& y) {
    const Launch stream("gather");
    const std::int64_t count = span.outer * picks * span.inner;
    if (count == 0) return;
    with_unit(size_of(x.dtype), [&](auto tag) {
        using Unit = typename decltype(tag)::type;
        gather_elements<Unit><<<grid_for(count, kThreads), kThreads, 0, stream>>>(
            span, picks, x.as<const Unit>(), index.as<const std::int64_t>(), y.as<Unit>());
    });
}

static std::size_t scatter_add_scratch_bytes(const Span3& span, std::int64_t picks) {
    const std::int64_t count = span.outer * picks * span.inner;
    return picks <= 1 || count == 0 ? 0 : Workspace(count, 1).bytes();
}

void CudaKernels::scatter_add(const Span3& span, std::int64_t picks, const View& gy, const View& index,
                              const View& gx) {
    const Launch stream("scatter_add");
    const Scratch memory(scatter_add_scratch_bytes(span, picks));
    void* const scratch = memory.data();
    const std::int64_t count = span.outer * picks * span.inner;
    if (count == 0) return;
    const std::int64_t* at = index.as<const std::int64_t>();
    if (picks == 1) {
        scatter_single<<<grid_for(count, kThreads), kThreads, 0, stream>>>(span, gy, at, gx);
        return;
    }
    add_sorted(count, 1, span.outer * span.n * span.inner, gy, gx, scratch, stream,
               [&](std::uint64_t* keys, std::int64_t* order) {
                   element_keys<<<grid_for(count, kThreads), kThreads, 0, stream>>>(span, picks, at, count, keys,
                                                                                    order);
               });
}

}  // namespace invar::cuda
