#include <gtest/gtest.h>

#include "invar/optim/specs.h"
#include "tests/core/expect_error.h"
#include "tests/optim/fixture.h"

namespace invar {
namespace {

// The learning rates that a run really uses, step by step; every third step of a rough run overflows.
std::vector<double> rates(const Schedule& schedule, int steps, bool rough) {
    Weights model;
    Optimizer optimizer(model, sgd_spec(0.1));
    optimizer.set_schedule(schedule.spec, schedule.curve);
    std::vector<double> seen;
    for (int tried = 0; int(seen.size()) < steps; ++tried) {
        const double told = optimizer.learning_rate();
        const bool overflow = rough && tried % 3 == 1;
        const float before = model.values()[0];
        set_gradient(model.a, {overflow ? kInf : 1.0f});
        optimizer.step();
        EXPECT_NEAR(told, optimizer.groups()[0].lr * optimizer.state().lr_factor, 1e-8);
        if (overflow) {
            EXPECT_EQ(optimizer.learning_rate(), told) << "a skipped step moved the schedule";
            continue;
        }
        EXPECT_NEAR(before - model.values()[0], told, 1e-6) << "the step did not use the rate it told";
        seen.push_back(told);
    }
    return seen;
}

void expect_rates(const ScheduleSpec& spec, const std::vector<double>& expected,
                  const std::vector<double>& curve = {}) {
    for (const bool rough : {false, true}) {
        const std::vector<double> ours = rates({spec, curve}, int(expected.size()), rough);
        for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_NEAR(ours[i], expected[i], 1e-8) << "step " << i;
    }
}

// The tables are PyTorch 1.13's, from tests/models/golden.py.
TEST(Schedule, ConstantStaysAndWarmsUp) {
    expect_rates({}, {0.1, 0.1, 0.1});
    expect_rates({.warmup_steps = 4}, {0.02, 0.04, 0.06, 0.08, 0.1, 0.1});
}

TEST(Schedule, StepIsStepLR) {
    expect_rates({.kind = ScheduleSpec::Kind::step, .step_size = 3, .gamma = 0.5},
                 {0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.025, 0.025, 0.025, 0.0125});
}

TEST(Schedule, CosineIsCosineAnnealingLRAndStaysAtItsEnd) {
    expect_rates({.kind = ScheduleSpec::Kind::cosine, .total_steps = 10, .final_factor = 0.1},
                 {0.1, 0.0977975432, 0.0914057647, 0.0814503364, 0.0689057647, 0.055, 0.0410942353, 0.0285496636,
                  0.0185942353, 0.0122024568, 0.01, 0.01, 0.01});
}

TEST(Schedule, OneCycleIsOneCycleLRAndStaysAtItsEnd) {
    expect_rates({.kind = ScheduleSpec::Kind::one_cycle, .total_steps = 20},
                 {0.004,        0.0131671843, 0.0371671843, 0.0668328157, 0.0908328157,  0.1,       0.0987464006,
                  0.0950484632, 0.0890916178, 0.0811745654, 0.0716943002, 0.0611262022,  0.0500002, 0.0388741978,
                  0.0283060998, 0.0188258346, 0.0109087822, 0.0049519368, 0.00125399938, 4e-07,     4e-07});
    expect_rates(
        {.kind = ScheduleSpec::Kind::one_cycle, .total_steps = 11, .start_div = 10, .final_div = 100, .rise = 0.4},
        {0.01, 0.0278814414, 0.0673148346, 0.0969612503, 0.097976674, 0.0862005152, 0.0663870448, 0.0429413738,
         0.0210761574, 0.00565266934, 0.0001});
}

// Where the rise is no longer than a step, PyTorch begins at its start or has the peak behind it already.
TEST(Schedule, OneCycleIsOneCycleLRInRunsOfAFewStepsToo) {
    const auto with = [](std::int64_t total, double rise = 0.3) {
        return ScheduleSpec{.kind = ScheduleSpec::Kind::one_cycle, .total_steps = total, .rise = rise};
    };
    expect_rates(with(1), {4e-07});
    expect_rates(with(2), {0.0811745654, 4e-07});
    expect_rates(with(3), {0.0994415435, 0.0462637103, 4e-07});
    expect_rates(with(5), {0.004, 0.0950484632, 0.0611262022, 0.0188258346, 4e-07});
    expect_rates(with(6), {0.004, 0.0994415435, 0.0811745654, 0.0462637103, 0.013347753, 4e-07});
    expect_rates(with(4, 0.5), {0.004, 0.1, 0.0500002, 4e-07});
    expect_rates(with(3, 0.9), {0.004, 0.0651358235, 4e-07});
    expect_rates(with(2, 1.0), {0.004, 0.1});
}

TEST(Schedule, WarmsUpIntoTheCosine) {
    std::vector<double> expected = {0.025, 0.05, 0.075};
    for (int t = 0; t <= 8; ++t) expected.push_back(0.05 * (1 + std::cos(3.14159265358979323846 * t / 8)));
    expect_rates({.kind = ScheduleSpec::Kind::cosine, .warmup_steps = 3, .total_steps = 11}, expected);
}

TEST(Schedule, IsFiniteWhateverItsNumbers) {
    for (const auto kind : {ScheduleSpec::Kind::constant, ScheduleSpec::Kind::step, ScheduleSpec::Kind::cosine,
                            ScheduleSpec::Kind::one_cycle})
        for (const std::int64_t total : {0, 1, 2, 3, 5})
            for (const std::int64_t warmup : {0, 1, 5, 9})
                for (std::int64_t taken = 0; taken < 12; ++taken) {
                    const double factor =
                        ScheduleSpec{.kind = kind, .warmup_steps = warmup, .total_steps = total, .step_size = 0}.factor(
                            taken);
                    EXPECT_TRUE(factor >= 0 && factor <= 1) << factor;
                }
}

struct RestartsOptions {
    std::int64_t cycles = 2;
};

const RegisterCurve<RestartsOptions> kRestarts{
    "restarts",
    "Down along half a cosine, several times.",
    [](const RestartsOptions& options, std::int64_t step, std::int64_t steps) {
        const double at = double(step) * double(options.cycles) / double(steps);
        return 0.5 * (1.0 + std::cos(3.14159265358979 * (at - std::floor(at))));
    },
    {key("cycles", &RestartsOptions::cycles, at_least(1), "How many times.")}};

TEST(Schedule, AnyonesCurveIsFollowedStepByStep) {
    SchedulerConfig config;
    config.choose("restarts", RestartsOptions{.cycles = 2});
    config.warmup_steps = 2;
    const Schedule schedule = make_schedule(config, 0.1, 10);
    const double late = 0.0853553391, low = 0.0146446609;
    expect_rates(schedule.spec, {0.1 / 3, 0.2 / 3, 0.1, late, 0.05, low, 0.1, late, 0.05, low, low}, schedule.curve);
}

TEST(Schedule, ACurveOfALongRunHasStepsBetweenItsPoints) {
    const std::int64_t steps = (std::int64_t(1) << 21) + 17;
    ScheduleSpec spec{.kind = ScheduleSpec::Kind::curve, .total_steps = steps};
    const std::vector<double> factors =
        sampled([](std::int64_t step, std::int64_t all) { return 1.0 - double(step) / double(all); }, spec);
    spec.factors = factors.data();
    spec.points = std::int64_t(factors.size());
    EXPECT_EQ(spec.points, std::int64_t(1) << 20);
    for (const std::int64_t step : {std::int64_t(0), std::int64_t(1), std::int64_t(1000001), steps - 1})
        EXPECT_NEAR(spec.factor(step), 1.0 - double(step) / double(steps), 2.0 / double(spec.points)) << step;
}

TEST(Schedule, ACurveThatIsNoFactorIsRefused) {
    const auto falls = [](std::int64_t step, std::int64_t) { return 1.0 - double(step); };
    EXPECT_ERROR(sampled(falls, {.warmup_steps = 2, .total_steps = 9}), UsageError,
                 "is -1 at step 2 of 7; it must be 0 or more");
    EXPECT_THROW(sampled([](std::int64_t, std::int64_t) { return double(kInf); }, {}), UsageError);
}

}  // namespace
}  // namespace invar
