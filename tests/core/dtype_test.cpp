#include "invar/core/dtype.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "invar/core/error.h"
#include "tests/core/expect_error.h"

namespace invar {
namespace {

TEST(Dtype, NamesParseBackToThemselves) {
    for (const Dtype dtype : kAllDtypes) EXPECT_EQ(parse_dtype(name_of(dtype)), dtype);
}

TEST(Dtype, ParsesWhatOtherFrameworksWrite) {
    EXPECT_EQ(parse_dtype("float16"), Dtype::f16);
    EXPECT_EQ(parse_dtype("half"), Dtype::f16);
    EXPECT_EQ(parse_dtype("BF16"), Dtype::bf16);
    EXPECT_EQ(parse_dtype("F8_E4M3"), Dtype::f8e4m3);
    EXPECT_EQ(parse_dtype("BOOL"), Dtype::boolean);
}

TEST(Dtype, RefusesAnUnknownNameAndListsTheKnownOnes) {
    EXPECT_ERROR(parse_dtype("f15"), UsageError, "unknown dtype 'f15'; use one of f64 f32 f16");
    EXPECT_ERROR(parse_dtype(""), UsageError, "unknown dtype ''");
    EXPECT_ERROR(parse_dtype("f16 "), UsageError, "unknown dtype");
}

TEST(Dtype, DispatchPassesATypeOfTheRightSize) {
    for (const Dtype dtype : kAllDtypes) {
        const auto size = dispatch(dtype, [](auto tag) { return sizeof(typename decltype(tag)::type); });
        EXPECT_EQ(size, size_of(dtype)) << name_of(dtype);
    }
}

TEST(Dtype, OfAConstTypeIsThatOfTheType) {
    static_assert(dtype_of<const float> == Dtype::f32);
    static_assert(dtype_of<double> == Dtype::f64);
    static_assert(dtype_of<const std::uint8_t> == Dtype::u8);
}

TEST(Promote, GivesTheWiderAndDoesNotDependOnTheOrder) {
    for (const Dtype a : kAllDtypes)
        for (const Dtype b : kAllDtypes) {
            EXPECT_EQ(promote(a, b), promote(b, a)) << name_of(a) << " " << name_of(b);
            EXPECT_GE(size_of(promote(a, b)), is_floating(a) == is_floating(b) ? std::max(size_of(a), size_of(b)) : 1);
            EXPECT_EQ(is_floating(promote(a, b)), is_floating(a) || is_floating(b));
        }
    EXPECT_EQ(promote(Dtype::i32, Dtype::i64), Dtype::i64);
    EXPECT_EQ(promote(Dtype::i64, Dtype::f16), Dtype::f16) << "an integer never widens a floating type";
}

TEST(Promote, FindsAFormatThatHoldsBothWhereNeitherHoldsTheOther) {
    EXPECT_EQ(promote(Dtype::f16, Dtype::bf16), Dtype::f32);
    EXPECT_EQ(promote(Dtype::f8e4m3, Dtype::f8e5m2), Dtype::f16);
    EXPECT_EQ(promote(Dtype::f8e5m2, Dtype::bf16), Dtype::bf16);
}

}  // namespace
}  // namespace invar
