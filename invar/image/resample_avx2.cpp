#include "invar/image/resample_rows.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>

#include "invar/core/cpu_features.h"

#define INVAR_AVX2 __attribute__((target("avx2")))

namespace invar {

namespace {

// Three channels and a byte of the next pixel in a register of four.
INVAR_AVX2 inline __m128i load_pixel(const std::uint8_t* pixel) {
    int bytes;
    std::memcpy(&bytes, pixel, sizeof bytes);
    return _mm_cvtepu8_epi32(_mm_cvtsi32_si128(bytes));
}

INVAR_AVX2 inline void store_pixel(std::uint8_t* to, __m128i sum, std::size_t count) {
    const __m128i words = _mm_packus_epi32(_mm_srai_epi32(sum, FilterTable::kBits), _mm_setzero_si128());
    const int bytes = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
    std::memcpy(to, &bytes, count);
}

INVAR_AVX2 void columns_rgb(const std::uint8_t* const* from, std::uint8_t* const* to, const FilterTable& table) {
    const std::int64_t count = table.size();
    for (std::int64_t i = 0; i < count; ++i) {
        const FilterTable::Run run = table.run(i);
        const __m128i half = _mm_set1_epi32(FilterTable::kHalf);
        __m128i a = half, b = half, c = half, d = half;
        for (std::int64_t k = 0; k < run.count; ++k) {
            const __m128i weight = _mm_set1_epi32(run.weights[k]);
            const std::int64_t at = (run.first + k) * 3;
            a = _mm_add_epi32(a, _mm_mullo_epi32(load_pixel(from[0] + at), weight));
            b = _mm_add_epi32(b, _mm_mullo_epi32(load_pixel(from[1] + at), weight));
            c = _mm_add_epi32(c, _mm_mullo_epi32(load_pixel(from[2] + at), weight));
            d = _mm_add_epi32(d, _mm_mullo_epi32(load_pixel(from[3] + at), weight));
        }
        const __m128i sums[] = {a, b, c, d};
        static_assert(sizeof sums / sizeof sums[0] == RowKernels::kGroup);
        if (i + 1 < count)  // a fourth byte goes where the next pixel will be
            for (std::size_t row = 0; row < RowKernels::kGroup; ++row) store_pixel(to[row] + i * 3, sums[row], 4);
        else
            for (std::size_t row = 0; row < RowKernels::kGroup; ++row) store_pixel(to[row] + i * 3, sums[row], 3);
    }
}

INVAR_AVX2 void columns_grey(const std::uint8_t* const* from, std::uint8_t* const* to, const FilterTable& table) {
    for (std::int64_t i = 0; i < table.size(); ++i) {
        const FilterTable::Run run = table.run(i);
        for (std::size_t row = 0; row < RowKernels::kGroup; ++row) {
            std::int32_t sum = FilterTable::kHalf;
            for (std::int64_t k = 0; k < run.count; ++k) sum += from[row][run.first + k] * run.weights[k];
            to[row][i] = std::uint8_t(sum >> FilterTable::kBits);
        }
    }
}

INVAR_AVX2 inline __m256i load_eight(const std::uint8_t* bytes) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)));
}

INVAR_AVX2 void rows(const std::uint8_t* const* from, const FilterTable::Run& run, std::uint8_t* to,
                     std::size_t count) {
    constexpr std::size_t kBlock = 32;
    const __m256i half = _mm256_set1_epi32(FilterTable::kHalf);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);  // packing works on each half for itself
    std::size_t at = 0;
    for (; at + kBlock <= count; at += kBlock) {
        __m256i a = half, b = half, c = half, d = half;
        for (std::int64_t k = 0; k < run.count; ++k) {
            const __m256i weight = _mm256_set1_epi32(run.weights[k]);
            const std::uint8_t* row = from[k] + at;
            a = _mm256_add_epi32(a, _mm256_mullo_epi32(load_eight(row), weight));
            b = _mm256_add_epi32(b, _mm256_mullo_epi32(load_eight(row + 8), weight));
            c = _mm256_add_epi32(c, _mm256_mullo_epi32(load_eight(row + 16), weight));
            d = _mm256_add_epi32(d, _mm256_mullo_epi32(load_eight(row + 24), weight));
        }
        const __m256i low =
            _mm256_packus_epi32(_mm256_srai_epi32(a, FilterTable::kBits), _mm256_srai_epi32(b, FilterTable::kBits));
        const __m256i high =
            _mm256_packus_epi32(_mm256_srai_epi32(c, FilterTable::kBits), _mm256_srai_epi32(d, FilterTable::kBits));
        const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), order);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + at), bytes);
    }
    for (; at < count; ++at) {
        std::int32_t sum = FilterTable::kHalf;
        for (std::int64_t k = 0; k < run.count; ++k) sum += from[k][at] * run.weights[k];
        to[at] = std::uint8_t(sum >> FilterTable::kBits);
    }
}

}  // namespace

const RowKernels* row_kernels_avx2() {
    static const RowKernels kernels{columns_rgb, columns_grey, rows};
    return cpu_features().x86_v3 ? &kernels : nullptr;
}

}  // namespace invar

#else

namespace invar {

const RowKernels* row_kernels_avx2() {
    return nullptr;
}

}  // namespace invar

#endif
