#include "invar/formats/format_tally_avx2.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "invar/core/cpu_features.h"
#include "invar/core/format_info.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define INVAR_AVX2 __attribute__((target("avx2,fma,f16c")))

namespace invar {

namespace {

constexpr std::size_t kBlock = 4096;  // values; stays in the first cache, and short enough to sum errors in float
constexpr std::size_t kMostFormats = 4;
constexpr std::uint32_t kInfinity = 0x7f80'0000;

struct Spec {
    Dtype format;
    Thresholds at;
    int dropped;               // bits of a float's mantissa that the format lacks
    std::uint32_t least_bits;  // exponent bits of the smallest normal value
    bool whole_range;          // f32's own exponents: rounding can be done on the bits
};

Spec make_spec(Dtype format) {
    const FormatInfo info = format_info(format);
    return {format, thresholds_of(format), 23 - info.mantissa_bits,
            std::bit_cast<std::uint32_t>(float(info.smallest_normal)), info.exponent_bits == 8};
}

const Spec& spec_of(Dtype format) {
    static const Spec kSpecs[] = {make_spec(Dtype::f16), make_spec(Dtype::bf16), make_spec(Dtype::f8e4m3),
                                  make_spec(Dtype::f8e5m2)};
    return *std::find_if(std::begin(kSpecs), std::end(kSpecs), [&](const Spec& s) { return s.format == format; });
}

// Counts of a block that all formats share, lane by lane.
struct Shared {
    __m256i zero, not_finite, nan, largest, smallest;
};
struct Lanes {
    __m256i vanishing, below_normal, overflowing;
    __m256 error_sum, max_error;
};

INVAR_AVX2 inline __m256i all_of(std::uint32_t bits) {
    return _mm256_set1_epi32(static_cast<int>(bits));
}

INVAR_AVX2 inline std::int64_t sum(__m256i lanes) {
    alignas(32) std::int32_t each[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(each), lanes);
    std::int64_t total = 0;
    for (const std::int32_t value : each) total += value;
    return total;
}

// Positive values rounded to the format: where the exponent range is smaller, adding 1.5 * 2^23 units of the last place
// and taking it away again leaves a multiple of that unit, rounded to even; subnormals have the unit of the smallest
// normal.
INVAR_AVX2 inline __m256 round_to(const Spec& spec, __m256i bits) {
    if (spec.whole_range) {
        const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, spec.dropped), _mm256_set1_epi32(1));
        const __m256i half = all_of((1u << (spec.dropped - 1)) - 1);
        const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(half, odd));
        return _mm256_castsi256_ps(_mm256_andnot_si256(all_of((1u << spec.dropped) - 1), up));
    }
    __m256i exponent = _mm256_max_epi32(_mm256_and_si256(bits, all_of(kInfinity)), all_of(spec.least_bits));
    exponent = _mm256_min_epi32(exponent, all_of(200u << 23));  // what is larger overflows anyway
    const __m256i units = _mm256_add_epi32(exponent, all_of(std::uint32_t(spec.dropped) << 23));
    const __m256 magic = _mm256_castsi256_ps(_mm256_or_si256(units, all_of(0x0040'0000)));
    return _mm256_sub_ps(_mm256_add_ps(_mm256_castsi256_ps(bits), magic), magic);
}

INVAR_AVX2 inline void tally_format(const Spec& spec, __m256i bits, __m256 lift, __m256 reciprocal, Lanes& lanes) {
    const __m256i survives_zero = _mm256_cmpgt_epi32(bits, all_of(spec.at.vanish));
    const __m256i below_overflow = _mm256_cmpgt_epi32(all_of(spec.at.overflow), bits);
    lanes.vanishing = _mm256_add_epi32(lanes.vanishing, survives_zero);       // minus one for each that does
    lanes.overflowing = _mm256_add_epi32(lanes.overflowing, below_overflow);  // likewise
    lanes.below_normal = _mm256_sub_epi32(lanes.below_normal, _mm256_cmpgt_epi32(all_of(spec.at.normal), bits));
    const __m256 value = _mm256_castsi256_ps(bits);
    __m256 far = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), _mm256_sub_ps(value, round_to(spec, bits)));
    if (spec.whole_range) far = _mm256_mul_ps(far, lift);  // elsewhere what is that small vanishes
    const __m256 kept = _mm256_castsi256_ps(_mm256_and_si256(survives_zero, below_overflow));
    const __m256 error = _mm256_and_ps(_mm256_mul_ps(far, reciprocal), kept);
    lanes.error_sum = _mm256_add_ps(lanes.error_sum, error);
    lanes.max_error = _mm256_max_ps(lanes.max_error, error);
}

