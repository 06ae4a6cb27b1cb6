// Cross-entropy: losses of rows of logits, their gradients, and both in one pass.
#include <cooperative_groups.h>

#include <algorithm>

#include "invar/kernels/cuda/device.h"
#include "invar/kernels/cuda/launch.h"
#include "invar/kernels/cuda/softmax.cuh"
#include "invar/kernels/cuda/tensor_core.cuh"

namespace invar::cuda {
namespace {

// The loss of a row whose own logit, that of its label, is `own`, and whose logits are in sum `below` the largest.
__device__ inline double loss_of(const CrossEntropySpec& spec, double largest, double sum, double below, double own) {
    const double rest = log(sum);
    // Differences from the largest, not from the whole: the logarithm is small beside a large logit.
    const double loss = (largest - own) + rest;
    if (spec.label_smoothing == 0) return loss;
    const double mean = below / double(spec.classes);
    return (1.0 - spec.label_smoothing) * loss + spec.label_smoothing * (mean + rest);
}

// How far the first n logits of a row are below `largest`, in sum.
template <int kGroup, class Row, class C>
__device__ double sum_below(const Row& row, std::int64_t n, C largest) {
    double below = 0;
    row.each([&](std::int64_t i, C* v) {
#pragma unroll
        for (int k = 0; k < Row::kWidth; ++k) v[k] = i + k < n ? largest - v[k] : C(0);
        below += small_sum<Row::kWidth>(v);
    });
    return reduce<kGroup>(below, Add{});
}

// The largest logit of a row and the sum of the exponentials of what the others are below it, in one pass: where a
// larger one comes, what was summed is made smaller.
template <class Source, int kGroup>
__device__ void stream_row(const Source& x, std::int64_t base, std::int64_t n, typename Source::C& largest,
                           double& sum) {
    using C = typename Source::C;
    constexpr int kWidth = Source::kWidth, kUnroll = 4, kApart = kGroup * kWidth;
    C best = C(-INFINITY);
    double total = 0;
    for (std::int64_t first = std::int64_t(threadIdx.x % kGroup) * kWidth; first < n; first += kUnroll * kApart) {
        typename Source::Raw raw[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u)
            if (first + u * kApart < n) x.read(base + first + u * kApart, raw[u]);
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
            if (first + u * kApart >= n) break;
            C v[kWidth];
            Source::unpack(raw[u], v);
            C top = v[0];
#pragma unroll
            for (int k = 1; k < kWidth; ++k) top = Larger{}(top, v[k]);
            if (top == C(-INFINITY)) continue;  // adds nothing
            if (!(top <= best)) {
                total *= double(exponential<Source, true>(best - top));
                best = top;
            }
#pragma unroll
            for (int k = 0; k < kWidth; ++k) v[k] = exponential<Source>(v[k] - best);
            total += small_sum<kWidth>(v);
        }
    }
    largest = reduce<kGroup>(best, Larger{});
    sum = reduce<kGroup>(total * double(exponential<Source, true>(best - largest)), Add{});
}

// The gradient of a logit, from it and its place.
template <class Source>
struct Gradient {
    using C = typename Source::C;
    C spread, sure, largest, share, g;
    std::int64_t label;
    bool ignored;
    __device__ Gradient(const CrossEntropySpec& spec, std::int64_t label_, C largest_, C sum, C g_)
        : spread(C(spec.label_smoothing / double(spec.classes))),
          sure(C(1.0 - spec.label_smoothing)),
          largest(largest_),
          share(C(1) / sum),
          g(g_),
          label(label_),
          ignored(label_ == spec.ignore_index) {}
    __device__ C operator()(C logit, std::int64_t i) const {
        const C p = exponential<Source>(logit - largest) * share - spread;
        return ignored ? C(0) : (i == label ? p - sure : p) * g;
    }
};

template <class Source, int kGroup>
__global__ __launch_bounds__(kBlock<kGroup>) void cross_entropy_rows(const CrossEntropySpec spec, const Source x,
                                                                     const Dense logits, const std::int64_t* target,
                                                                     const Dense losses, const Dense kept) {
    using C = typename Source::C;
    const std::int64_t r = first_row<kGroup>(), n = spec.classes;
    if (r >= spec.rows) return;
    const std::int64_t label = target[r];
    double loss = 0, sum = 1;
    C largest = 0;
    if (label != spec.ignore_index) {
        stream_row<Source, kGroup>(x, r * n, n, largest, sum);
        const double below =
            spec.label_smoothing == 0 ? 0.0 : sum_below<kGroup>(Row<Source, kGroup>(x, r * n, n), n, largest);
        loss = loss_of(spec, double(largest), sum, below, logits.get<double>(r * n + label));
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
    const C g = glosses.get<C>(one_for_all ? 0 : r) / count.get_or<C>(0, C(1));
    const Gradient<Source> gradient(spec, label, kept.get<C>(r), kept.get<C>(spec.rows + r), g);
    const Row<Source, kGroup> row(x, r * n, n);
    row.each([&](std::int64_t i, C* v) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k) v[k] = gradient(v[k], i + k);
        Source::store(v, glogits, r * n + i);
    });
}

