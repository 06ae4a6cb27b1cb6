// The optimizer's passes over the flat store: statistics, the decisions, and unscale + clip + update + shadow in one.
// Everything is read from and written to StepState and ScaleState on the device; the host is never asked.
#include <cmath>

#include "invar/kernels/cuda/launch.h"
#include "invar/kernels/cuda/pointwise.cuh"
#include "invar/kernels/cuda/recording.h"
#include "invar/kernels/update.h"

namespace invar::cuda {
namespace {

// --- statistics: a fixed number of blocks, the last of which adds up what they found ---

constexpr std::int64_t kNone = std::int64_t(1) << 62;

__device__ inline bool is_nonfinite(float v) {
    return !(fabsf(v) <= 3.402823466e38f);
}

struct GradStats {
    double squares = 0;
    double largest = 0;
    std::int64_t bad = 0;
    std::int64_t first_bad = kNone;

    __device__ void add(float v, std::int64_t at) {
        const float a = fabsf(v);
        squares += double(v) * double(v);
        largest = double(a) > largest ? double(a) : largest;
        if (is_nonfinite(v)) ++bad, first_bad = smaller(first_bad, at);
    }
};

struct Combine {
    __device__ GradStats operator()(const GradStats& a, const GradStats& b) const {
        GradStats both;
        both.squares = a.squares + b.squares;
        both.largest = b.largest > a.largest ? b.largest : a.largest;
        both.bad = a.bad + b.bad;
        both.first_bad = smaller(a.first_bad, b.first_bad);
        return both;
    }
};

inline constexpr std::int64_t kStatBlocks = 528;  // all at once on 132 multiprocessors: no half-empty end

std::int64_t stat_blocks(std::int64_t n) {
    const std::int64_t blocks = divide_up(n, kThreads * 16);
    return blocks < 1 ? 1 : smaller(blocks, kStatBlocks);
}

// What one of so many threads finds; the first `packed` values lie so that they can be read in fours.
__device__ inline GradStats scan(const float* g, const std::int64_t n, const std::int64_t packed,
                                 const std::int64_t thread, const std::int64_t threads) {
    constexpr int kUnroll = 8;
    double squares[4] = {};
    float peak = 0;
    std::int32_t bad = 0;
    for (std::int64_t at = thread * 4; at < packed; at += threads * 4 * kUnroll) {
        float4 v[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            const std::int64_t i = at + u * threads * 4;
            v[u] = i < packed ? *reinterpret_cast<const float4*>(g + i) : make_float4(0, 0, 0, 0);
        }
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            const float four[4] = {v[u].x, v[u].y, v[u].z, v[u].w};
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const float a = fabsf(four[k]);
                squares[k] += double(four[k]) * double(four[k]);
                peak = a > peak ? a : peak;
                bad += is_nonfinite(four[k]);
            }
        }
    }
    GradStats mine;
    if (bad > 0)  // seldom: the same way again, so that the loop above stays as short as it is
        for (std::int64_t at = thread * 4; at < packed; at += threads * 4)
            for (int k = 0; k < 4; ++k)
                if (is_nonfinite(g[at + k])) mine.first_bad = smaller(mine.first_bad, at + k);
    mine.squares = (squares[0] + squares[1]) + (squares[2] + squares[3]);
    mine.largest = double(peak);
    mine.bad = bad;
    for (std::int64_t i = packed + thread; i < n; i += threads) mine.add(g[i], i);
    return mine;
}

__device__ inline void write_stats(const GradStats& found, StepState* state) {
    state->sum_squares = found.squares;
    state->max_abs = found.largest;
    state->nonfinite = found.bad;
    state->first_nonfinite = found.first_bad == kNone ? -1 : found.first_bad;
}

// Past the caches of a multiprocessor, which may not have heard what another has written.
__device__ inline GradStats read_part(const GradStats* part) {
    GradStats found;
    found.squares = __ldcg(&part->squares);
    found.largest = __ldcg(&part->largest);
    found.bad = __ldcg(reinterpret_cast<const long long*>(&part->bad));
    found.first_bad = __ldcg(reinterpret_cast<const long long*>(&part->first_bad));
    return found;
}

