// The number formats to the bit: against the processor's own conversions where it has them,
// and against definitions written independently of the library where it has not.
#include "invar/core/formats.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace invar {
namespace {

static_assert(f16(1.0).bits == 0x3c00 && bf16(1.0f).bits == 0x3f80);
static_assert(f8e4m3(448.0).bits == 0x7e && f8e5m2(57344.0).bits == 0x7b);
static_assert(f8e4m3::saturated(1e9).bits == 0x7e && f8e4m3(1e9).bits == 0x7f);
static_assert(double(f16::from_bits(0x0001)) == 0x1p-24 && float(bf16::from_bits(0x0001)) == 0x1p-133f);
static_assert(f16(-0.0).bits == 0x8000 && f16(0.0) == f16(-0.0));
static_assert(sizeof(f16) == 2 && sizeof(bf16) == 2 && sizeof(f8e4m3) == 1 && sizeof(f8e5m2) == 1);

std::uint32_t bits_of(float value) {
    return std::bit_cast<std::uint32_t>(value);
}
float float_of(std::uint32_t bits) {
    return std::bit_cast<float>(bits);
}

// ---- f16 against the processor ----

#if defined(__x86_64__)
// By cpuid, as clang 14 does not know the name; that AVX is usable says that the system keeps the registers.
bool has_f16c() {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __builtin_cpu_supports("avx") && __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
}
__attribute__((target("f16c"))) float hardware_decode(std::uint16_t bits) {
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)));
}
__attribute__((target("f16c"))) std::uint16_t hardware_encode(float value) {
    return std::uint16_t(_mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(value), _MM_FROUND_TO_NEAREST_INT)));
}
#else
bool has_f16c() {
    return false;
}
float hardware_decode(std::uint16_t) {
    return 0;
}
std::uint16_t hardware_encode(float) {
    return 0;
}
#endif

#define NEEDS_F16C() \
    if (!has_f16c()) GTEST_SKIP() << "this processor has no F16C to compare with"

// Collects disagreements, so that a broken conversion reports one line and not a million.
class Mismatches {
  public:
    void expect(std::uint32_t ours, std::uint32_t theirs, double input) {
        if (ours == theirs) return;
        if (count_++ == 0) first_ = fmt::format("{:a}: got {:#x}, expected {:#x}", input, ours, theirs);
    }
    ~Mismatches() { EXPECT_EQ(count_, 0) << "the first: " << first_; }

  private:
    std::int64_t count_ = 0;
    std::string first_;
};

TEST(F16, EveryValueDecodesAsTheProcessorDoes) {
    NEEDS_F16C();
    Mismatches mismatches;
    for (std::uint32_t bits = 0; bits < 65536; ++bits)
        mismatches.expect(bits_of(float(f16::from_bits(std::uint16_t(bits)))),
                          bits_of(hardware_decode(std::uint16_t(bits))), bits);
}

TEST(F16, RoundsAtEveryBoundaryAsTheProcessorDoes) {
    NEEDS_F16C();
    Mismatches mismatches;
    const auto compare = [&](float value) {
        for (const float x : {value, -value}) mismatches.expect(f16(x).bits, hardware_encode(x), x);
    };
    for (std::uint32_t bits = 0; bits <= f16::kMax; ++bits) {
        const float low = float(f16::from_bits(std::uint16_t(bits)));
        // Past the largest value lies what would be 65536: half way to it is where overflow begins.
        const float high = bits == f16::kMax ? 65536.0f : float(f16::from_bits(std::uint16_t(bits + 1)));
        const float middle = (low + high) / 2;
        for (const float x : {low, middle}) {
            compare(x);
            compare(std::nextafter(x, -INFINITY));
            compare(std::nextafter(x, INFINITY));
        }
    }
    for (const float x : {65519.996f, 65520.0f, 65536.0f, 3e38f, INFINITY, 0x1p-25f, 0x1.000002p-25f, 1e-45f})
        compare(x);
}