// --- losses and their gradients in one pass ---

// A stretch of a row that is read once, into shared memory; each thread reads its own packs alone. Of the last pack
// what is behind the end counts for nothing, as -inf.
template <class T, int kGroup>
struct HeldRow {
    using Source = PackSource<T>;
    using C = float;
    static constexpr int kWidth = Source::kWidth;
    using Raw = typename Source::Raw;
    std::int64_t n;
    Raw* held;

    __device__ HeldRow(const T* row, std::int64_t count, void* memory) : n(count), held(static_cast<Raw*>(memory)) {
        for (std::int64_t i = threadIdx.x * kWidth; i < n; i += kGroup * kWidth)
            fetch(held + i / kWidth, row + i, true);
        close_fetches();
        wait_for_fetches<0>();
    }
    template <class F>
    __device__ void each(const F& f) const {
        C values[kWidth];
        for (std::int64_t i = threadIdx.x * kWidth; i < n; i += kGroup * kWidth) {
            Source::unpack(held[i / kWidth], values);
            if (n - i < kWidth) end_at(n - i, values);
            f(i, values);
        }
    }
    // Of what this thread holds. NaN comes before all others. Elements of 16 bits are compared two at a time.
    __device__ C largest() const {
        C values[kWidth], best = C(-INFINITY);
        std::int64_t i = threadIdx.x * kWidth;
        if constexpr (sizeof(T) == 2) {
            Raw top;
#pragma unroll
            for (int k = 0; k < kWidth; ++k) values[k] = C(-INFINITY);
            top.pack(values);
            for (; i + kWidth <= n; i += kGroup * kWidth) larger_of_pairs(top.words[0], held[i / kWidth].words[0]);
            Source::unpack(top, values);
#pragma unroll
            for (int k = 0; k < kWidth; ++k) best = Larger{}(best, values[k]);
        }
        for (; i < n; i += kGroup * kWidth) {
            Source::unpack(held[i / kWidth], values);
            if (n - i < kWidth) end_at(n - i, values);
#pragma unroll
            for (int k = 0; k < kWidth; ++k) best = Larger{}(best, values[k]);
        }
        return best;
    }
    __device__ static void end_at(std::int64_t count, C* values) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k)
            if (k >= count) values[k] = C(-INFINITY);
    }
    __device__ static void larger_of_pairs(uint4& a, const uint4& b) {
        const auto take = [](std::uint32_t& x, std::uint32_t y) {
            if constexpr (std::is_same_v<T, f16>)
                asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(x) : "r"(x), "r"(y));
            else
                asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(x) : "r"(x), "r"(y));
        };
        take(a.x, b.x), take(a.y, b.y), take(a.z, b.z), take(a.w, b.w);
    }
};

// What a block knows of its part of a row, and all of them of the whole.
struct RowSums {
    float largest;
    double sum, below;
};

