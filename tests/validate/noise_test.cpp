// What few samples can and cannot show, and that differences at the margin do not pass by it.
#include "invar/validate/noise.h"

#include <gtest/gtest.h>

#include "invar/core/error.h"
#include "invar/validate/statistics.h"
#include "tests/core/expect_error.h"
#include "tests/io/scratch.h"
#include "tests/validate/made_up_accuracies.h"

namespace invar {
namespace {

Outcomes seeded(const std::vector<double>& values) {
    Outcomes outcomes;
    for (const double value : values) outcomes.push_back({value, std::int64_t(outcomes.size())});
    return outcomes;
}

double share_of(Verdict verdict, const MadeUpRuns& runs, int trials, bool samples_known = true) {
    std::mt19937_64 random(11);
    int found = 0;
    for (int i = 0; i < trials; ++i) {
        const MadeUpArms arms = make_up(runs, random);
        found += test_equivalence(arms.baseline, arms.candidate, "val_accuracy", {}, samples_known ? runs.samples : 0)
                     .verdict == verdict;
    }
    return double(found) / trials;
}

// bench/false_pass.cpp looks at more of them.
TEST(FewSamples, DoNotPassWhatDiffersByTheMargin) {
    constexpr int kTrials = 250;
    constexpr double kMost = 0.05 + 3 * 0.0138;  // three standard deviations of counting so few
    EXPECT_GT(share_of(Verdict::pass, {50, 2, 0.99, 0.01, 0.0}, kTrials, false), 0.1) << "what the spread alone says";
    for (const bool same_errors : {false, true})
        for (const std::int64_t samples : {50, 200, 10000})
            for (const int seeds : {2, 8})
                for (const double accuracy : {0.6, 0.99})
                    EXPECT_LE(share_of(Verdict::pass, {samples, seeds, accuracy, 0.01, 0.003, same_errors}, kTrials),
                              kMost)
                        << samples << " samples, " << seeds << " seeds, " << accuracy << ", " << same_errors;
    EXPECT_GT(share_of(Verdict::pass, {10000, 3, 0.9, 0.01, 0.0, true}, kTrials, false), 0.3)
        << "errors on the same samples with every seed do not spread";
}

TEST(ManySamples, ShowWhatIsThere) {
    EXPECT_GT(share_of(Verdict::pass, {100000, 4, 0.9, 0.0, 0.001}, 200), 0.95) << "no difference mostly passes";
    EXPECT_GT(share_of(Verdict::fail, {100000, 4, 0.9, 0.05, 0.001}, 200), 0.95);
    EXPECT_GT(share_of(Verdict::fail, {1000, 4, 0.9, 0.3, 0.01}, 200), 0.95) << "few samples show a large one";
}

// Where noise is normal and there are samples enough, the spread of the runs decides as it does alone.
TEST(ManySamples, LeaveTheVerdictToTheSpread) {
    std::mt19937_64 random(5);
    int same = 0;
    constexpr int kTrials = 300;
    for (int i = 0; i < kTrials; ++i) {
        const MadeUpArms arms = make_up({1000000, 5, 0.9, 0.005 * (i % 7), 0.004}, random);
        const auto verdict = [&](std::int64_t samples) {
            return test_equivalence(arms.baseline, arms.candidate, "val_accuracy", {}, samples).verdict;
        };
        same += verdict(0) == verdict(1000000);
    }
    EXPECT_GE(same, 0.98 * kTrials);
}

TEST(FewSamples, RunsThatAgreeByChanceAreNoPass) {
    const Outcomes same = seeded({0.98, 0.96, 0.98});
    const Equivalence e = test_equivalence(same, same, "val_accuracy", {}, 50);
    EXPECT_EQ(e.verdict, Verdict::marginal);
    EXPECT_FALSE(e.further_seeds.has_value());
    EXPECT_GT(e.enough_samples, 300) << "one in a hundred more is not seen among fewer, whatever they agree on";
    EXPECT_TRUE(has(e.reason, "no number of seeds shows equivalence on so few samples")) << e.reason;
    EXPECT_TRUE(has(e.reason, fmt::format("at least {} samples with these seeds, where one of the 50 samples is 2.05%",
                                          e.enough_samples)))
        << e.reason;
    const Equivalence enough = test_equivalence(same, same, "val_accuracy", {}, e.enough_samples + 50);
    EXPECT_EQ(enough.verdict, Verdict::pass) << enough.reason;
    EXPECT_EQ(test_equivalence(same, same, "val_accuracy", {}).verdict, Verdict::pass) << "no samples are known of";
}

TEST(FewSamples, MoreSeedsHelpAsFarAsSamplesAllow) {
    const Outcomes same = seeded({0.9, 0.9, 0.9});
    const Equivalence e = test_equivalence(same, same, "val_accuracy", {}, 2000);
    ASSERT_EQ(e.verdict, Verdict::marginal) << e.reason;
    ASSERT_TRUE(e.further_seeds.has_value());
    Outcomes more = same;
    for (std::int64_t i = 0; i < *e.further_seeds; ++i) more.push_back({0.9, 3 + i});
    EXPECT_EQ(test_equivalence(more, more, "val_accuracy", {}, 2000).verdict, Verdict::pass);
    more.pop_back();
    EXPECT_EQ(test_equivalence(more, more, "val_accuracy", {}, 2000).verdict, Verdict::marginal);
}

TEST(SamplingErrors, MakeTheIntervalWiderAndNeverNarrower) {
    const Outcomes a = seeded({0.90, 0.91, 0.92}), b = seeded({0.901, 0.909, 0.921});
    double before = 0;
    for (const std::int64_t samples : {0, 1000000, 10000, 1000, 100}) {
        const Equivalence e = test_equivalence(a, b, "val_accuracy", {}, samples);
        const double width = e.ninety.high - e.ninety.low;
        EXPECT_GT(width, before) << samples;
        EXPECT_EQ(e.p_equivalent < 0.05, e.ninety.high < 0.01 && e.ninety.low > -0.01) << samples;
        before = width;
    }
}

TEST(SamplingErrors, TakeTheDifferenceThatWasSeenButNoLessThanTheMargin) {
    const Moments baseline{.n = 3, .mean = 0.9}, candidate{.n = 3, .mean = 0.8};
    EXPECT_NEAR(SamplingError(100, baseline, candidate, 0.05).difference, 0.1, 1e-12);
    EXPECT_EQ(SamplingError(100, baseline, candidate, 0.2).difference, 0.2);
}

TEST(Noise, IsThatOfSeedsSamplesAndSteps) {
    const Noise noise = noise_of(seeded({0.88, 0.90, 0.92}), 400);
    EXPECT_NEAR(noise.spread, 0.02, 1e-12);
    EXPECT_EQ(noise.resolution, 1 / 400.0);
    EXPECT_NEAR(noise.sampling_error, std::sqrt(0.9 * 0.1 / 400), 2e-4);
    EXPECT_GT(noise_of(seeded({1.0}), 50).sampling_error, 0) << "none wrong among 50 is not none ever";
    const Noise coarsest = noise_of(seeded({1.0, 0.0}), 1);
    EXPECT_EQ(coarsest.resolution, 1.0);
    EXPECT_NEAR(coarsest.sampling_error, 0.5, 1e-12) << "one sample, right or wrong";
    EXPECT_TRUE(std::isnan(noise_of(seeded({0.9}), 0).spread));
    EXPECT_TRUE(std::isnan(noise_of(seeded({0.9, 0.8}), 0).sampling_error));
}

TEST(Noise, KnowsSharesOfSamplesFromOtherFigures) {
    EXPECT_TRUE(are_shares_of(seeded({0.88, 0.925, 1.0, 0.0}), 200));
    EXPECT_TRUE(are_shares_of(seeded({2.0 / 3, 1.0 / 3}), 3));
    EXPECT_FALSE(are_shares_of(seeded({0.88, 0.8771}), 200));
    EXPECT_FALSE(are_shares_of(seeded({2.0}), 200)) << "a loss of 2";
    EXPECT_FALSE(are_shares_of(seeded({0.5}), 0));
}

TEST(Limits, AreSharesOfTheBaselineOrAbsolute) {
    EXPECT_EQ(Limits::parse("0.02").margin, 0.02);
    EXPECT_EQ(Limits::parse("0.02").harm, 0.04);
    const Limits points = Limits::parse("0.5pp"), own = Limits::parse("abs:0.2");
    EXPECT_DOUBLE_EQ(points.margin, 0.005);
    EXPECT_DOUBLE_EQ(points.relative_to(0.5).margin, 0.01);
    EXPECT_DOUBLE_EQ(own.relative_to(-4.0).harm, 0.1);
    for (const char* word : {"0.01", "0.5pp", "abs:0.2", "abs:3"}) EXPECT_EQ(Limits::parse(word).word(), word);
    for (const char* word : {"0", "-0.1", "1", "nan", "100pp", "abs:", "abs:0", "abs:inf", "pp", "1%", "abs:1pp"})
        EXPECT_ERROR(Limits::parse(word), UsageError, std::string("--margin ") + word);
    EXPECT_ERROR(check_unit(points, "val_loss", false), UsageError, "say abs:0.005 in its own unit");
    EXPECT_ERROR(check_unit(points, "val_acc", false, 90.0), UsageError,
                 "say abs:0.5 in its own unit, if that is percent");
}

TEST(Limits, AreToldInTheUnitTheyWereGivenIn) {
    const Outcomes a = seeded({0.500, 0.502, 0.498}), b = seeded({0.501, 0.502, 0.499});
    const auto tested = [&](const char* margin) {
        return test_equivalence(a, b, "val_accuracy", Limits::parse(margin));
    };
    EXPECT_EQ(tested("0.01").verdict, Verdict::pass);
    EXPECT_EQ(tested("0.25pp").verdict, Verdict::pass);
    EXPECT_EQ(tested("abs:0.0015").verdict, Verdict::marginal);
    EXPECT_TRUE(has(tested("0.25pp").reason, "within 0.25 percentage points (90% interval -0.03pp to +0.16pp"))
        << tested("0.25pp").reason;
    EXPECT_TRUE(has(tested("abs:0.0015").reason, "differs by +0.0006667 and")) << tested("abs:0.0015").reason;
}

TEST(Noise, OfEqualValuesIsNothingToTheLastBit) {
    EXPECT_EQ(noise_of({{0.9123, 0}, {0.9123, 1}, {0.9123, 2}}, 0).spread, 0.0);
    EXPECT_EQ(moments_of({0.1, 0.1, 0.1, 0.1, 0.1, 0.1}).mean, 0.1);
}

}  // namespace
}  // namespace invar