TEST(F16, KeepsWhatFitsOfANanPayloadAndQuietsItAsTheProcessorDoes) {
    NEEDS_F16C();
    Mismatches mismatches;
    for (std::uint32_t payload = 1; payload < (1u << 23); payload += payload < 0x4000 ? 1 : 509)
        for (const std::uint32_t sign : {0u, 0x8000'0000u}) {
            const float nan = float_of(sign | 0x7f80'0000u | payload);
            mismatches.expect(f16(nan).bits, hardware_encode(nan), payload);
        }
}

TEST(F16, AgreesWithTheProcessorOnMillionsOfRandomPatterns) {
    NEEDS_F16C();
    Mismatches mismatches;
    std::mt19937 random(1);
    for (int i = 0; i < 3'000'000; ++i) {
        const float anything = float_of(random());
        mismatches.expect(f16(anything).bits, hardware_encode(anything), anything);
        // Exponents 96 to 144 are the ones where f16 has something to round.
        const std::uint32_t pattern = random();
        const float near = float_of((pattern & 0x807f'ffffu) | ((96 + pattern % 49) << 23));
        mismatches.expect(f16(near).bits, hardware_encode(near), near);
    }
}

TEST(F16, OverflowBeginsHalfWayToTheNextPower) {
    EXPECT_EQ(f16(65504.0).bits, 0x7bff);
    EXPECT_EQ(f16(std::nextafter(65520.0, 0.0)).bits, 0x7bff);
    EXPECT_EQ(f16(65520.0).bits, 0x7c00);
    EXPECT_EQ(f16(-65520.0).bits, 0xfc00);
    EXPECT_EQ(f16::saturated(65520.0).bits, 0x7bff);
    EXPECT_EQ(f16::saturated(-INFINITY).bits, 0xfbff);
}

// ---- bf16 against its integer definition ----

std::uint16_t bf16_by_integers(std::uint32_t bits) {
    if ((bits & 0x7fff'ffffu) > 0x7f80'0000u) return std::uint16_t(bits >> 16 | 0x40);
    return std::uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

TEST(Bf16, RoundsAtEveryBoundaryAsTheIntegerDefinition) {
    Mismatches mismatches;
    for (std::uint32_t upper = 0; upper < 65536; ++upper)
        for (const std::uint32_t lower : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
            const std::uint32_t bits = upper << 16 | lower;
            mismatches.expect(bf16(float_of(bits)).bits, bf16_by_integers(bits), bits);
        }
}

TEST(Bf16, AgreesWithTheIntegerDefinitionOnMillionsOfRandomPatterns) {
    Mismatches mismatches;
    std::mt19937 random(2);
    for (int i = 0; i < 3'000'000; ++i) {
        const std::uint32_t bits = random();
        mismatches.expect(bf16(float_of(bits)).bits, bf16_by_integers(bits), bits);
    }
}

TEST(Bf16, DecodesAsTheUpperHalfOfAFloat) {
    Mismatches mismatches;
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
        const bool nan = (bits & 0x7fff) > 0x7f80;
        mismatches.expect(bits_of(float(bf16::from_bits(std::uint16_t(bits)))), (nan ? bits | 0x40 : bits) << 16, bits);
    }
}

// ---- all four formats against ldexp and a brute-force search ----

template <class Format>
class SmallFormat : public ::testing::Test {};
using Formats = ::testing::Types<f16, bf16, f8e4m3, f8e5m2>;
TYPED_TEST_SUITE(SmallFormat, Formats);

// The value of a magnitude as the standards write it: 2^e * m. The pattern after the largest finite one gets the
// value it would have if the format went on, which is what decides where overflow begins.
template <class Format>
double defined_value(std::uint32_t magnitude) {
    const int exponent = int(magnitude >> Format::kMantissaBits);
    const double fraction = double(magnitude & ((1u << Format::kMantissaBits) - 1));
    const int bias = (1 << (Format::kExponentBits - 1)) - 1;
    if (exponent == 0) return std::ldexp(fraction, 1 - bias - Format::kMantissaBits);
    return std::ldexp(std::ldexp(1.0, Format::kMantissaBits) + fraction, exponent - bias - Format::kMantissaBits);
}

// The nearest pattern to |value| by trying them all, the even one of two equally near.
template <class Format>
std::uint32_t nearest_by_search(double value, Overflow overflow) {
    const std::uint32_t sign = std::signbit(value) ? std::uint32_t(Format::kSignMask) : 0;
    const double size = std::fabs(value);
    std::uint32_t best = Format::kPastMax;
    if (!std::isinf(size)) {
        double distance = INFINITY;
        for (std::uint32_t magnitude = 0; magnitude <= Format::kPastMax; ++magnitude) {
            const double here = std::fabs(defined_value<Format>(magnitude) - size);
            if (here < distance || (here == distance && magnitude % 2 == 0)) best = magnitude, distance = here;
        }
    }
    if (best == Format::kPastMax && overflow == Overflow::saturate) --best;
    return sign | best;
}

TYPED_TEST(SmallFormat, EveryValueDecodesToItsDefinition) {
    for (std::uint32_t magnitude = 0; magnitude <= TypeParam::kMagnitude; ++magnitude) {
        const double positive = double(TypeParam::from_bits(typename TypeParam::Bits(magnitude)));
        const double negative =
            double(TypeParam::from_bits(typename TypeParam::Bits(magnitude | TypeParam::kSignMask)));
        ASSERT_EQ(std::signbit(negative), true) << magnitude;
        if (magnitude <= TypeParam::kMax) {
            ASSERT_EQ(positive, defined_value<TypeParam>(magnitude)) << magnitude;
            ASSERT_EQ(negative, -positive) << magnitude;
        } else if (TypeParam::kHasInfinity && magnitude == TypeParam::kPastMax) {
            ASSERT_EQ(positive, INFINITY);
            ASSERT_EQ(negative, -INFINITY);
        } else {
            ASSERT_TRUE(std::isnan(positive) && std::isnan(negative)) << magnitude;
        }
    }
}

TYPED_TEST(SmallFormat, EveryValueSurvivesTheRoundTripThroughFloatAndDouble) {
    for (std::uint32_t bits = 0; bits <= std::numeric_limits<typename TypeParam::Bits>::max(); ++bits) {
        const TypeParam value = TypeParam::from_bits(typename TypeParam::Bits(bits));
        if (std::isnan(double(value))) {
            ASSERT_TRUE(std::isnan(double(TypeParam(double(value))))) << bits;
            continue;
        }
        ASSERT_EQ(TypeParam(double(value)).bits, bits);
        ASSERT_EQ(TypeParam(float(value)).bits, bits);
        if (!std::isinf(double(value))) {
            ASSERT_EQ(TypeParam::saturated(double(value)).bits, bits);
        }
    }
}

TYPED_TEST(SmallFormat, RoundsToTheNearestEvenAtEveryBoundary) {
    for (std::uint32_t magnitude = 0; magnitude < TypeParam::kPastMax; ++magnitude) {
        const double low = defined_value<TypeParam>(magnitude), high = defined_value<TypeParam>(magnitude + 1);
        const double middle = (low + high) / 2;
        const std::uint32_t even = magnitude % 2 == 0 ? magnitude : magnitude + 1;
        ASSERT_EQ(TypeParam(std::nextafter(middle, 0.0)).bits, magnitude);
        ASSERT_EQ(TypeParam(middle).bits, even);
        ASSERT_EQ(TypeParam(std::nextafter(middle, INFINITY)).bits, magnitude + 1);
        ASSERT_EQ(TypeParam(-middle).bits, even | TypeParam::kSignMask);
    }
}

TYPED_TEST(SmallFormat, ADoubleIsRoundedOnceAndNotByWayOfFloat) {
    // A hair above the middle of 1 and its successor: float drops the hair, and the tie then goes to 1.
    const double middle = 1 + std::ldexp(1.0, -TypeParam::kMantissaBits - 1);
    const double above = middle + 0x1p-40;
    EXPECT_EQ(TypeParam(static_cast<float>(above)), TypeParam(1.0))
        << "the case must be one that goes wrong twice-rounded";
    EXPECT_EQ(double(TypeParam(above)), 1 + std::ldexp(1.0, -TypeParam::kMantissaBits));
    // And below the middle of the successor and the value after it, where the tie would go up.
    const double below = 1 + 3 * std::ldexp(1.0, -TypeParam::kMantissaBits - 1) - 0x1p-40;
    EXPECT_EQ(double(TypeParam(static_cast<float>(below))), 1 + std::ldexp(2.0, -TypeParam::kMantissaBits));
    EXPECT_EQ(double(TypeParam(below)), 1 + std::ldexp(1.0, -TypeParam::kMantissaBits));
    // The same among the subnormals: just above half the smallest one.
    const double tiny = defined_value<TypeParam>(1);
    EXPECT_EQ(TypeParam(tiny / 2 * (1 + 0x1p-40)).bits, 1);
    EXPECT_EQ(TypeParam(static_cast<float>(tiny / 2 * (1 + 0x1p-40))).bits, 0);
}

TYPED_TEST(SmallFormat, ExtremesOfDoubleAreHandled) {
    for (const double tiny : {0.0, 5e-324, 1e-310, 1e-300}) {
        EXPECT_EQ(TypeParam(tiny).bits, 0);
        EXPECT_EQ(TypeParam(-tiny).bits, TypeParam::kSignMask);
    }
    for (const double huge : {1e300, std::numeric_limits<double>::max(), double(INFINITY)}) {
        EXPECT_EQ(TypeParam(huge).bits, TypeParam::kPastMax);
        EXPECT_EQ(TypeParam::saturated(huge).bits, TypeParam::kMax);
        EXPECT_EQ(TypeParam::saturated(-huge).bits, TypeParam::kMax | TypeParam::kSignMask);
    }
    EXPECT_TRUE(std::isnan(double(TypeParam(std::nan("")))));
    EXPECT_TRUE(std::isnan(double(TypeParam::saturated(std::nan("")))));
    EXPECT_FALSE(TypeParam(std::nan("")) == TypeParam(std::nan("")));
}

TYPED_TEST(SmallFormat, ASignallingNanWhosePayloadDoesNotFitStaysNan) {
    for (const std::uint64_t bits : {0x7ff0'0000'0000'0001u, 0xfff0'0000'0000'0001u, 0x7ff0'0000'8000'0000u}) {
        const TypeParam value(std::bit_cast<double>(bits));
        EXPECT_GT(value.bits & TypeParam::kMagnitude, TypeParam::kMax);
        EXPECT_TRUE(std::isnan(double(value)));
        EXPECT_NE(value.bits & (1 << (TypeParam::kMantissaBits - 1)), 0) << "quiet";
        EXPECT_EQ((value.bits & TypeParam::kSignMask) != 0, bits >> 63 != 0);
    }
}

template <class Format>
class EightBit : public ::testing::Test {};
using EightBitFormats = ::testing::Types<f8e4m3, f8e5m2>;
TYPED_TEST_SUITE(EightBit, EightBitFormats);

TYPED_TEST(EightBit, FindsTheNearestOfAllValues) {
    std::mt19937_64 random(3);
    std::uniform_real_distribution<double> exponent(-24, 20), significand(1, 2);
    for (int i = 0; i < 100'000; ++i) {
        double value = std::ldexp(significand(random), int(std::floor(exponent(random))));
        if (i % 4 == 0) value = std::ldexp(std::round(std::ldexp(value, 12)), -12);  // many ties
        if (i % 2 == 0) value = -value;
        ASSERT_EQ(TypeParam(value).bits, (nearest_by_search<TypeParam>(value, Overflow::ieee))) << value;
        ASSERT_EQ(TypeParam::saturated(value).bits, (nearest_by_search<TypeParam>(value, Overflow::saturate))) << value;
    }
}

TEST(F8E4m3, HasNoInfinityAndOneNan) {
    EXPECT_EQ(double(f8e4m3::from_bits(0x7e)), 448.0);
    EXPECT_TRUE(std::isnan(double(f8e4m3::from_bits(0x7f))));
    EXPECT_EQ(f8e4m3(464.0).bits, 0x7e) << "the tie between 448 and 480 goes to the even 448";
    EXPECT_EQ(f8e4m3(464.001).bits, 0x7f);
    EXPECT_EQ(f8e4m3(-INFINITY).bits, 0xff);
    EXPECT_EQ(f8e4m3::saturated(INFINITY).bits, 0x7e);
    EXPECT_EQ(f8e4m3(std::nan("")).bits, 0x7f);
}

TEST(F8E5m2, OverflowsToInfinity) {
    EXPECT_EQ(f8e5m2(61439.0).bits, 0x7b);
    EXPECT_EQ(f8e5m2(61440.0).bits, 0x7c) << "the tie between 57344 and 65536 goes to the even one, infinity";
    EXPECT_EQ(f8e5m2::saturated(61440.0).bits, 0x7b);
    EXPECT_EQ(f8e5m2(std::nan("")).bits, 0x7f);
}

}  // namespace
}  // namespace invar
