// Which precision a step is trained in, where a recovery holds it and where epochs have become shorter.
#include "invar/train/precision_plan.h"

#include "tests/train/scratch_run.h"

namespace invar {
namespace {

// FP16 with FP32 weights is as safe as BF16 without them, and BF16 with them as TF32.
TEST(PrecisionPlan, HeldByARecoveryStillFollowsTheScheduleToWhatIsAsSafe) {
    TrainerConfig config;
    config.precision = "16-true";
    config.precision_schedule = {{false, 10, "16-mixed"}, {false, 20, "bf16-true"}, {false, 30, "32-true"}};
    PrecisionPlan plan(config, 100);
    EXPECT_EQ(plan.at(0).name(), "16-true");
    plan.hold_at("16-mixed");
    EXPECT_EQ(plan.at(0).name(), "16-mixed");
    EXPECT_EQ(plan.at(10).name(), "16-mixed");
    EXPECT_EQ(plan.at(20).name(), "bf16-true");
    EXPECT_EQ(plan.at(30).name(), "32-true");
    plan.hold_at("bf16-mixed");
    EXPECT_EQ(plan.at(20).name(), "bf16-mixed");
}

// Ten steps were an epoch; the two that follow have five steps each, and the second of them is the run's third.
TEST(PrecisionSchedule, CountsTheEpochsOfAResumedRunByTheirNewLength) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.trainer.max_epochs = 1;
    const std::filesystem::path run = train(config).folder;
    config.trainer.max_epochs = 3;
    config.trainer.precision_schedule = {{true, 2, "bf16-mixed"}};
    config.data.batch_size = 30;
    Stopper observer;
    const RunSummary summary = train(config, observer, run);
    EXPECT_EQ(summary.steps, 20);
    ASSERT_EQ(observer.steps.size(), 10u);
    for (const StepMetrics& m : observer.steps)
        EXPECT_EQ(m.precision, m.step <= 15 ? "32-true" : "bf16-mixed") << m.step;
}

}  // namespace
}  // namespace invar
