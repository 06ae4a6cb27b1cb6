// Random numbers and dropout. Element i of a dense tensor takes number i of the reserved sequence, as on the CPU.
#include <cmath>

#include "invar/kernels/cuda/launch.h"
#include "invar/kernels/cuda/pointwise.cuh"
#include "invar/kernels/cuda/recording.h"

namespace invar::cuda {
namespace {

// In double and unfused, so that values agree with the CPU's to the last bit.
struct Uniform {
    double low, width;
    __device__ void operator()(const Random4& random, double* values) const {
#pragma unroll
        for (int i = 0; i < 4; ++i) values[i] = __dadd_rn(low, __dmul_rn(width, double(to_unit(random.v[i]))));
    }
};

// Box and Muller, two numbers in, two out.
struct Normal {
    double mean, deviation;
    __device__ void operator()(const Random4& random, double* values) const {
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            const double radius = sqrt(-2.0 * log(1.0 - double(to_unit(random.v[i]))));
            double sine, cosine;
            sincos(6.28318530717958647693 * double(to_unit(random.v[i + 1])), &sine, &cosine);
            values[i] = __dadd_rn(mean, __dmul_rn(__dmul_rn(deviation, radius), cosine));
            values[i + 1] = __dadd_rn(mean, __dmul_rn(__dmul_rn(deviation, radius), sine));
        }
    }
};

template <class Make>
__global__ __launch_bounds__(kThreads) void generate(const Make make, const Dense out, const std::int64_t n,
                                                     const RngState rng) {
    const std::int64_t groups = divide_up(n, 4);
    for (std::int64_t g = global_thread(); g < groups; g += grid_threads()) {
        double values[4];
        make(philox(rng.seed, rng.offset + std::uint64_t(g)), values);
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (4 * g + i < n) out.put<double>(4 * g + i, values[i]);
    }
}

template <class Make>
void launch_generate(const Make& make, const View& out, RngState rng, cudaStream_t stream) {
    const std::int64_t n = out.numel();
    if (n > 0) generate<<<grid_for(divide_up(n, 4), kThreads, 1 << 20), kThreads, 0, stream>>>(make, out, n, rng);
}

struct Drop {
    DropRule rule;
    RngState rng;
    const std::uint64_t* base;  // where the sequence starts at run time, nullptr: at rng.offset
    int skip;                   // of the first counter

    __device__ std::uint64_t offset() const { return rng.offset + (base == nullptr ? 0 : *base); }
    template <class C>
    __device__ C one(C x, const Random4& random, int i) const {
        return x * (DropRule::bits(random, i) < rule.limit ? C(0) : C(rule.keep));  // NaN stays NaN
    }
};

template <class C>
__global__ __launch_bounds__(kThreads) void dropout_any(const Drop drop, const Dense x, const Dense y,
                                                        const std::int64_t n) {
    constexpr int kCount = DropRule::kElements;
    const std::int64_t groups = divide_up(drop.skip + n, kCount);
    const std::uint64_t offset = drop.offset();
    for (std::int64_t g = global_thread(); g < groups; g += grid_threads()) {
        const Random4 random = philox(drop.rng.seed, offset + std::uint64_t(g));
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            const std::int64_t at = kCount * g + i - drop.skip;
            if (at >= 0 && at < n) y.put<C>(at, drop.one<C>(x.get<C>(at), random, i));
        }
    }
}

// A thread takes packs of 16 bytes: all eight elements of a counter in 16 bits, half of them in 32. Nothing is skipped.
template <class T>
__global__ __launch_bounds__(kThreads) void dropout_dense(const Drop drop, const T* x, T* y, const std::int64_t n) {
    constexpr int kCount = kPack<T>, kUnroll = 2;
    const std::uint64_t offset = drop.offset();
    const std::int64_t first = std::int64_t(blockIdx.x) * (kThreads * kCount * kUnroll) + threadIdx.x * kCount;
    Pack<T, kCount> raw[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t at = first + u * (kThreads * kCount);
        if (at + kCount <= n) raw[u].read(x + at);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t at = first + u * (kThreads * kCount);
        if (at >= n) return;
        Random4 random = philox(drop.rng.seed, offset + std::uint64_t(at / DropRule::kElements));
        if (kCount < DropRule::kElements && at % DropRule::kElements != 0)
            random.v[0] = random.v[2], random.v[1] = random.v[3];
        if (at + kCount <= n) {
            float values[kCount];
            raw[u].unpack(values);
#pragma unroll
            for (int i = 0; i < kCount; ++i) values[i] = drop.one(values[i], random, i);
            raw[u].pack(values);
            raw[u].write(y + at);
        } else {
#pragma unroll
            for (int i = 0; i < kCount; ++i)
                if (at + i < n) y[at + i] = narrow<T>(drop.one(widen(x[at + i]), random, i));
        }
    }
}

__global__ void add_to(std::uint64_t* counter, std::uint64_t by) {
    *counter += by;
}

}  // namespace

void CudaKernels::uniform(const View& out, double low, double high, RngState rng) {
    refuse_recording("fresh random tensors");
    const Launch stream("uniform");
    launch_generate(Uniform{low, high - low}, out, rng, stream);
}

void CudaKernels::normal(const View& out, double mean, double deviation, RngState rng) {
    refuse_recording("fresh random tensors");
    const Launch stream("normal");
    launch_generate(Normal{mean, deviation}, out, rng, stream);
}

// In recorded work the numbers start at a counter that is read when the kernel runs, so that each replay draws its own.
void CudaKernels::dropout(const View& x, const View& y, double p, const ReservedNumbers& numbers) {
    const RecordedRandom* const random = recorded_random();
    const Launch stream("dropout");
    const std::int64_t n = x.numel();
    if (n == 0) return;
    if (p >= 1.0) return fill(y, 0);
    const Drop drop{DropRule(p), random ? random->from_counter(numbers.from) : numbers.from,
                    random ? random->counter() : nullptr, numbers.skip};
    bool fast = false;
    if (numbers.skip == 0 && dense_of(x.dtype, {&x, &y}))
        fast = with_fast_type(x.dtype, [&](auto tag) {
            using T = typename decltype(tag)::type;
            dropout_dense<T>
                <<<grid_for(n, kThreads * kPack<T> * 2), kThreads, 0, stream>>>(drop, x.as<T>(), y.as<T>(), n);
        });
    if (fast) return;
    const unsigned blocks = grid_for(divide_up(numbers.skip + n, DropRule::kElements), kThreads, 1 << 20);
    if (x.dtype == Dtype::f64)
        dropout_any<double><<<blocks, kThreads, 0, stream>>>(drop, x, y, n);
    else
        dropout_any<float><<<blocks, kThreads, 0, stream>>>(drop, x, y, n);
}

void advance(std::uint64_t* counter, std::uint64_t by, cudaStream_t stream) {
    add_to<<<1, 1, 0, stream>>>(counter, by);
}

}  // namespace invar::cuda
