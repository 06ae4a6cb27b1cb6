// How a tensor fares in a format, from statistics that are made up here.
#include "invar/diagnose/tensor_verdict.h"

#include <gtest/gtest.h>

#include "tests/diagnose/probe_files.h"

namespace invar {
namespace {

struct Statistics {
    explicit Statistics(probes::Values all, std::int64_t columns = 4) : values(std::move(all)), features(columns) {
        tally_values(Dtype::f32, values.data(), values.size(), {}, tally);
    }
    TensorStatistics view(Dtype held = Dtype::f32, bool should_vary = false) const {
        return {&tally, values, features, held, should_vary};
    }
    probes::Values values;
    std::int64_t features;
    Tally tally{0};
};

TEST(TensorVerdict, FindsNothingInOrdinaryValues) {
    const Statistics s(probes::around(0, 1));
    for (const Dtype format : {Dtype::f16, Dtype::bf16, Dtype::f8e4m3, Dtype::f8e5m2})
        EXPECT_EQ(judge(s.view(), format).trouble, Trouble::none) << name_of(format);
}

TEST(TensorVerdict, DividesTheBinadeThatTheLimitRunsThroughAsTheSampleIs) {
    // FP16's limit, 65520, lies in the binade from 32768 to 65536.
    const Statistics s({40000.f, 40000.f, 65530.f, 1.f, 100000.f, 1.f, 1.f, 0.f});
    EXPECT_NEAR(overflowing_share(s.view(), Dtype::f16, 0), 2.0 / 7, 1e-9);
    EXPECT_EQ(overflowing_share(s.view(), Dtype::bf16, 0), 0.0);
    EXPECT_EQ(overflowing_share(s.view(), Dtype::f16, -1), 0.0) << "halved, all of it fits";
    EXPECT_GT(overflowing_share(s.view(), Dtype::f16, 1), 4.0 / 7 - 1e-9);
    TensorStatistics blind = s.view();
    blind.sample = {};
    EXPECT_NEAR(overflowing_share(blind, Dtype::f16, 0), 1.0 / 7, 1e-9) << "the largest overflows, sampled or not";
}

TEST(TensorVerdict, CallsValuesLostThatRoundToZeroUnlessTheyAreNextToNothingBesideTheLargest) {
    EXPECT_EQ(judge(Statistics(probes::around(0, 1e-9f)).view(), Dtype::f16).trouble, Trouble::underflow);
    EXPECT_EQ(judge(Statistics(probes::around(0, 1e-9f)).view(), Dtype::bf16).trouble, Trouble::none);
    EXPECT_EQ(judge(Statistics(probes::around(0, 1e-9f)).view(), Dtype::f16, 20).trouble, Trouble::none)
        << "a loss scale saves them";
    probes::Values tail(40, 1e-12f);
    for (const float value : probes::around(0, 1)) tail.push_back(value);
    EXPECT_EQ(judge(Statistics(tail).view(), Dtype::f16).trouble, Trouble::none);
}

TEST(TensorVerdict, SeesWhatATensorHasLostThatWasHeldInTheFormat) {
    probes::Values values = probes::around(0, 100);
    values[3] = std::numeric_limits<float>::infinity();
    const FormatVerdict overflow = judge(Statistics(values).view(Dtype::f16), Dtype::f16);
    EXPECT_EQ(overflow.trouble, Trouble::overflow);
    EXPECT_NEAR(overflow.share, 1.0 / 64, 1e-9);
    const Statistics near_zero(probes::Values(64, 1.2e-7f));  // two units of the smallest value
    EXPECT_EQ(judge(near_zero.view(Dtype::f16), Dtype::f16).trouble, Trouble::underflow);
    EXPECT_EQ(judge(Statistics(probes::around(0, 1)).view(Dtype::f16), Dtype::f16).trouble, Trouble::none);
}

TEST(TensorVerdict, GivesEightBitsAPowerOfTwoOfTheirOwn) {
    const FormatVerdict large = judge(Statistics(probes::around(0, 1e6f)).view(), Dtype::f8e4m3);
    EXPECT_EQ(large.trouble, Trouble::none);
    EXPECT_TRUE(large.by_scaling);
    EXPECT_FALSE(judge(Statistics(probes::around(0, 1)).view(), Dtype::f8e4m3).by_scaling);
    // 2^19 below the largest: no power of two serves both, which counts by what they amount to together.
    probes::Values wide(600'000, 1.5e-6f);
    wide.insert(wide.end(), 4, 1.0f);
    EXPECT_EQ(judge(Statistics(wide).view(), Dtype::f8e4m3).trouble, Trouble::underflow);
    wide.insert(wide.end(), 8, 1.0f);
    EXPECT_EQ(judge(Statistics(wide).view(), Dtype::f8e4m3).trouble, Trouble::none);
}

TEST(TensorVerdict, FindsFeaturesThatVaryByLessThanRounding) {
    const Statistics shifted(probes::around(3000, 1));
    EXPECT_EQ(judge(shifted.view(), Dtype::bf16).trouble, Trouble::significance);
    EXPECT_EQ(insignificant_share(shifted.view(), Dtype::bf16), 1.0);
    EXPECT_EQ(insignificant_share(Statistics(probes::around(30, 1)).view(), Dtype::bf16), 0.0);
    // A large offset in one feature of four, as language models have it, costs nobody else anything.
    probes::Values outlier = probes::around(0, 1);
    for (std::size_t i = 0; i < outlier.size(); i += 4) outlier[i] += 3000;
    EXPECT_NEAR(insignificant_share(Statistics(outlier).view(), Dtype::bf16), 0.25, 1e-9);
    EXPECT_EQ(judge(Statistics(outlier).view(), Dtype::bf16).trouble, Trouble::none);
    const Statistics two_rows({3000, 3001, 3002, 3003, 3001, 3002, 3003, 3004});
    EXPECT_EQ(insignificant_share(two_rows.view(), Dtype::bf16), 0.0) << "two rows may be alike by chance";
}

TEST(TensorVerdict, TakesAConstantForLostOnlyWhereItWasMadeOfWhatVaries) {
    const Statistics constant(probes::Values(64, 3008.f));
    EXPECT_EQ(insignificant_share(constant.view(Dtype::bf16, true), Dtype::bf16), 1.0);
    EXPECT_EQ(insignificant_share(constant.view(Dtype::bf16, false), Dtype::bf16), 0.0);
    EXPECT_EQ(insignificant_share(constant.view(Dtype::f32, true), Dtype::bf16), 0.0);
}

TEST(TensorVerdict, KeepsTheWorseOfTwo) {
    FormatVerdict a{Trouble::significance, 0.9}, b{Trouble::overflow, 0.1, true};
    a.take_worse(b);
    EXPECT_EQ(a.trouble, Trouble::overflow);
    EXPECT_TRUE(a.by_scaling);
    a.take_worse({Trouble::overflow, 0.2});
    EXPECT_EQ(a.share, 0.2);
    a.take_worse({Trouble::underflow, 1.0});
    EXPECT_EQ(a.trouble, Trouble::overflow);
}

}  // namespace
}  // namespace invar
