// Cross-entropy: losses of rows of logits, their gradients, and both in one pass.
#include <algorithm>

#include "invar/kernels/cuda/device.h"
#include "invar/kernels/cuda/launch.h"
#include "invar/kernels/cuda/softmax.cuh"
#include "invar/kernels/cuda/tensor_core.cuh"

namespace invar::cuda {
namespace {

// The loss of a row whose own logit, that of its label, is `own`.
template <int kGroup, class Row, class C>
__device__ double loss_of(const CrossEntropySpec& spec, const Row& row, C largest, double sum, double own) {
    const double rest = log(sum);
    // Differences from the largest, not from the whole: the logarithm is small beside a large logit.
    const double loss = (double(largest) - own) + rest;
    if (spec.label_smoothing == 0) return loss;
    double below = 0;
    row.each([&](std::int64_t i, C* v) {
#pragma unroll
        for (int k = 0; k < Row::kWidth; ++k) v[k] = i + k < spec.classes ? largest - v[k] : C(0);
        below += small_sum<Row::kWidth>(v);
    });
    const double mean = reduce<kGroup>(below, Add{}) / double(spec.classes);
    return (1.0 - spec.label_smoothing) * loss + spec.label_smoothing * (mean + rest);
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
        const Row<Source, kGroup> row(x, r * n, n);
        largest = largest_of<kGroup>(row);
        sum = sum_of_exponentials<kGroup>(row, largest);
        loss = loss_of<kGroup>(spec, row, largest, sum, logits.get<double>(r * n + label));
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

// A row that is read once: what shared memory does not take stays in registers. Each thread reads its own packs alone.
// Of the last pack what is behind the end counts for nothing, as -inf.
template <class T, int kGroup, int kHeld>
struct WholeRow {
    using Source = PackSource<T>;
    using C = float;
    static constexpr int kWidth = Source::kWidth;
    using Raw = typename Source::Raw;
    std::int64_t n;
    Raw* shared;
    Raw held[kHeld > 0 ? kHeld : 1];

    __device__ WholeRow(const T* row, std::int64_t count, Raw* memory) : n(count), shared(memory) {
        for (std::int64_t i = place(kHeld); i < n; i += kGroup * kWidth) fetch(at(i), row + i, true);
        close_fetches();
#pragma unroll
        for (int k = 0; k < kHeld; ++k)
            if (place(k) < n) held[k].read(row + place(k));
        wait_for_fetches<0>();
    }
    __device__ static std::int64_t place(int k) {
        return (std::int64_t(k) * kGroup + threadIdx.x) * kWidth;
    }
    __device__ Raw* at(std::int64_t i) const {
        return shared + (i / kWidth - kHeld * kGroup);
    }
    template <class F>
    __device__ void each(const F& f) const {
        C values[kWidth];
#pragma unroll
        for (int k = 0; k < kHeld; ++k) {
            if (place(k) >= n) return;
            Source::unpack(held[k], values);
            end_at(n - place(k), values);
            f(place(k), values);
        }
        for (std::int64_t i = place(kHeld); i < n; i += kGroup * kWidth) {
            Source::unpack(*at(i), values);
            end_at(n - i, values);
            f(i, values);
        }
    }
    // Of what this thread holds. NaN comes before all others.
    __device__ C largest() const {
        C best[2] = {C(-INFINITY), C(-INFINITY)};
        each([&](std::int64_t, const C* v) {
#pragma unroll
            for (int k = 0; k < kWidth; ++k) best[k % 2] = larger_or_nan(best[k % 2], v[k]);
        });
        return larger_or_nan(best[0], best[1]);
    }
    __device__ static C larger_or_nan(C a, C b) {
        C y;
        asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
        return y;
    }
    __device__ static void end_at(std::int64_t count, C* values) {
        if (count >= kWidth) return;
#pragma unroll
        for (int k = 0; k < kWidth; ++k)
            if (k >= count) values[k] = -INFINITY;
    }
};

template <class T, int kGroup, int kHeld>
__global__ __launch_bounds__(kGroup, kHeld > 0 ? 1 : 2) void cross_entropy_whole_rows(
    const CrossEntropySpec spec, T* logits, const std::int64_t stride, const std::int64_t* target, const Dense losses) {
    extern __shared__ uint4 memory[];
    using Whole = WholeRow<T, kGroup, kHeld>;
    constexpr int kWidth = Whole::kWidth;
    const std::int64_t r = blockIdx.x, n = spec.classes, label = target[r];
    T* const place = logits + r * stride;
    const bool ignored = label == spec.ignore_index;
    // Read by everybody before anybody writes: there are barriers between.
    const double own = ignored ? 0.0 : double(widen(place[label]));
    const Whole row(place, n, reinterpret_cast<typename Whole::Raw*>(memory));
    const float largest = reduce<kGroup>(row.largest(), Larger{});
    const double sum = sum_of_exponentials<kGroup>(row, largest);
    const double loss = ignored ? 0.0 : loss_of<kGroup>(spec, row, largest, sum, own);
    if (threadIdx.x == 0) losses.put<double>(r, loss);
    // As Gradient does it, in fewer instructions: those for a label only where the label is.
    const float share = ignored ? 0.0f : 1.0f / float(sum),
                spread = ignored ? 0.0f : float(spec.label_smoothing / double(n));
    row.each([&](std::int64_t i, float* v) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k) v[k] = exponential<PackSource<T>>(v[k] - largest) * share - spread;
        if (std::uint64_t(label - i) < std::uint64_t(kWidth)) {
#pragma unroll
            for (int k = 0; k < kWidth; ++k)
                if (i + k == label) v[k] -= float(1.0 - spec.label_smoothing);
        }
        if (ignored) {
#pragma unroll
            for (int k = 0; k < kWidth; ++k) v[k] = 0.0f;
        }
        typename Whole::Raw raw;
        raw.pack(v);
        raw.write(place + i);
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

// Rows by the kernel that keeps `kHeld` packs a thread in registers; false where a row does not fit.
template <class T, int kGroup, int kHeld>
bool run_whole_rows(const CrossEntropySpec& spec, const View& logits, const View& target, const View& losses,
                    std::size_t most_shared, cudaStream_t stream) {
    const std::int64_t in_registers = std::int64_t(kHeld) * kGroup * kPack<T>;
    const std::int64_t whole = divide_up(spec.classes, kPack<T>) * kPack<T>;
    const std::size_t shared = whole > in_registers ? std::size_t(whole - in_registers) * sizeof(T) : 0;
    if (shared > most_shared) return false;
    const auto kernel = cross_entropy_whole_rows<T, kGroup, kHeld>;
    INVAR_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared)));
    kernel<<<unsigned(spec.rows), kGroup, shared, stream>>>(spec, logits.as<T>(), logits.stride[logits.rank - 2],
                                                            target.as<const std::int64_t>(), losses);
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
    const bool whole = spec.classes >= kFewest && stride % 8 == 0 && stride >= spec.classes &&
                       is_sixteen_bit(logits.dtype) && aligned(logits.data);
    static const std::size_t half = shared_bytes(2), all = shared_bytes(1);
    const auto run = [&](auto zero) {
        using T = decltype(zero);
        return run_whole_rows<T, 512, 0>(spec, logits, target, losses, half, stream) ||
               run_whole_rows<T, 1024, 6>(spec, logits, target, losses, all, stream);
    };
    if (whole && (logits.dtype == Dtype::f16 ? run(f16{}) : run(bf16{}))) return;
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
