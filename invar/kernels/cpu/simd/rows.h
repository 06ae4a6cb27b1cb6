// Rows of elements on their way in and out of kernels: any dtype is widened to float (double for f64 and integers) in
// blocks that stay in the first-level cache, computed on, and rounded on the way out.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "invar/core/convert.h"
#include "invar/core/view.h"

namespace invar::INVAR_ISA {

inline constexpr std::int64_t kBlock = 1024;

// Compute in double where a value would not survive float.
inline bool needs_double(Dtype dtype) {
    return dtype == Dtype::f64 || dtype == Dtype::i64 || dtype == Dtype::i32;
}

inline const char* byte_at(const void* base, Dtype dtype, std::int64_t element) {
    return static_cast<const char*>(base) + element * std::int64_t(size_of(dtype));
}
inline char* byte_at(void* base, Dtype dtype, std::int64_t element) {
    return static_cast<char*>(base) + element * std::int64_t(size_of(dtype));
}

// --- dense 16-bit conversions ---

inline void widen(const f16* from, float* to, std::int64_t n) {
    std::int64_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
#endif
    for (; i < n; ++i) to[i] = float(from[i]);
}

inline void narrow(const float* from, f16* to, std::int64_t n) {
    std::int64_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
#endif
    for (; i < n; ++i) to[i] = f16(from[i]);
}

inline void widen(const bf16* from, float* to, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) to[i] = std::bit_cast<float>(std::uint32_t(from[i].bits) << 16);
}

inline void narrow(const float* from, bf16* to, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
        const std::uint32_t bits = std::bit_cast<std::uint32_t>(from[i]);
        const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
        const std::uint32_t quiet = (bits >> 16) | 0x40u;
        to[i].bits = std::uint16_t((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
    }
}

// --- any dtype, any stride (in elements) ---

template <class C, class T>
void load_as(const T* from, std::int64_t stride, C* to, std::int64_t n) {
    if constexpr (std::is_same_v<C, float> && (std::is_same_v<T, f16> || std::is_same_v<T, bf16>)) {
        if (stride == 1) return widen(from, to, n);
    }
    if (stride == 0) {
        const C value = converted<C>(*from);
        for (std::int64_t i = 0; i < n; ++i) to[i] = value;
    } else {
        for (std::int64_t i = 0; i < n; ++i) to[i] = converted<C>(from[i * stride]);
    }
}

template <class C, class T>
void store_as(const C* from, T* to, std::int64_t stride, std::int64_t n) {
    if constexpr (std::is_same_v<C, float> && (std::is_same_v<T, f16> || std::is_same_v<T, bf16>)) {
        if (stride == 1) return narrow(from, to, n);
    }
    for (std::int64_t i = 0; i < n; ++i) to[i * stride] = converted<T>(from[i]);
}

// n elements as C: straight from memory where they are dense and of that type, else through `buffer` (n <= kBlock, or
// whatever the buffer holds).
template <class C>
const C* load(const void* from, Dtype dtype, std::int64_t stride, std::int64_t n, C* buffer) {
    if (dtype == dtype_of<C> && stride == 1) return static_cast<const C*>(from);
    dispatch(dtype,
             [&](auto tag) { load_as<C>(static_cast<const typename decltype(tag)::type*>(from), stride, buffer, n); });
    return buffer;
}

template <class C>
void store(const C* from, void* to, Dtype dtype, std::int64_t stride, std::int64_t n) {
    if (dtype == dtype_of<C> && stride == 1) {
        if (from != to) std::memcpy(to, from, std::size_t(n) * sizeof(C));
        return;
    }
    if (dtype == Dtype::boolean) {
        for (std::int64_t i = 0; i < n; ++i) static_cast<std::uint8_t*>(to)[i * stride] = as_boolean(from[i]);
        return;
    }
    dispatch(dtype, [&](auto tag) { store_as<C>(from, static_cast<typename decltype(tag)::type*>(to), stride, n); });
}

// Where to compute n elements of output: in place where the output is dense and of type C, else in `buffer`, to be
// stored afterwards.
template <class C>
C* target(void* to, Dtype dtype, std::int64_t stride, C* buffer) {
    return dtype == dtype_of<C> && stride == 1 ? static_cast<C*>(to) : buffer;
}

}  // namespace invar::INVAR_ISA
