// What the CUDA kernels share: elements of any dtype in and out, 16-byte packs with the hardware's conversions, index
// arithmetic, and reductions over warps and blocks in a fixed order.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "invar/core/convert.h"
#include "invar/core/view.h"

namespace invar::cuda {

inline constexpr int kThreads = 256;
inline constexpr int kWarp = 32;

// Compute in double where a value would not survive float.
inline bool needs_double(Dtype dtype) {
    return dtype == Dtype::f64 || dtype == Dtype::i64 || dtype == Dtype::i32;
}

INVAR_HD constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) {
    return (a + b - 1) / b;
}

template <class T>
INVAR_HD constexpr T smaller(T a, T b) {
    return b < a ? b : a;
}

// Blocks for n items, at most what a grid can hold; kernels that may need more stride over the grid.
inline unsigned grid_for(std::int64_t n, std::int64_t per_block, std::int64_t limit = 0x7fffffff) {
    return unsigned(smaller(divide_up(n, per_block), limit));
}

inline bool aligned(const void* p, std::size_t bytes = 16) {
    return reinterpret_cast<std::uintptr_t>(p) % bytes == 0;
}

__device__ inline std::int64_t global_thread() {
    return std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline std::int64_t grid_threads() {
    return std::int64_t(gridDim.x) * blockDim.x;
}

// 64-bit division takes a hundred instructions; nearly all sizes fit in 32 bits.
struct Quotient {
    std::int64_t whole, rest;
};
__device__ inline Quotient divide(std::int64_t a, std::int64_t b) {
    if (((a | b) >> 32) == 0) {
        const std::uint32_t q = std::uint32_t(a) / std::uint32_t(b);
        return {std::int64_t(q), std::int64_t(std::uint32_t(a) - q * std::uint32_t(b))};
    }
    const std::int64_t q = a / b;
    return {q, a - q * b};
}

// --- single elements ---

__device__ inline float widen(float v) {
    return v;
}
__device__ inline float widen(f16 v) {
    return __half2float(__ushort_as_half(v.bits));
}
__device__ inline float widen(bf16 v) {
    return __bfloat162float(__ushort_as_bfloat16(v.bits));
}

template <class T>
__device__ inline T narrow(float v) {
    if constexpr (std::is_same_v<T, f16>)
        return f16::from_bits(__half_as_ushort(__float2half_rn(v)));
    else if constexpr (std::is_same_v<T, bf16>)
        return bf16::from_bits(__bfloat16_as_ushort(__float2bfloat16_rn(v)));
    else
        return v;
}

// The dtypes that few tensors have, out of line: inlined everywhere they would make every kernel large.
template <class C>
__device__ __noinline__ C load_rare(const void* base, Dtype dtype, std::int64_t i) {
    switch (dtype) {
        case Dtype::f64:
            return converted<C>(static_cast<const double*>(base)[i]);
        case Dtype::f8e4m3:
            return converted<C>(static_cast<const f8e4m3*>(base)[i]);
        case Dtype::f8e5m2:
            return converted<C>(static_cast<const f8e5m2*>(base)[i]);
        case Dtype::i64:
            return converted<C>(static_cast<const std::int64_t*>(base)[i]);
        case Dtype::i32:
            return converted<C>(static_cast<const std::int32_t*>(base)[i]);
        default:
            return converted<C>(static_cast<const std::uint8_t*>(base)[i]);
    }
}

template <class C>
__device__ __noinline__ void store_rare(C v, void* base, Dtype dtype, std::int64_t i) {
    switch (dtype) {
        // From double directly: rounding twice, through f32, would not be rounding to nearest.
        case Dtype::f16:
            static_cast<f16*>(base)[i] = converted<f16>(v);
            break;
        case Dtype::bf16:
            static_cast<bf16*>(base)[i] = converted<bf16>(v);
            break;
        case Dtype::f64:
            static_cast<double*>(base)[i] = converted<double>(v);
            break;
        case Dtype::f8e4m3:
            static_cast<f8e4m3*>(base)[i] = converted<f8e4m3>(v);
            break;
        case Dtype::f8e5m2:
            static_cast<f8e5m2*>(base)[i] = converted<f8e5m2>(v);
            break;
        case Dtype::i64:
            static_cast<std::int64_t*>(base)[i] = converted<std::int64_t>(v);
            break;
        case Dtype::i32:
            static_cast<std::int32_t*>(base)[i] = converted<std::int32_t>(v);
            break;
        case Dtype::boolean:
            static_cast<std::uint8_t*>(base)[i] = as_boolean(v);
            break;
        default:
            static_cast<std::uint8_t*>(base)[i] = converted<std::uint8_t>(v);
            break;
    }
}

template <class C>
__device__ inline C load_any(const void* base, Dtype dtype, std::int64_t i) {
    if (dtype == Dtype::f32) return converted<C>(static_cast<const float*>(base)[i]);
    if (dtype == Dtype::f16) return converted<C>(widen(static_cast<const f16*>(base)[i]));
    if (dtype == Dtype::bf16) return converted<C>(widen(static_cast<const bf16*>(base)[i]));
    return load_rare<C>(base, dtype, i);
}

template <class C>
__device__ inline void store_any(C v, void* base, Dtype dtype, std::int64_t i) {
    if (dtype == Dtype::f32) {
        static_cast<float*>(base)[i] = converted<float>(v);
        return;
    }
    if constexpr (std::is_same_v<C, float>) {
        if (dtype == Dtype::f16) {
            static_cast<f16*>(base)[i] = narrow<f16>(v);
            return;
        }
        if (dtype == Dtype::bf16) {
            static_cast<bf16*>(base)[i] = narrow<bf16>(v);
            return;
        }
    }
    store_rare<C>(v, base, dtype, i);
}

// A tensor inside a kernel: dense, of any dtype, perhaps absent.
struct Dense {
    void* data = nullptr;
    Dtype dtype = Dtype::f32;
    Dense() = default;
    Dense(const View& view) : data(view.data), dtype(view.dtype) {}
    template <class C>
    __device__ C get(std::int64_t i) const {
        return load_any<C>(data, dtype, i);
    }
    template <class C>
    __device__ C get_or(std::int64_t i, C otherwise) const {
        return data == nullptr ? otherwise : load_any<C>(data, dtype, i);
    }
    template <class C>
    __device__ void put(std::int64_t i, C v) const {
        store_any<C>(v, data, dtype, i);
    }
};

// --- packs: kCount neighbouring elements, moved 16 (or, where they are fewer, 8) bytes at a time ---

template <class T, int kCount>
struct Pack {
    using Element = T;
    static constexpr int kBytes = kCount * int(sizeof(T));
    static_assert(kBytes == 8 || kBytes % 16 == 0);
    using Word = std::conditional_t<kBytes == 8, uint2, uint4>;
    static constexpr int kWords = kBytes / int(sizeof(Word));
    Word words[kWords];

    __device__ void read(const T* from) {
#pragma unroll
        for (int i = 0; i < kWords; ++i) words[i] = reinterpret_cast<const Word*>(from)[i];
    }
    __device__ void write(T* to) const {
#pragma unroll
        for (int i = 0; i < kWords; ++i) reinterpret_cast<Word*>(to)[i] = words[i];
    }
    __device__ void unpack(float* values) const {
        const std::uint32_t* raw = reinterpret_cast<const std::uint32_t*>(words);
        if constexpr (sizeof(T) == 4) {
#pragma unroll
            for (int i = 0; i < kCount; ++i) values[i] = __uint_as_float(raw[i]);
        } else {
#pragma unroll
            for (int i = 0; i < kCount / 2; ++i) {
                if constexpr (std::is_same_v<T, bf16>) {
                    values[2 * i] = __uint_as_float(raw[i] << 16);
                    values[2 * i + 1] = __uint_as_float(raw[i] & 0xffff0000u);
                } else {
                    values[2 * i] = __half2float(__ushort_as_half(std::uint16_t(raw[i])));
                    values[2 * i + 1] = __half2float(__ushort_as_half(std::uint16_t(raw[i] >> 16)));
                }
            }
        }
    }
    __device__ void pack(const float* values) {
        std::uint32_t* raw = reinterpret_cast<std::uint32_t*>(words);
        if constexpr (sizeof(T) == 4) {
#pragma unroll
            for (int i = 0; i < kCount; ++i) raw[i] = __float_as_uint(values[i]);
        } else {
#pragma unroll
            for (int i = 0; i < kCount / 2; ++i) {
                if constexpr (std::is_same_v<T, bf16>) {
                    const __nv_bfloat162 two = __floats2bfloat162_rn(values[2 * i], values[2 * i + 1]);
                    raw[i] = std::uint32_t(__bfloat16_as_ushort(two.x)) | std::uint32_t(__bfloat16_as_ushort(two.y))
                                                                              << 16;
                } else {
                    const __half2 two = __floats2half2_rn(values[2 * i], values[2 * i + 1]);
                    raw[i] = std::uint32_t(__half_as_ushort(two.x)) | std::uint32_t(__half_as_ushort(two.y)) << 16;
                }
            }
        }
    }
};

// The elements of one 16-byte access.
template <class T>
inline constexpr int kPack = 16 / int(sizeof(T));

// Stores kCount values, aligned as a pack of them is, as f32, f16 or bf16; anything else goes one by one.
template <int kCount, class C>
__device__ inline void store_pack(const C* values, const Dense& to, std::int64_t at) {
    if constexpr (std::is_same_v<C, float> && kCount >= 4) {
        const auto put = [&]<class T>(T) {
            Pack<T, kCount> pack;
            pack.pack(values);
            pack.write(static_cast<T*>(to.data) + at);
        };
        if (to.dtype == Dtype::f32) return put(float{});
        if (to.dtype == Dtype::f16) return put(f16{});
        if (to.dtype == Dtype::bf16) return put(bf16{});
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) store_any<C>(values[i], to.data, to.dtype, at + i);
}

template <int kCount, class C>
__device__ inline void load_pack(const Dense& from, std::int64_t at, C* values) {
    if constexpr (std::is_same_v<C, float> && kCount >= 4) {
        const auto take = [&]<class T>(T) {
            Pack<T, kCount> pack;
            pack.read(static_cast<const T*>(from.data) + at);
            pack.unpack(values);
        };
        if (from.dtype == Dtype::f32) return take(float{});
        if (from.dtype == Dtype::f16) return take(f16{});
        if (from.dtype == Dtype::bf16) return take(bf16{});
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = load_any<C>(from.data, from.dtype, at + i);
}

// Calls f(TypeTag<T>{}) for the three types that have fast paths; false for any other.
template <class F>
bool with_fast_type(Dtype dtype, const F& f) {
    switch (dtype) {
        case Dtype::f32:
            f(TypeTag<float>{});
            return true;
        case Dtype::f16:
            f(TypeTag<f16>{});
            return true;
        case Dtype::bf16:
            f(TypeTag<bf16>{});
            return true;
        default:
            return false;
    }
}

// --- reductions: a tree of fixed shape, so that the same values give the same bits ---

template <class T>
__device__ inline T shuffle_xor(T v, int mask) {
    if constexpr (sizeof(T) == 4 || sizeof(T) == 8) {
        return __shfl_xor_sync(0xffffffffu, v, mask);
    } else {
        static_assert(sizeof(T) % 4 == 0);
        T other;
        const std::uint32_t* from = reinterpret_cast<const std::uint32_t*>(&v);
        std::uint32_t* to = reinterpret_cast<std::uint32_t*>(&other);
#pragma unroll
        for (int i = 0; i < int(sizeof(T) / 4); ++i) to[i] = __shfl_xor_sync(0xffffffffu, from[i], mask);
        return other;
    }
}

struct Add {
    template <class T>
    __device__ T operator()(T a, T b) const {
        return a + b;
    }
};

// The larger, NaN where there is one.
struct Larger {
    template <class T>
    __device__ T operator()(T a, T b) const {
        if constexpr (std::is_same_v<T, float>) {
            asm("max.NaN.f32 %0, %1, %2;" : "=f"(a) : "f"(a), "f"(b));
            return a;
        }
        return b > a || b != b ? b : a;
    }
};

// Over the threads that share a row: a warp, or a whole block of kGroup. All of them get the result.
template <int kGroup, class T, class Join>
__device__ inline T reduce(T v, const Join& join) {
    static_assert(kGroup % kWarp == 0);
#pragma unroll
    for (int mask = kWarp / 2; mask > 0; mask /= 2) v = join(v, shuffle_xor(v, mask));
    if constexpr (kGroup > kWarp) {
        constexpr int kWarps = kGroup / kWarp;
        alignas(16) __shared__ unsigned char memory[kWarps * sizeof(T)];
        T* parts = reinterpret_cast<T*>(memory);
        __syncthreads();  // the threads may still be reading what an earlier call left there
        if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = v;
        __syncthreads();
        v = parts[0];
#pragma unroll
        for (int i = 1; i < kWarps; ++i) v = join(v, parts[i]);
    }
    return v;
}

}  // namespace invar::cuda