// How many blocks of grad_stats_kernel have left what they found. Goes round to 0 with the last; launches follow one
// another.
__device__ unsigned blocks_done = 0;

// The block that is last adds up what all have found, in the order of the blocks: one launch, and the same bits each
// time.
__global__ __launch_bounds__(kThreads, 4) void grad_stats_kernel(const float* g, const std::int64_t n,
                                                                 const std::int64_t packed, GradStats* parts,
                                                                 const Dense loss, StepState* state) {
    __shared__ bool last;
    const GradStats mine = reduce<kThreads>(scan(g, n, packed, global_thread(), grid_threads()), Combine{});
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = mine;
        __threadfence();
        last = atomicInc(&blocks_done, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    GradStats all;
    for (std::int64_t i = threadIdx.x; i < gridDim.x; i += kThreads) all = Combine{}(all, read_part(parts + i));
    all = reduce<kThreads>(all, Combine{});
    if (threadIdx.x != 0) return;
    write_stats(all, state);
    state->bad_loss = !is_finite(loss.get_or<double>(0, 0.0));
}

// Of single parts of an array, as many blocks each.
inline constexpr int kSegmentsAtOnce = 128;
inline constexpr unsigned kBlocksEach = 32;

struct SegmentTable {
    std::int64_t begin[kSegmentsAtOnce], count[kSegmentsAtOnce];
};

__global__ __launch_bounds__(kThreads, 4) void segment_stats_kernel(const float* g,
                                                                    const __grid_constant__ SegmentTable table,
                                                                    GradStats* parts) {
    const float* from = g + table.begin[blockIdx.y];
    const std::int64_t n = table.count[blockIdx.y],
                       packed = reinterpret_cast<std::uintptr_t>(from) % 16 ? 0 : n / 4 * 4;
    const GradStats mine = reduce<kThreads>(scan(from, n, packed, global_thread(), grid_threads()), Combine{});
    if (threadIdx.x == 0) parts[blockIdx.y * gridDim.x + blockIdx.x] = mine;
}

__global__ void plan_kernel(StepState* state, const ScaleState* scale, const ClipSpec clip,
                            const ScheduleSpec schedule) {
    plan_step(*state, scale != nullptr ? scale->scale : 1.0f, clip, schedule);
}

__global__ __launch_bounds__(kBlocksEach) void combine_segments(const GradStats* parts, StepState* states) {
    const GradStats all = reduce<kBlocksEach>(parts[blockIdx.x * kBlocksEach + threadIdx.x], Combine{});
    if (threadIdx.x == 0) write_stats(all, states + blockIdx.x);
}

// --- the end of a step, one thread ---

__device__ inline std::uint64_t clock_ns() {
    std::uint64_t now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}

__global__ void conclude_kernel(const StepEnd end, const Dense loss, std::uint64_t* drawn, const std::uint64_t by) {
    if (drawn != nullptr) *drawn += by;
    StepReport* const report = conclude_step(end, loss.get_or<double>(0, 0.0), clock_ns());
    if (report == nullptr) return;
    __threadfence_system();
    *static_cast<volatile std::uint64_t*>(&report->sequence) = *end.reports.written;
}

// --- the step ---

// Segments and groups as a kernel argument, so that nothing is copied to the device and a graph keeps its own. A
// group's entry serves all its segments that never missed a step; the others have one each, and idle ones have nothing
// else.
inline constexpr int kSegments = 256, kGroups = 32;
inline constexpr int kStepPack = 4, kStepPacks = 2;  // 16 bytes of f32 each, a block's width apart
inline constexpr std::int64_t kStepTile = kThreads * kStepPack * kStepPacks;
inline constexpr unsigned kStepBlocks = 396;

struct StepTable {
    std::int64_t begin[kSegments], end[kSegments];
    std::int64_t first_tile[kSegments + 1];
    std::int32_t group[kSegments];
    OptimizerSpec groups[kGroups];
    std::int32_t missed[kGroups];  // where its count lies; -1: it has none
    bool idle[kGroups];
    int segments, group_count;
};

__device__ inline void load_floats(const float* from, float* values) {
    Pack<float, kStepPack> pack;
    pack.read(from);
    pack.unpack(values);
}
__device__ inline void store_floats(const float* values, float* to) {
    Pack<float, kStepPack> pack;
    pack.pack(values);
    pack.write(to);
}

__global__ __launch_bounds__(kThreads, 3) void step_kernel(const FlatStore store, const bool packed,
                                                           const StepState* state,
                                                           const __grid_constant__ StepTable table) {
    if (state->skip) return;  // nothing is written: weights, shadow and moments keep their bits
    // Plain memory: what lies in shared memory has no constructor to run.
    alignas(Update) __shared__ unsigned char memory[kGroups * sizeof(Update)];
    Update* const updates = reinterpret_cast<Update*>(memory);
    if (int(threadIdx.x) < table.group_count) {
        const int missed = table.missed[threadIdx.x];
        if (!table.idle[threadIdx.x])
            updates[threadIdx.x].prepare(table.groups[threadIdx.x], *state, missed < 0 ? 0 : store.missed[missed]);
        else if (blockIdx.x == 0)
            ++store.missed[missed];  // no other block reads it
    }
    __syncthreads();
    Dense weights, shadow;
    weights.data = store.weights, weights.dtype = store.weights_dtype;
    shadow.data = store.shadow, shadow.dtype = store.shadow_dtype;
    int s = 0;
    for (std::int64_t tile = blockIdx.x; tile < table.first_tile[table.segments]; tile += gridDim.x) {
        while (tile >= table.first_tile[s + 1]) ++s;  // tiles only move forward
        const Update& update = updates[table.group[s]];
        const bool sgd = update.kind == OptimizerSpec::Kind::sgd;
        const bool first = store.first != nullptr, second = !sgd && store.second != nullptr;
        const std::int64_t begin = table.begin[s], end = table.end[s];
        // Packs lie on multiples of their size in the store, so that they are aligned wherever a segment starts.
        const std::int64_t base =
            begin / kStepPack * kStepPack + (tile - table.first_tile[s]) * kStepTile + threadIdx.x * kStepPack;
        const auto place = [&](int u) { return base + u * (kThreads * kStepPack); };
        const auto whole = [&](int u) { return packed && place(u) >= begin && place(u) + kStepPack <= end; };
        float w[kStepPacks][kStepPack], g[kStepPacks][kStepPack], m[kStepPacks][kStepPack] = {},
                                                                  v[kStepPacks][kStepPack] = {};
#pragma unroll
        for (int u = 0; u < kStepPacks; ++u) {
            if (!whole(u)) continue;
            load_floats(store.gradients + place(u), g[u]);
            if (first) load_floats(store.first + place(u), m[u]);
            if (second) load_floats(store.second + place(u), v[u]);
            load_pack<kStepPack>(weights, place(u), w[u]);
        }
#pragma unroll
        for (int u = 0; u < kStepPacks; ++u) {
            if (whole(u)) {
#pragma unroll
                for (int k = 0; k < kStepPack; ++k) update.apply(w[u][k], g[u][k], m[u][k], v[u][k], first);
                store_pack<kStepPack>(w[u], weights, place(u));
                if (shadow.data != nullptr) store_pack<kStepPack>(w[u], shadow, place(u));
                if (first) store_floats(m[u], store.first + place(u));
                if (second) store_floats(v[u], store.second + place(u));
                continue;
            }
            for (std::int64_t i = place(u) < begin ? begin : place(u); i < smaller(end, place(u) + kStepPack); ++i) {
                float one = weights.get<float>(i), first_moment = first ? store.first[i] : 0.0f,
                      second_moment = second ? store.second[i] : 0.0f;
                update.apply(one, store.gradients[i], first_moment, second_moment, first);
                weights.put<float>(i, one);
                if (shadow.data != nullptr) shadow.put<float>(i, one);
                if (first) store.first[i] = first_moment;
                if (second) store.second[i] = second_moment;
            }
        }
    }
}

// --- the average of the weights ---

inline constexpr int kArrays = 64;

struct AverageTable {
    AveragedArray arrays[kArrays];
    std::int64_t first_tile[kArrays + 1];
    bool packed[kArrays];
    int count;
};

__global__ __launch_bounds__(kThreads) void average_kernel(const AverageSpec spec, const StepState* state,
                                                           const __grid_constant__ AverageTable table) {
    if (state->skip) return;
    Approach approach;
    approach.prepare(spec.share(state->taken));
    int a = 0;
    for (std::int64_t tile = blockIdx.x; tile < table.first_tile[table.count]; tile += gridDim.x) {
        while (tile >= table.first_tile[a + 1]) ++a;  // tiles only move forward
        const AveragedArray& array = table.arrays[a];
        Dense values;
        values.data = const_cast<void*>(array.values), values.dtype = array.dtype;
        const std::int64_t base = (tile - table.first_tile[a]) * kStepTile + threadIdx.x * kStepPack;
        const auto place = [&](int u) { return base + u * (kThreads * kStepPack); };
        const auto whole = [&](int u) { return table.packed[a] && place(u) + kStepPack <= array.count; };
        float w[kStepPacks][kStepPack], mean[kStepPacks][kStepPack];
#pragma unroll
        for (int u = 0; u < kStepPacks; ++u) {
            if (!whole(u)) continue;
            load_floats(array.average + place(u), mean[u]);
            load_pack<kStepPack>(values, place(u), w[u]);
        }
#pragma unroll
        for (int u = 0; u < kStepPacks; ++u) {
            if (whole(u)) {
#pragma unroll
                for (int k = 0; k < kStepPack; ++k) mean[u][k] = approach.next(mean[u][k], w[u][k]);
                store_floats(mean[u], array.average + place(u));
                continue;
            }
            for (std::int64_t i = place(u); i < smaller(array.count, place(u) + kStepPack); ++i)
                array.average[i] = approach.next(array.average[i], values.get<float>(i));
        }
    }
}

struct ScaleAndClamp {
    static constexpr int kIn = 1, kOut = 1;
    float factor, limit;
    template <class C>
    __device__ void operator()(const C* in, C* out) const {
        const C v = in[0] * C(factor), bound = C(limit);
        out[0] = bound > C(0) ? (v > bound ? bound : v < -bound ? -bound : v) : v;
    }
};

}  // namespace