// The parts of a row brought together by the first warp, in the same order and to the same bits in every block of the
// cluster. `mine` and the result are in shared memory.
template <int kParts>
__device__ const RowSums& whole_of(RowSums& mine, std::int64_t n, std::int64_t share) {
#if __CUDA_ARCH__ >= 900
    if constexpr (kParts > 1) {
        __shared__ RowSums whole;
        const auto cluster = cooperative_groups::this_cluster();
        cluster.sync();
        if (threadIdx.x < kWarp) {
            const int lane = int(threadIdx.x) % kParts;
            const RowSums part = *cluster.map_shared_rank(&mine, lane);
            float largest = part.largest;
#pragma unroll
            for (int mask = kParts / 2; mask > 0; mask /= 2) largest = Larger{}(largest, shuffle_xor(largest, mask));
            double sum = part.sum * double(expf(part.largest - largest));
            double below =
                part.below + (double(largest) - double(part.largest)) * double(smaller(share, n - lane * share));
#pragma unroll
            for (int mask = kParts / 2; mask > 0; mask /= 2)
                sum += shuffle_xor(sum, mask), below += shuffle_xor(below, mask);
            if (threadIdx.x == 0) whole = {largest, sum, below};
        }
        cluster.barrier_arrive();
        __syncthreads();
        return whole;
    }
#endif
    __syncthreads();
    return mine;
}

// Nobody leaves while others may still read what it knows.
template <int kParts>
__device__ void leave_together() {
#if __CUDA_ARCH__ >= 900
    if constexpr (kParts > 1) cooperative_groups::this_cluster().barrier_wait();
#endif
}

// kParts blocks, a cluster, have a row: each holds its part, so that several of them fit on a multiprocessor, where
// one loads while another computes.
template <class T, int kGroup, int kParts>
__global__ __launch_bounds__(kGroup, 1024 / kGroup) void cross_entropy_whole_rows(const CrossEntropySpec spec,
                                                                                  T* logits, const std::int64_t stride,
                                                                                  const std::int64_t* target,
                                                                                  const Dense losses,
                                                                                  const std::int64_t share) {
    extern __shared__ uint4 memory[];
    __shared__ RowSums mine;
    using Held = HeldRow<T, kGroup>;
    constexpr int kWidth = Held::kWidth;
    const int part = int(blockIdx.x % kParts);
    const std::int64_t r = blockIdx.x / kParts, n = spec.classes, label = target[r], first = part * share;
    T* const place = logits + r * stride;
    const bool ignored = label == spec.ignore_index, smooth = spec.label_smoothing != 0;
    // Read by everybody before anybody writes: there are barriers between.
    const double own = ignored ? 0.0 : double(widen(place[label]));
    const std::int64_t count = smaller(share, n - first);
    const Held row(place + first, count, memory);
    const float top = reduce<kGroup>(row.largest(), Larger{});
    // A part of nothing but -inf adds nothing to others; by itself it gives NaN, as the whole row would.
    const bool nothing = kParts > 1 && top == -INFINITY;
    const double sum_here = nothing ? 0.0 : sum_of_exponentials<kGroup>(row, top);
    const double below_here = nothing || !smooth ? 0.0 : sum_below<kGroup>(row, count, top);
    if (threadIdx.x == 0) mine = {top, sum_here, below_here};
    const RowSums& whole = whole_of<kParts>(mine, n, share);
    if (threadIdx.x == 0 && part == 0)
        losses.put<double>(r, ignored ? 0.0 : loss_of(spec, double(whole.largest), whole.sum, whole.below, own));
    // As Gradient does it, in fewer instructions: those for a label only where the label is.
    const float share_of_one = ignored ? 0.0f : 1.0f / float(whole.sum),
                spread = ignored ? 0.0f : float(spec.label_smoothing / double(n)), largest = whole.largest;
    const std::int64_t label_here = label - first;
    row.each([&](std::int64_t i, float* v) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k) v[k] = exponential<PackSource<T>>(v[k] - largest) * share_of_one - spread;
        if (std::uint64_t(label_here - i) < std::uint64_t(kWidth)) {
#pragma unroll
            for (int k = 0; k < kWidth; ++k)
                if (i + k == label_here) v[k] -= float(1.0 - spec.label_smoothing);
        }
        if (ignored) {
#pragma unroll
            for (int k = 0; k < kWidth; ++k) v[k] = 0.0f;
        }
        typename Held::Raw raw;
        raw.pack(v);
        raw.write(place + first + i);
    });
    leave_together<kParts>();
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

