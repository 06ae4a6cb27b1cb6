#include "invar/core/format_info.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "invar/core/error.h"
#include "tests/core/expect_error.h"

namespace invar {
namespace {

template <class T>
void expect_same_as_numeric_limits() {
    const FormatInfo info = format_info(dtype_of<T>);
    using Limits = std::numeric_limits<T>;
    EXPECT_EQ(info.bits, int(8 * sizeof(T)));
    EXPECT_EQ(info.max, double(Limits::max()));
    EXPECT_EQ(info.smallest_normal, double(Limits::min()));
    EXPECT_EQ(info.smallest_subnormal, double(Limits::denorm_min()));
    EXPECT_EQ(info.epsilon, double(Limits::epsilon()));
    EXPECT_EQ(int(info.decimal_digits - std::log10(2.0)), Limits::digits10);
}

template <class T>
void expect_same_as_the_bits() {
    const FormatInfo info = format_info(dtype_of<T>);
    using Bits = typename T::Bits;
    EXPECT_EQ(info.max, double(T::from_bits(T::kMax)));
    EXPECT_EQ(info.smallest_normal, double(T::from_bits(T::kSmallestNormal)));
    EXPECT_EQ(info.smallest_subnormal, double(T::from_bits(Bits(1))));
    EXPECT_EQ(1 + info.epsilon, double(T::from_bits(Bits(T(1.0).bits + 1))));
    EXPECT_EQ(info.exponent_bits + info.mantissa_bits + 1, info.bits);
    EXPECT_EQ(info.has_infinity, std::isinf(double(T(1e9 * info.max))));
    EXPECT_EQ(info.memory_vs_f32, sizeof(T) / 4.0);
}

TEST(FormatInfo, OfTheWideFormatsIsWhatTheCompilerSays) {
    expect_same_as_numeric_limits<double>();
    expect_same_as_numeric_limits<float>();
}

TEST(FormatInfo, OfTheSmallFormatsIsWhatTheirBitsSay) {
    expect_same_as_the_bits<f16>();
    expect_same_as_the_bits<bf16>();
    expect_same_as_the_bits<f8e4m3>();
    expect_same_as_the_bits<f8e5m2>();
}

TEST(FormatInfo, KnowsTheFiguresPeopleKnow) {
    EXPECT_EQ(format_info(Dtype::f16).max, 65504);
    EXPECT_EQ(format_info(Dtype::f8e4m3).max, 448);
    EXPECT_EQ(format_info(Dtype::f8e5m2).max, 57344);
    EXPECT_NEAR(format_info(Dtype::bf16).max, 3.3895e38, 1e34);
    EXPECT_NEAR(format_info(Dtype::f16).smallest_subnormal, 5.96e-8, 1e-10);
    EXPECT_NEAR(format_info(Dtype::f32).decimal_digits, 7.22, 0.01);
    EXPECT_NEAR(format_info(Dtype::f16).decimal_digits, 3.31, 0.01);
}

TEST(FormatInfo, Tf32HasTheRangeOfF32AndTheDigitsOfF16InFourBytes) {
    const FormatInfo info = tf32_info();
    EXPECT_EQ(info.bits, 32);
    EXPECT_EQ(info.smallest_normal, format_info(Dtype::f32).smallest_normal);
    EXPECT_EQ(info.epsilon, format_info(Dtype::f16).epsilon);
    EXPECT_EQ(info.memory_vs_f32, 1);
    EXPECT_NEAR(info.max, 3.4012e38, 1e34);
}

TEST(FormatInfo, OfAnIntegerIsRefused) {
    for (const Dtype dtype : {Dtype::i64, Dtype::i32, Dtype::u8, Dtype::boolean})
        EXPECT_ERROR(format_info(dtype), UsageError, "is not a floating format");
}

}  // namespace
}  // namespace invar