static std::size_t grad_stats_scratch_bytes(const View& gradients) {
    return std::size_t(stat_blocks(gradients.numel())) * sizeof(GradStats);
}

void CudaKernels::grad_stats(const View& gradients, StepState* state, const View& loss) {
    const Launch stream("grad_stats");
    const Scratch memory(grad_stats_scratch_bytes(gradients));
    void* const scratch = memory.data();
    const std::int64_t n = gradients.numel(), blocks = stat_blocks(n);
    const std::int64_t packed = aligned(gradients.data) ? n / 4 * 4 : 0;
    grad_stats_kernel<<<unsigned(blocks), kThreads, 0, stream>>>(gradients.as<const float>(), n, packed,
                                                                 static_cast<GradStats*>(scratch), loss, state);
}

static std::size_t segment_stats_scratch_bytes(std::span<const Segment> segments) {
    return std::size_t(smaller<std::int64_t>(kSegmentsAtOnce, std::int64_t(segments.size()))) * kBlocksEach *
           sizeof(GradStats);
}

void CudaKernels::segment_stats(const View& gradients, std::span<const Segment> segments, StepState* states) {
    const Launch stream("segment_stats");
    const Scratch memory(segment_stats_scratch_bytes(segments));
    void* const scratch = memory.data();
    GradStats* parts = static_cast<GradStats*>(scratch);
    while (!segments.empty()) {  // each time over the same scratch: the stream keeps them in order
        SegmentTable table;
        const std::size_t count = segments.size() < kSegmentsAtOnce ? segments.size() : kSegmentsAtOnce;
        for (std::size_t i = 0; i < count; ++i) table.begin[i] = segments[i].begin, table.count[i] = segments[i].count;
        segment_stats_kernel<<<dim3(kBlocksEach, unsigned(count)), kThreads, 0, stream>>>(gradients.as<const float>(),
                                                                                          table, parts);
        combine_segments<<<unsigned(count), kBlocksEach, 0, stream>>>(parts, states);
        segments = segments.subspan(count), states += count;
    }
}