// Rows by the kernel that cuts them into kParts; false where a part does not fit.
template <class T, int kGroup, int kParts>
bool run_whole_rows(const CrossEntropySpec& spec, const View& logits, const View& target, const View& losses,
                    std::size_t most_shared, cudaStream_t stream) {
    const std::int64_t share = divide_up(spec.classes, kParts * kPack<T>) * kPack<T>;
    const std::size_t shared = std::size_t(share) * sizeof(T);
    if (shared > most_shared || spec.rows * kParts > 0x7fffffff) return false;
    const auto kernel = cross_entropy_whole_rows<T, kGroup, kParts>;
    INVAR_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared)));
    cudaLaunchAttribute cluster{};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {kParts, 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = unsigned(spec.rows * kParts), config.blockDim = kGroup;
    config.dynamicSmemBytes = shared, config.stream = stream;
    config.attrs = &cluster, config.numAttrs = kParts > 1 ? 1 : 0;
    INVAR_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, spec, logits.as<T>(), logits.stride[logits.rank - 2],
                                        target.as<const std::int64_t>(), Dense(losses), share));
    return true;
}

// A block's share of shared memory, less what the kernel has for its sums.
std::size_t shared_bytes(int blocks) {
    int a_block = 0, a_processor = 0, device = 0;
    INVAR_CUDA_CHECK(cudaGetDevice(&device));
    INVAR_CUDA_CHECK(cudaDeviceGetAttribute(&a_block, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    INVAR_CUDA_CHECK(cudaDeviceGetAttribute(&a_processor, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device));
    constexpr int kOwn = 2048;
    return std::size_t(std::min(a_block, a_processor / blocks - 1024) - kOwn);
}

bool has_clusters() {
    static const bool answer = [] {
        int major = 0, device = 0;
        INVAR_CUDA_CHECK(cudaGetDevice(&device));
        INVAR_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
        return major >= 9;
    }();
    return answer;
}

}  // namespace

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

void CudaKernels::cross_entropy_in_place(const CrossEntropySpec& spec, const View& logits, const View& target,
                                         const View& losses, const View& kept, const View& one) {
    const Launch stream("cross_entropy_in_place");
    if (spec.rows == 0) return;
    constexpr std::int64_t kFewest = 8192;  // shorter rows do not keep so many threads busy
    const std::int64_t stride = logits.stride[logits.rank - 2];
    const bool whole = spec.classes >= kFewest && stride % 8 == 0 && stride >= spec.classes && aligned(logits.data);
    [[maybe_unused]] static const std::size_t quarter = shared_bytes(4), half = shared_bytes(2);
    const auto run = [&](auto tag) {
        using T = typename decltype(tag)::type;
        const auto fits = [&](auto group, auto parts, std::size_t most) {
            return run_whole_rows<T, decltype(group)::value, decltype(parts)::value>(spec, logits, target, losses, most,
                                                                                     stream);
        };
        using std::integral_constant;
        constexpr integral_constant<int, 256> kSmall;
        constexpr integral_constant<int, 512> kLarge;
        constexpr integral_constant<int, 1> kOne;
        constexpr integral_constant<int, 8> kEight;
        if (fits(kSmall, kOne, quarter) || fits(kLarge, kOne, half)) return true;
        return has_clusters() && (fits(kSmall, integral_constant<int, 4>{}, quarter) || fits(kSmall, kEight, quarter) ||
                                  fits(kLarge, kEight, half));
    };
    bool done = false;
    if (whole) with_fast_type(logits.dtype, [&](auto tag) { done = run(tag); });
    if (done) return;
    if (logits.contiguous()) return Kernels::cross_entropy_in_place(spec, logits, target, losses, kept, one);
    const Scratch memory(std::size_t(logits.numel()) * size_of(logits.dtype));
    View dense = logits;
    dense.data = memory.data();
    dense.stride[dense.rank - 2] = spec.classes;
    copy(logits, dense);
    Kernels::cross_entropy_in_place(spec, dense, target, losses, kept, one);
    copy(dense, logits);
}

}  // namespace invar::cuda
