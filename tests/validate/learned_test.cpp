// Whether a run is shown to have learned, by what it logged.
#include "invar/validate/learned.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/core/expect_error.h"
#include "tests/io/scratch.h"

namespace invar {
namespace {

RunLog log_of(const std::vector<double>& losses, double val_loss, double accuracy) {
    RunLog log;
    for (std::size_t i = 0; i < losses.size(); ++i) {
        log.series["loss"].x.push_back(double(i + 1));
        log.series["loss"].y.push_back(losses[i]);
    }
    log.series["val_loss"] = {{double(losses.size())}, {val_loss}};
    log.series["val_accuracy"] = {{double(losses.size())}, {accuracy}};
    return log;
}

Start ten_classes(std::int64_t samples = 10'000) {
    const Metric loss{.name = "loss", .better = Better::lower};
    const Metric accuracy{.name = "accuracy", .print = Metric::Print::percent, .chance = 0.1};
    return {{{loss, 2.3}, {accuracy, 0.1}}, samples};
}

TEST(Learned, AsksForALossThatFellAndAnAccuracyAboveChance) {
    EXPECT_EQ(why_not_learned(log_of({2.3, 1.5, 1.0}, 1.1, 0.6), ten_classes()), "");
    EXPECT_TRUE(has(why_not_learned(log_of({2.3, 900, 1400}, 1300, 0.6), ten_classes()), "its loss did not fall: 2.3"));
    EXPECT_TRUE(has(why_not_learned(log_of({2.3, 2.29, 2.28}, 2.29, 0.1), ten_classes()), "what guessing gives"));
    EXPECT_TRUE(has(why_not_learned(log_of({2.3, NAN}, NAN, 0.1), ten_classes()), "did not fall"));
}

TEST(Learned, AllowsForLuckByTheNumberOfSamples) {
    const double luck = 0.1 + 3 * std::sqrt(0.09 / 10'000);
    EXPECT_NE(why_not_learned(log_of({2.3, 2.2}, 2.2, luck - 1e-4), ten_classes()), "");
    EXPECT_EQ(why_not_learned(log_of({2.3, 2.2}, 2.2, luck + 1e-4), ten_classes()), "");
    EXPECT_NE(why_not_learned(log_of({2.3, 2.2}, 2.2, luck + 1e-4), ten_classes(100)), "") << "fewer samples";
}

TEST(Learned, TakesEitherLossForAFall) {
    EXPECT_EQ(why_not_learned(log_of({2.3, 0.01}, 2.9, 0.6), ten_classes()), "")
        << "it has overfitted, so it has learned";
    EXPECT_EQ(why_not_learned(log_of({2.3}, 1.9, 0.4), ten_classes()), "") << "a single step, seen from outside";
}

TEST(Learned, IsDoubtedOfOthersRunsOnlyWhereNothingGotBetter) {
    RunRecord run;
    EXPECT_EQ(doubt_learning(run, "acc", Better::higher).why, "") << "nothing is known";
    run.loss = {{1, 2, 3}, {2.3, 2.5, 40}};
    EXPECT_FALSE(doubt_learning(run, "acc", Better::higher).certain);
    EXPECT_TRUE(has(doubt_learning(run, "acc", Better::higher).why, "2.3 at first, 40 at the end"));
    run.metric_curve = {{1, 3}, {0.1, 0.1}};
    EXPECT_TRUE(doubt_learning(run, "acc", Better::higher).certain);
    run.metric_curve.y[1] = 0.8;
    EXPECT_EQ(doubt_learning(run, "acc", Better::higher).why, "");
    EXPECT_TRUE(doubt_learning(run, "wer", Better::lower).certain);
    run.loss.y = {2.3, 2.0, 1.5};
    EXPECT_EQ(doubt_learning(run, "wer", Better::lower).why, "");
}

}  // namespace
}  // namespace invar