void CudaKernels::plan(StepState* state, const ScaleState* scale, const ClipSpec& clip, const ScheduleSpec& schedule) {
    const Launch stream("plan");
    plan_kernel<<<1, 1, 0, stream>>>(state, scale, clip, schedule);
}

// In recorded work also moves on the counter of its random numbers, without a launch of its own.
void CudaKernels::conclude(const StepEnd& end, const View& loss) {
    RecordedRandom* const random = recorded_random();
    const Launch stream("conclude");
    conclude_kernel<<<1, 1, 0, stream>>>(end, loss, random ? random->counter() : nullptr,
                                         random ? random->take_drawn() : 0);
}

void CudaKernels::optimizer_step(const FlatStore& store, std::span<const Segment> segments,
                                 std::span<const OptimizerSpec> groups, const StepState* state) {
    const Launch stream("optimizer_step");
    const bool packed = aligned(store.weights) && aligned(store.shadow) && aligned(store.gradients) &&
                        aligned(store.first) && aligned(store.second);
    StepTable table;
    table.segments = table.group_count = 0;
    table.first_tile[0] = 0;
    std::int32_t known[kGroups];  // the group each entry of table.groups came from
    const auto launch = [&] {
        const std::int64_t tiles = table.first_tile[table.segments];
        if (table.group_count > 0)
            step_kernel<<<grid_for(tiles > 0 ? tiles : 1, 1, kStepBlocks), kThreads, 0, stream>>>(store, packed, state,
                                                                                                  table);
        table.segments = table.group_count = 0;
    };
    for (const Segment& segment : segments) {
        if (segment.count == 0 && !segment.idle) continue;
        const auto find = [&] {
            int at = 0;
            while (at < table.group_count && (known[at] != segment.group || table.missed[at] != segment.missed)) ++at;
            return at;
        };
        if (table.segments == kSegments || find() == kGroups) launch();
        const int group = find();
        if (group == table.group_count) {
            known[group] = segment.group;
            table.groups[group] = groups[std::size_t(segment.group)];
            table.missed[group] = segment.missed;
            table.idle[group] = segment.idle;
            ++table.group_count;
        }
        if (segment.idle) continue;
        const int s = table.segments++;
        table.begin[s] = segment.begin, table.end[s] = segment.begin + segment.count, table.group[s] = group;
        const std::int64_t base = segment.begin / kStepPack * kStepPack;
        table.first_tile[s + 1] = table.first_tile[s] + divide_up(table.end[s] - base, kStepTile);
    }
    launch();
}

void CudaKernels::average_weights(std::span<const AveragedArray> arrays, const AverageSpec& spec,
                                  const StepState* state) {
    const Launch stream("average_weights");
    while (!arrays.empty()) {
        AverageTable table;
        table.count = int(smaller<std::size_t>(arrays.size(), kArrays));
        table.first_tile[0] = 0;
        for (int i = 0; i < table.count; ++i) {
            const AveragedArray& array = table.arrays[i] = arrays[std::size_t(i)];
            table.packed[i] = aligned(array.values) && aligned(array.average);
            table.first_tile[i + 1] = table.first_tile[i] + divide_up(array.count, kStepTile);
        }
        const std::int64_t tiles = table.first_tile[table.count];
        if (tiles > 0) average_kernel<<<grid_for(tiles, 1, kStepBlocks), kThreads, 0, stream>>>(spec, state, table);
        arrays = arrays.subspan(std::size_t(table.count));
    }
}

void CudaKernels::scale_gradients(const View& gradients, float factor, float limit) {
    const Launch stream("scale_gradients");
    run_pointwise(ScaleAndClamp{factor, limit}, {&gradients, &gradients}, false, stream);
}

}  // namespace invar::cuda
