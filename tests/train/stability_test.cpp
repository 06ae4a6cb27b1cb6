// The judge of a run's losses and gradients: what is a spike, what comes back, and what never does.
#include "invar/train/stability.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace invar {
namespace {

ReportedStep step_with(std::int64_t step, double loss, double norm) {
    ReportedStep reported;
    reported.before.step = step - 1;
    reported.report.loss = loss;
    reported.report.step.grad_norm = float(norm);
    return reported;
}

// A loss that falls from 2.3 to 0.1 with noise, and norms that go with it.
std::pair<double, double> healthy(std::int64_t step) {
    const double noise = 1.0 + 0.2 * std::sin(12.9898 * double(step)) + 0.1 * std::sin(78.233 * double(step));
    const double loss = (0.1 + 2.2 * std::exp(-double(step) / 80)) * noise;
    return {loss, 3 * loss * noise};
}

TEST(Stability, FindsASpikeAndNothingBeforeIt) {
    for (const bool in_the_norm : {false, true})
        for (const std::int64_t at : {60, 150, 400}) {
            Stability stability{StabilityConfig{}};
            for (std::int64_t step = 1; step < at; ++step) {
                const auto [loss, norm] = healthy(step);
                ASSERT_FALSE(stability.judge(step_with(step, loss, norm))) << step;
            }
            const auto [loss, norm] = healthy(at);
            const auto found =
                stability.judge(in_the_norm ? step_with(at, loss, 1e4 * norm) : step_with(at, 30 * loss + 5, norm));
            ASSERT_TRUE(found) << at;
            EXPECT_EQ(name_of(found->kind), in_the_norm ? "gradient_spike" : "loss_spike");
            EXPECT_EQ(found->at.step(), at);
        }
}

// What an optimizer that goes astray looks like, in a network that is half trained.
TEST(Stability, FindsWhatASingleHardBatchDoesNotExplain) {
    struct Planted {
        const char* kind;
        double loss, norm;  // times what they were
        int steps;
    };
    for (const Planted& planted : {Planted{"loss_spike", 5, 1, 3}, Planted{"loss_spike", 10, 1, 1},
                                   Planted{"gradient_spike", 1, 20, 3}, Planted{"gradient_spike", 1, 400, 1}}) {
        Stability stability{StabilityConfig{}};
        std::int64_t step = 1;
        for (; step <= 100; ++step) {
            const auto [loss, norm] = healthy(step);
            ASSERT_FALSE(stability.judge(step_with(step, loss, norm))) << step;
        }
        std::optional<Instability> found;
        for (int i = 0; i < planted.steps; ++i, ++step) {
            EXPECT_FALSE(found) << planted.kind << ": too early, it might be a hard batch";
            const auto [loss, norm] = healthy(100);
            found = stability.judge(step_with(step, planted.loss * loss, planted.norm * norm));
        }
        ASSERT_TRUE(found) << planted.kind << " " << planted.loss << " " << planted.norm;
        EXPECT_EQ(name_of(found->kind), planted.kind);
    }
}

// What breaks a run is that it does not come back.
std::optional<Instability> after_leap(const std::function<double(int since)>& loss, int steps,
                                      int healthy_steps = 100) {
    Stability stability{StabilityConfig{}};
    std::int64_t step = 1;
    for (; step <= healthy_steps; ++step) {
        const auto [good, norm] = healthy(step);
        if (const auto found = stability.judge(step_with(step, good, norm))) return found;
    }
    for (int since = 0; since < steps; ++since, ++step)
        if (const auto found = stability.judge(step_with(step, loss(since), 1)); found && found->breaks) return found;
    return std::nullopt;
}

TEST(Stability, BreaksOffWhereALossDoesNotComeBack) {
    const auto stuck = after_leap([](int) { return 3.5; }, 200);
    ASSERT_TRUE(stuck);
    EXPECT_EQ(stuck->kind, Instability::Kind::loss_diverged);
    EXPECT_TRUE(stuck->at.step() >= 101 && stuck->at.step() <= 103) << "where it began: " << stuck->at.step();
    EXPECT_GT(stuck->shown_at, stuck->at.step() + 40) << "it was given time";
    const auto exploded = after_leap([](int since) { return 1e4 * (1 + since); }, 200);
    ASSERT_TRUE(exploded);
    EXPECT_LE(exploded->shown_at, 122) << "there is nothing to wait for";
    EXPECT_FALSE(after_leap([](int since) { return since < 8 ? 9.0 : 0.6; }, 200)) << "over in eight steps";
    EXPECT_FALSE(after_leap([](int since) { return 0.6 + 20 * std::exp(-since / 30.0); }, 200)) << "slowly, but surely";
}

// A network that was at 10 untrained and is at 1: half of what it has learnt is lost above 5.5.
void learn(Stability& stability) {
    ASSERT_FALSE(stability.judge(step_with(1, 10, 1)));
    for (std::int64_t step = 2; step <= 100; ++step) ASSERT_FALSE(stability.judge(step_with(step, 1, 1))) << step;
}

TEST(Stability, IsContentWithARunThatHasLostLessThanHalfOfWhatItHadLearnt) {
    Stability stability{StabilityConfig{}};
    learn(stability);
    ASSERT_TRUE(stability.judge(step_with(101, 20, 1)));
    ASSERT_TRUE(stability.is_thrown_off());
    for (std::int64_t step = 102; step <= 300; ++step) {
        const auto found = stability.judge(step_with(step, 5, 1));
        ASSERT_FALSE(found) << step << ": " << found->reason;
    }
    EXPECT_FALSE(stability.is_thrown_off());
}

TEST(Stability, MeasuresByWhatHasBecomeUsualWhereARunGoesOnAllTheSame) {
    Stability stability{StabilityConfig{}};
    learn(stability);
    std::optional<Instability> diverged;
    std::int64_t step = 101;
    for (; step <= 200 && !diverged; ++step) {
        diverged = stability.judge(step_with(step, 8, 1));
        if (diverged && !diverged->breaks) diverged.reset();
    }
    ASSERT_TRUE(diverged);
    EXPECT_EQ(diverged->kind, Instability::Kind::loss_diverged);
    for (; step <= 400; ++step) {
        const auto found = stability.judge(step_with(step, 8, 1));
        ASSERT_FALSE(found) << step << ": " << found->reason;
    }
}

TEST(Stability, MeasuresByTheUntrainedNetworkFromTheFirstStep) {
    for (const double astray : {1e3, 4.7e11}) {
        Stability stability{StabilityConfig{}};
        std::optional<Instability> found;
        for (std::int64_t step = 1; step <= 40 && !found; ++step) {
            found = stability.judge(step_with(step, step < 3 ? 2.3 : astray, 1));
            if (found && !found->breaks) found.reset();
        }
        ASSERT_TRUE(found) << astray;
        EXPECT_EQ(found->at.step(), 3);
    }
    Stability creeping{StabilityConfig{}};  // never ten times as much, and never any good
    std::optional<Instability> found;
    for (std::int64_t step = 1; step <= 60 && !found; ++step)
        found = creeping.judge(step_with(step, 2.3 + 0.4 * double(std::min<std::int64_t>(step, 15)), 1));
    ASSERT_TRUE(found);
    EXPECT_EQ(found->kind, Instability::Kind::loss_diverged);
}

// Small batches and a high rate: a start that is worse than no training, and gets better all the while.
TEST(Stability, LetsARoughStartPassThatFalls) {
    const auto judged = [](const std::function<double(double)>& loss, double noisy) {
        Stability stability{StabilityConfig{}};
        for (std::int64_t step = 1; step <= 120; ++step) {
            const double waves = 0.6 * std::sin(12.9898 * double(step)) + 0.3 * std::sin(78.233 * double(step));
            const double noise = 1.0 + noisy * waves;
            const auto found = stability.judge(step_with(step, step == 1 ? 2.5 : loss(double(step)) * noise, 1));
            if (found && found->breaks) return step;
        }
        return std::int64_t(0);
    };
    EXPECT_EQ(judged([](double step) { return 9 * std::exp(-step / 80); }, 1), 0);
    const std::int64_t stuck = judged([](double) { return 6.5; }, 0.5);
    EXPECT_TRUE(stuck >= 51 && stuck <= 60) << "when the window is full: " << stuck;
}

// The first batch of a few samples happens to be an easy one, and every tenth is worse by far than the others.
TEST(Stability, DoesNotMeasureByOneEasyBatch) {
    Stability stability{StabilityConfig{}};
    for (std::int64_t step = 1; step <= 400; ++step) {
        const double noise = std::fabs(std::sin(12.9898 * double(step)));
        const double loss = step == 1 ? 0.4 : 5 * noise * noise * (step % 10 == 0 ? 40 : 1);
        const auto found = stability.judge(step_with(step, loss, 1));
        ASSERT_FALSE(found && found->breaks) << step << ": " << found->reason;
    }
}

// More than half of the batches hold an outlier: hard data, on which weights that learn do no better.
TEST(Stability, TellsHardDataFromWeightsThatAreAstray) {
    const auto breaks = [](double good) {
        Stability stability{StabilityConfig{}};
        for (std::int64_t step = 1; step <= 300; ++step) {
            const bool hard = step > 100 && step % 5 < 3;
            const double noise = 1 + 0.2 * std::sin(12.9898 * double(step));
            const auto found = stability.judge(step_with(step, (hard ? 600 : step > 100 ? good : 1) * noise, 1));
            if (found && found->breaks) return true;
        }
        return false;
    };
    EXPECT_FALSE(breaks(1));
    EXPECT_TRUE(breaks(500));
}

TEST(Stability, CallsNoCheckpointGoodThatLiesAmongSkippedSteps) {
    Stability stability{StabilityConfig{}};
    for (std::int64_t step = 1; step <= 10; ++step) stability.judge(step_with(step, 2, 1));
    EXPECT_FALSE(stability.good_until());
    std::optional<Instability> found;
    for (std::int64_t step = 11; !found; ++step) {
        ReportedStep skipped = step_with(step, 2, 1);
        skipped.report.step.skip = true;
        skipped.report.step.skipped_in_a_row = std::int32_t(step - 10);
        found = stability.judge(skipped);
        EXPECT_EQ(stability.good_until(), 10);
        Stability resumed{StabilityConfig{}};
        resumed.restore(stability.state());
        EXPECT_EQ(resumed.good_until(), 10);
        EXPECT_TRUE(Stability::in_trouble(stability.state()));
    }
    EXPECT_EQ(found->kind, Instability::Kind::skipped_streak);
    EXPECT_EQ(found->good_until, 10);
    stability.judge(step_with(40, 2, 1));
    EXPECT_FALSE(stability.good_until() || Stability::in_trouble(stability.state()));
}

TEST(Stability, RemembersWhatItWaitsForAcrossACheckpoint) {
    Stability whole{StabilityConfig{}}, resumed{StabilityConfig{}};
    for (std::int64_t step = 1; step < 110; ++step) {
        const auto [loss, norm] = healthy(step);
        whole.judge(step_with(step, step < 100 ? loss : 50, norm));
    }
    ASSERT_TRUE(whole.is_thrown_off());
    resumed.restore(nlohmann::json::parse(whole.state().dump()));
    std::optional<Instability> found;
    for (std::int64_t step = 110; step < 130 && !found; ++step) found = resumed.judge(step_with(step, 50, 1));
    ASSERT_TRUE(found);
    EXPECT_EQ(found->at.step(), 100);
}

TEST(Stability, LetsHardBatchesPassAndDoesNotMeasureByThem) {
    Stability stability{StabilityConfig{}};
    const auto quiet = [](std::int64_t step) { return 0.02 + 0.001 * std::sin(12.9898 * double(step)); };
    ASSERT_FALSE(stability.judge(step_with(1, 2.3, 3)));
    for (std::int64_t step = 2; step <= 400; ++step) {
        const bool hard = step % 25 < 2;  // two in a row of what the network had never learnt
        const auto found = stability.judge(step_with(step, hard ? 2.2 : quiet(step), 3 * quiet(step)));
        ASSERT_FALSE(found) << step << ": " << found->reason;
    }
    EXPECT_TRUE(stability.judge(step_with(401, 12, 0.06))) << "the hard ones have not become usual";
}

TEST(Stability, TakesGradientsThatComeBackFromNothingAsTheyAre) {
    for (const double nothing : {0.0, 1e-12}) {
        Stability stability{StabilityConfig{}};
        ASSERT_FALSE(stability.judge(step_with(1, 1, 1e-3)));
        for (std::int64_t step = 2; step <= 100; ++step) ASSERT_FALSE(stability.judge(step_with(step, 1, nothing)));
        EXPECT_FALSE(stability.judge(step_with(101, 1, 1e-6))) << "below a thousandth of the first";
        if (nothing == 0) {
            EXPECT_FALSE(stability.judge(step_with(102, 1, 1e-3)));
        }
    }
}

TEST(Stability, KnowsTheOtherSignsToo) {
    Stability stability{StabilityConfig{}};
    EXPECT_EQ(stability.judge(step_with(1, NAN, 1))->kind, Instability::Kind::loss_nonfinite);
    ReportedStep floor = step_with(2, 1, 1);
    floor.report.scale.at_floor = 1;
    EXPECT_EQ(stability.judge(floor)->kind, Instability::Kind::scale_floor);
    ReportedStep streak = step_with(3, 1, INFINITY);
    streak.report.step.skip = 1;
    streak.report.step.skipped_in_a_row = 24;
    EXPECT_FALSE(stability.judge(streak));
    streak.report.step.skipped_in_a_row = 25;
    EXPECT_EQ(stability.judge(streak)->kind, Instability::Kind::skipped_streak);
}

TEST(Stability, RemembersItsWindowAcrossACheckpoint) {
    Stability whole{StabilityConfig{}}, resumed{StabilityConfig{}};
    for (std::int64_t step = 1; step < 90; ++step) {
        const auto [loss, norm] = healthy(step);
        whole.judge(step_with(step, loss, norm));
    }
    resumed.restore(nlohmann::json::parse(whole.state().dump()));
    EXPECT_TRUE(resumed.judge(step_with(90, 100, 1)));
    EXPECT_EQ(resumed.state(), [&] {
        whole.judge(step_with(90, 100, 1));
        return whole.state();
    }());
}

}  // namespace
}  // namespace invar