// A block of whole vectors. `histogram` has a table for each lane, so that equal neighbours do not wait for each other.
template <std::size_t kFormats>
INVAR_AVX2 void tally_block(const float* values, std::size_t vectors, const Spec* const* specs, Tally& tally,
                            std::uint32_t (&histogram)[8][256]) {
    const __m256i zero = _mm256_setzero_si256();
    Shared shared{zero, zero, zero, zero, all_of(kInfinity)};
    Lanes lanes[kFormats > 0 ? kFormats : 1];
    for (Lanes& l : lanes) l = {zero, zero, zero, _mm256_setzero_ps(), _mm256_setzero_ps()};
    const __m256i magnitude = all_of(0x7fff'ffff), last_finite = all_of(kInfinity - 1);
    const __m256 least = _mm256_set1_ps(0x1p-126f);
    for (std::size_t i = 0; i < vectors; ++i) {
        const __m256i raw = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values + 8 * i));
        const __m256i bits = _mm256_and_si256(raw, magnitude);
        const __m256i is_zero = _mm256_cmpeq_epi32(bits, zero), bad = _mm256_cmpgt_epi32(bits, last_finite);
        shared.zero = _mm256_sub_epi32(shared.zero, is_zero);
        shared.not_finite = _mm256_sub_epi32(shared.not_finite, bad);
        shared.nan = _mm256_sub_epi32(shared.nan, _mm256_cmpgt_epi32(bits, all_of(kInfinity)));
        shared.largest = _mm256_max_epi32(shared.largest, _mm256_andnot_si256(bad, bits));
        shared.smallest =
            _mm256_min_epi32(shared.smallest, _mm256_or_si256(bits, _mm256_and_si256(is_zero, magnitude)));
        alignas(32) std::uint32_t exponents[8];
        _mm256_store_si256(reinterpret_cast<__m256i*>(exponents), _mm256_srli_epi32(bits, 23));
        for (int lane = 0; lane < 8; ++lane) ++histogram[lane][exponents[lane]];
        // The reciprocal of a subnormal float may be infinite: those are lifted, and their errors with them.
        const __m256 value = _mm256_castsi256_ps(bits);
        const __m256 lift =
            _mm256_blendv_ps(_mm256_set1_ps(1.0f), _mm256_set1_ps(0x1p64f), _mm256_cmp_ps(value, least, _CMP_LT_OQ));
        const __m256 reciprocal = _mm256_div_ps(_mm256_set1_ps(1.0f), _mm256_max_ps(_mm256_mul_ps(value, lift), least));
        for (std::size_t f = 0; f < kFormats; ++f) tally_format(*specs[f], bits, lift, reciprocal, lanes[f]);
    }
    const auto n = std::int64_t(8 * vectors);
    const std::int64_t zeros = sum(shared.zero), not_finite = sum(shared.not_finite), nans = sum(shared.nan);
    tally.values += n, tally.zeros += zeros, tally.nans += nans, tally.infinities += not_finite - nans;
    alignas(32) std::uint32_t largest[8], smallest[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(largest), shared.largest);
    _mm256_store_si256(reinterpret_cast<__m256i*>(smallest), shared.smallest);
    const double high = std::bit_cast<float>(*std::max_element(largest, largest + 8));
    const std::uint32_t low = *std::min_element(smallest, smallest + 8);
    tally.largest = std::max(tally.largest, high);
    if (low < kInfinity) {
        const double size = std::bit_cast<float>(low);
        tally.smallest = tally.smallest == 0 ? size : std::min(tally.smallest, size);
    }
    for (std::size_t f = 0; f < kFormats; ++f) {
        FormatTally& out = tally.formats[f];
        const std::int64_t to_zero = n + sum(lanes[f].vanishing), too_large = n + sum(lanes[f].overflowing);
        out.vanish += to_zero - zeros;
        out.subnormal += sum(lanes[f].below_normal) - to_zero;
        out.overflow += too_large - not_finite;
        out.kept += n - to_zero - too_large;
        alignas(32) float errors[8], most[8];
        _mm256_store_ps(errors, lanes[f].error_sum);
        _mm256_store_ps(most, lanes[f].max_error);
        for (const float error : errors) out.error_sum += error;
        out.max_error = std::max<double>(out.max_error, *std::max_element(most, most + 8));
    }
}

