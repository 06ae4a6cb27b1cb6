// The t distribution against tables, the tests of equivalence against cases worked out by hand, and their error rates.
#include "invar/validate/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "invar/core/error.h"
#include "invar/validate/student_t.h"
#include "tests/core/expect_error.h"
#include "tests/io/scratch.h"

namespace invar {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Outcomes seeded(const std::vector<double>& values, std::int64_t first = 0) {
    Outcomes outcomes;
    for (const double value : values) outcomes.push_back({value, first++});
    return outcomes;
}
Outcomes unseeded(const std::vector<double>& values) {
    Outcomes outcomes;
    for (const double value : values) outcomes.push_back({value, {}});
    return outcomes;
}
Equivalence tested(const Outcomes& baseline, const Outcomes& candidate) {
    return test_equivalence(baseline, candidate, "val_accuracy", {});
}

TEST(IncompleteBeta, AgreesWithItsClosedForms) {
    for (const double x : {0.0, 1e-9, 0.1, 0.3, 0.5, 0.9, 0.999999, 1.0}) {
        for (const double p : {0.5, 1.0, 3.0, 40.0}) {
            EXPECT_NEAR(incomplete_beta(p, 1, x), std::pow(x, p), 1e-14) << p << " " << x;
            EXPECT_NEAR(incomplete_beta(1, p, x), 1 - std::pow(1 - x, p), 1e-14) << p << " " << x;
        }
        EXPECT_NEAR(incomplete_beta(2, 2, x), x * x * (3 - 2 * x), 1e-14);
        EXPECT_NEAR(incomplete_beta(0.5, 0.5, x), 2 / M_PI * std::asin(std::sqrt(x)), 1e-13);
        EXPECT_NEAR(incomplete_beta(2.5, 7, x) + incomplete_beta(7, 2.5, 1 - x), 1.0, 1e-14) << x;
    }
    EXPECT_THROW(incomplete_beta(0, 1, 0.5), UsageError);
    EXPECT_THROW(incomplete_beta(1, 1, 1.5), UsageError);
}

TEST(StudentT, AgreesWithThePublishedTable) {
    struct Entry {
        double p, degrees, t;
    };
    for (const auto& [p, degrees, t] : {Entry{0.95, 1, 6.313752},
                                        {0.95, 2, 2.919986},
                                        {0.95, 3, 2.353363},
                                        Entry{0.95, 4, 2.131847},
                                        {0.95, 10, 1.812461},
                                        {0.975, 1, 12.706205},
                                        Entry{0.975, 2, 4.302653},
                                        {0.975, 4, 2.776445},
                                        {0.975, 9, 2.262157},
                                        Entry{0.975, 30, 2.042272},
                                        {0.975, 120, 1.979930},
                                        {0.99, 5, 3.364930},
                                        Entry{0.995, 5, 4.032143},
                                        {0.995, 20, 2.845340},
                                        {0.9995, 3, 12.923979},
                                        Entry{0.90, 7, 1.414924},
                                        {0.975, 1e9, 1.959964},
                                        {0.95, 1e9, 1.644854}}) {
        EXPECT_NEAR(student_t_quantile(p, degrees), t, 1e-6 * t) << p << " " << degrees;
        EXPECT_NEAR(student_t_quantile(1 - p, degrees), -t, 1e-6 * t) << p << " " << degrees;
        EXPECT_NEAR(student_t_cdf(t, degrees), p, 1e-6) << t << " " << degrees;
    }
}

TEST(StudentT, AgreesWithItsClosedForms) {
    for (const double t : {-50.0, -3.0, -1e-4, 0.0, 1e-9, 0.7, 2.0, 1e6}) {
        EXPECT_NEAR(student_t_cdf(t, 1), 0.5 + std::atan(t) / M_PI, 1e-14) << t;
        EXPECT_NEAR(student_t_cdf(t, 2), 0.5 + t / (2 * std::sqrt(2 + t * t)), 1e-14) << t;
    }
    const double inf = std::numeric_limits<double>::infinity();
    EXPECT_EQ(student_t_cdf(inf, 3), 1.0);
    EXPECT_EQ(student_t_cdf(-inf, 3), 0.0);
    EXPECT_TRUE(std::isnan(student_t_cdf(kNaN, 3)));
}

TEST(StudentT, ComesBackFromItsQuantileAlsoForDegreesThatAreNotWhole) {
    for (const double degrees : {0.5, 1.0, 1.7, 2.31, 6.9, 33.3, 5000.0})
        for (const double p : {1e-6, 0.05, 0.31, 0.5, 0.9, 0.999})
            EXPECT_NEAR(student_t_cdf(student_t_quantile(p, degrees), degrees), p, 1e-12) << p << " " << degrees;
    EXPECT_THROW(student_t_quantile(1.0, 3), UsageError);
    EXPECT_THROW(student_t_cdf(1.0, 0), UsageError);
}

TEST(Equivalence, TestsSeedBySeedWhereBothArmsHaveTheSameSeeds) {
    // Differences -0.001, 0.003, 0.001 around a baseline of 0.9: mean 0.001, standard deviation 0.002.
    const Equivalence e = tested(seeded({0.88, 0.90, 0.92}), seeded({0.879, 0.903, 0.921}));
    EXPECT_TRUE(e.tested && e.paired);
    EXPECT_NEAR(e.difference, 0.001 / 0.9, 1e-12);
    EXPECT_NEAR(e.standard_error, 0.002 / std::sqrt(3.0) / 0.9, 1e-12);
    EXPECT_EQ(e.degrees, 2);
    EXPECT_NEAR(e.ninety.high, e.difference + 2.919986 * e.standard_error, 1e-8);
    EXPECT_NEAR(e.ninety_five.low, e.difference - 4.302653 * e.standard_error, 1e-8);
    // t = (0.00111 - 0.01) / 0.001283 = -6.928 at 2 degrees.
    EXPECT_NEAR(e.p_equivalent, 0.5 - 6.928203 / (2 * std::sqrt(2 + 6.928203 * 6.928203)), 1e-6);
    EXPECT_EQ(e.verdict, Verdict::pass);
    EXPECT_EQ(e.reason,
              "val_accuracy is equivalent to the baseline's within 1% (90% interval -0.26% to +0.49%, p = 0.01)");
    EXPECT_EQ(e.further_seeds, 0);
}

TEST(Equivalence, PairsBySeedAndNotByOrder) {
    Outcomes candidate = seeded({0.879, 0.903, 0.921});
    std::swap(candidate[0], candidate[2]);
    const Equivalence e = tested(seeded({0.88, 0.90, 0.92}), candidate);
    EXPECT_TRUE(e.paired);
    EXPECT_EQ(e.verdict, Verdict::pass);
}

TEST(Equivalence, ComparesArmWithArmWhereSeedsDiffer) {
    const Outcomes baseline = seeded({0.88, 0.90, 0.92});
    for (const Outcomes& candidate : {seeded({0.879, 0.903, 0.921}, 7), unseeded({0.879, 0.903, 0.921}),
                                      Outcomes{{0.879, 0}, {0.903, 0}, {0.921, 1}}}) {
        const Equivalence e = tested(baseline, candidate);
        EXPECT_TRUE(e.tested);
        EXPECT_FALSE(e.paired);
        // Both arms spread by about 0.02, so means of three tell little.
        EXPECT_NEAR(e.standard_error, std::sqrt((0.0004 + 0.000444) / 3) / 0.9, 1e-6);
        EXPECT_NEAR(e.degrees, 4, 0.02);
        EXPECT_EQ(e.verdict, Verdict::marginal);
    }
}

TEST(Equivalence, UsesWelchsDegreesForArmsOfDifferentSizes) {
    const Equivalence e = tested(unseeded({10, 11, 12, 13, 14}), unseeded({11.9, 12.0, 12.1}));
    // Variances 2.5 / 5 and 0.01 / 3: (0.5 + 0.00333)^2 / (0.5^2 / 4 + 0.00333^2 / 2).
    EXPECT_NEAR(e.degrees, 4.0531, 1e-3);
    EXPECT_NEAR(e.standard_error, std::sqrt(0.5 + 0.01 / 3) / 12, 1e-12);
}

TEST(Equivalence, FailsWhereHarmIsEstablishedAndOnlyThere) {
    const Outcomes baseline = seeded({0.900, 0.901, 0.899});
    const Equivalence harm = tested(baseline, seeded({0.850, 0.852, 0.848}));
    EXPECT_EQ(harm.verdict, Verdict::fail);
    EXPECT_LT(harm.p_harm, 0.05);
    EXPECT_TRUE(has(harm.reason, "by more than 2%")) << harm.reason;
    // As large a mean difference, but the seeds disagree about it.
    const Equivalence doubt = tested(baseline, seeded({0.80, 0.90, 0.85}));
    EXPECT_EQ(doubt.verdict, Verdict::marginal);
    EXPECT_GT(*doubt.further_seeds, 0);
    // A gain is a difference too.
    EXPECT_EQ(tested(baseline, seeded({0.950, 0.951, 0.949})).verdict, Verdict::fail);
}

TEST(Equivalence, NamesTheFewestFurtherSeedsThatWouldDecide) {
    // Differences +-d around zero: standard deviation d * sqrt(n / (n - 1)) over n seeds.
    const Outcomes baseline = seeded({1.0, 1.0}), candidate = seeded({0.99, 1.01});
    const Equivalence e = tested(baseline, candidate);
    ASSERT_EQ(e.verdict, Verdict::marginal);
    ASSERT_TRUE(e.further_seeds.has_value());
    const double sd = 0.01 * std::sqrt(2.0);
    const auto reach = [&](double n) { return student_t_quantile(0.95, n - 1) * sd / std::sqrt(n); };
    const double n = 2 + double(*e.further_seeds);
    EXPECT_LT(reach(n), 0.01);
    EXPECT_GE(reach(n - 1), 0.01);
    EXPECT_TRUE(has(e.reason, fmt::format("about {} further seeds an arm would decide it", *e.further_seeds)));
}

TEST(Equivalence, SaysWhenNoNumberOfSeedsWouldDecide) {
    const Equivalence e = tested(seeded({1.0, 1.0, 1.0}), seeded({1.010, 1.020, 1.015}));
    EXPECT_EQ(e.verdict, Verdict::marginal);
    EXPECT_FALSE(e.further_seeds.has_value());
    EXPECT_TRUE(has(e.reason, "between 1% and 2%")) << e.reason;
    const Equivalence edge = test_equivalence(seeded({1, 1}), seeded({0.75, 0.75}), "val_accuracy", {0.25, 0.5});
    EXPECT_TRUE(has(edge.reason, "the difference lies between 25% and 50%, where more seeds would not decide it"))
        << edge.reason;
}

TEST(Equivalence, TakesTwoSeedsForWhatTheyAreWorth) {
    const Equivalence close = tested(seeded({0.9000, 0.9100}), seeded({0.9001, 0.9102}));
    EXPECT_EQ(close.degrees, 1);
    EXPECT_EQ(close.verdict, Verdict::pass);
    EXPECT_EQ(tested(seeded({0.90, 0.91}), seeded({0.902, 0.908})).verdict, Verdict::marginal)
        << "small, but two seeds that disagree establish nothing at t = 6.31";
}

TEST(Equivalence, JudgesOneRunByPlainThresholdsAndSaysWhatItCannotShow) {
    for (const auto& [value, verdict] :
         {std::pair(0.8850, Verdict::pass), {0.8750, Verdict::marginal}, {0.865, Verdict::fail}}) {
        const Equivalence e = tested(seeded({0.8863}), seeded({value}));
        EXPECT_EQ(e.verdict, verdict) << value;
        EXPECT_FALSE(e.tested);
        EXPECT_TRUE(has(e.caveat, "One run an arm cannot tell"));
    }
    EXPECT_EQ(tested(seeded({0.8863}), seeded({0.8650})).reason,
              "val_accuracy differs by 2.40% from the baseline, which is not below 2%");
    const Equivalence uneven = tested(seeded({0.9}), seeded({0.9, 0.91}));
    EXPECT_FALSE(uneven.tested);
    EXPECT_TRUE(has(uneven.caveat, "single run")) << uneven.caveat;
}

TEST(Equivalence, TakesRunsWithoutSpreadAsTheyAre) {
    const Equivalence same = tested(seeded({0.9, 0.8, 0.7}), seeded({0.9, 0.8, 0.7}));
    EXPECT_EQ(same.verdict, Verdict::pass);
    EXPECT_EQ(same.p_equivalent, 0.0);
    EXPECT_EQ(same.ninety.low, 0.0);
    EXPECT_EQ(same.reason, "val_accuracy is the same as the baseline's in every run");
    const Equivalence shifted = tested(seeded({0.9, 0.8, 0.7}), seeded({0.85, 0.75, 0.65}));
    EXPECT_EQ(shifted.verdict, Verdict::fail) << "always 0.05 lower, but for the rounding of the differences";
    EXPECT_EQ(shifted.standard_error, 0.0);
    EXPECT_EQ(tested(seeded({1, 1}), seeded({1.015, 1.015})).verdict, Verdict::marginal);
    EXPECT_FALSE(tested(seeded({1, 1}), seeded({1.015, 1.015})).further_seeds.has_value());
}

TEST(Equivalence, FailsWithTheReasonWhereThereIsNothingToCompare) {
    const Equivalence nan = tested(seeded({0.9, 0.9}), seeded({0.9, kNaN}));
    EXPECT_EQ(nan.verdict, Verdict::fail);
    EXPECT_EQ(nan.reason, "val_accuracy of candidate run 2 is NaN");
    EXPECT_EQ(tested(seeded({INFINITY}), seeded({0.9})).reason, "val_accuracy of baseline run 1 is infinite");
    const Equivalence zero = tested(seeded({0.0, 0.0}), seeded({0.1, 0.2}));
    EXPECT_EQ(zero.verdict, Verdict::invalid);
    EXPECT_EQ(tested(seeded({0.0, 0.0}), seeded({0.0, 0.0})).verdict, Verdict::invalid) << "nothing shows it works";
    EXPECT_EQ(tested(seeded({0.1, 0.2, -0.3}), seeded({0.1, 0.2, -0.2})).verdict, Verdict::invalid)
        << "rounding left 1e-17 of 0";
    EXPECT_TRUE(has(zero.reason, "mean val_accuracy is 0")) << zero.reason;
    EXPECT_EQ(tested(seeded({-1, 1}), seeded({1, 1})).verdict, Verdict::invalid);
    EXPECT_EQ(tested(seeded({5e-324}), seeded({1e300})).verdict, Verdict::invalid) << "the ratio is infinite";
    EXPECT_EQ(tested({}, seeded({1})).reason, "the baseline has no finished run");
    EXPECT_EQ(tested(seeded({1}), {}).verdict, Verdict::fail);
}

TEST(Equivalence, MeasuresAgainstTheSizeOfANegativeBaseline) {
    const Equivalence e = tested(seeded({-2.0, -2.0}), seeded({-1.99, -1.991}));
    EXPECT_GT(e.difference, 0);
    EXPECT_EQ(e.verdict, Verdict::pass);
}

// Over many made-up experiments at the very edge, the share of wrong decisions stays below the level.
TEST(Equivalence, KeepsItsErrorRatesAtTheEdge) {
    std::mt19937_64 random(4);
    const auto share = [&](double difference, Verdict verdict, bool with_seeds) {
        constexpr int kTrials = 4000;
        std::normal_distribution<double> seed_effect(0, 0.004), noise(0, 0.0025);
        int hits = 0;
        for (int i = 0; i < kTrials; ++i) {
            std::vector<double> a, b;
            for (int n = 0; n < 5; ++n) {
                const double common = with_seeds ? seed_effect(random) : 0.0;
                a.push_back(1.0 + common + noise(random));
                b.push_back(1.0 + difference + common + noise(random));
            }
            hits += (with_seeds ? tested(seeded(a), seeded(b)) : tested(unseeded(a), unseeded(b))).verdict == verdict;
        }
        return double(hits) / kTrials;
    };
    for (const bool paired : {true, false}) {
        EXPECT_NEAR(share(0.01, Verdict::pass, paired), 0.05, 0.015) << "a difference of 1% seldom passes";
        EXPECT_NEAR(share(-0.02, Verdict::fail, paired), 0.05, 0.015) << "a difference of 2% seldom fails";
        EXPECT_GT(share(0.0, Verdict::pass, paired), 0.95) << "no difference mostly passes";
        EXPECT_GT(share(0.04, Verdict::fail, paired), 0.95) << "twice the limit mostly fails";
    }
}

TEST(Limits, JudgeWhatIsAtThemAsBeyondThem) {
    const Limits limits{0.25, 0.5};
    EXPECT_EQ(judge(-0.249, limits), Verdict::pass);
    EXPECT_EQ(judge(-0.25, limits), Verdict::marginal);
    EXPECT_EQ(judge(0.499, limits), Verdict::marginal);
    EXPECT_EQ(judge(0.5, limits), Verdict::fail);
    EXPECT_EQ(judge(kNaN, limits), Verdict::fail);
}

TEST(Limits, MustBeInOrder) {
    EXPECT_ERROR(check_limits({0.05, 0.02}), UsageError, "in this order");
    EXPECT_ERROR(check_limits({0.0, 0.02}), UsageError, "above 0");
    EXPECT_ERROR(check_limits({kNaN, 0.02}), UsageError, "above 0");
    EXPECT_ERROR(check_limits({0.01, 0.02, 0.7}), UsageError, "level");
    check_limits({});
}

}  // namespace
}  // namespace invar