using BlockFunction = void (*)(const float*, std::size_t, const Spec* const*, Tally&, std::uint32_t (&)[8][256]);
constexpr BlockFunction kBlockFunctions[] = {tally_block<0>, tally_block<1>, tally_block<2>, tally_block<3>,
                                             tally_block<4>};
static_assert(std::size(kBlockFunctions) == kMostFormats + 1);

INVAR_AVX2 void widen(Dtype dtype, const char* from, std::size_t count, float* to) {
    std::size_t i = 0;
    if (dtype == Dtype::f32) {
        std::memcpy(to, from, count * 4);
        return;
    }
    if (dtype == Dtype::f16 || dtype == Dtype::bf16) {
        for (; i + 8 <= count; i += 8) {
            const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 2 * i));
            _mm256_storeu_ps(to + i, dtype == Dtype::f16
                                         ? _mm256_cvtph_ps(half)
                                         : _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16)));
        }
    }
    dispatch(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        for (; i < count; ++i) {
            T value;
            std::memcpy(&value, from + i * sizeof(T), sizeof(T));
            to[i] = float(value);
        }
    });
}

}  // namespace

bool tally_with_avx2(Dtype dtype, const void* data, std::size_t count, std::span<const Dtype> formats, Tally& tally) {
    if (!cpu_features().x86_v3 || formats.size() > kMostFormats) return false;
    const Spec* specs[kMostFormats] = {};
    for (std::size_t f = 0; f < formats.size(); ++f) specs[f] = &spec_of(formats[f]);
    const BlockFunction block = kBlockFunctions[formats.size()];
    std::uint32_t histogram[8][256] = {};
    const std::int64_t zeros_before = tally.zeros;
    alignas(32) float buffer[kBlock];
    const char* bytes = static_cast<const char*>(data);
    const std::size_t width = size_of(dtype);
    const bool in_place = dtype == Dtype::f32 && reinterpret_cast<std::uintptr_t>(data) % alignof(float) == 0;
    std::size_t done = 0;
    for (; done + 8 <= count;) {
        const std::size_t n = std::min(kBlock, (count - done) / 8 * 8);
        const float* values = buffer;
        if (in_place)
            values = reinterpret_cast<const float*>(bytes + done * width);
        else
            widen(dtype, bytes + done * width, n, buffer);
        block(values, n / 8, specs, tally, histogram);
        done += n;
    }
    for (const auto& table : histogram)
        for (std::size_t e = 0; e < 255; ++e) tally.exponents[e] += table[e];
    tally.exponents[0] -= tally.zeros - zeros_before;  // zero has the exponent bits of the subnormals
    tally_values_plainly(dtype, bytes + done * width, count - done, formats, tally);
    return true;
}

}  // namespace invar

#else

namespace invar {
bool tally_with_avx2(Dtype, const void*, std::size_t, std::span<const Dtype>, Tally&) {
    return false;
}
}  // namespace invar

#endif
