// Settings that a short run never gets to are told of, and no others.
#include "invar/train/unreached.h"

#include <functional>

#include "tests/train/scratch_run.h"

namespace invar {
namespace {

std::vector<std::string> notes_for(std::int64_t steps, const std::function<void(Config&)>& change) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.trainer.max_steps = steps;
    change(config);
    const invar::Setup setup(config);
    return unreached_settings(config, setup);
}

bool tells(const std::vector<std::string>& notes, const std::string& part) {
    return notes.size() == 1 && notes[0].find(part) != std::string::npos;
}

TEST(Unreached, TellsOfAWarmUpThatTheRunNeverLeaves) {
    const auto warm = [](Config& c) { c.scheduler.choose("cosine"), c.scheduler.warmup_steps = 10; };
    EXPECT_TRUE(tells(notes_for(5, warm), "scheduler.warmup_steps=10 in a run of 5 steps"));
    EXPECT_TRUE(tells(notes_for(1, warm), "scheduler.warmup_steps=10 in a run of 1 step: "));
    EXPECT_TRUE(tells(notes_for(10, warm), "0.000909 where optimizer.lr is 0.001"));
    EXPECT_TRUE(notes_for(11, warm).empty());
}

TEST(Unreached, TellsOfARateThatIsNeverLoweredOrNeverReached) {
    const auto step = [](Config& c) { c.scheduler.choose("step"), c.scheduler.as<StepOptions>().step_size = 10; };
    EXPECT_TRUE(tells(notes_for(10, step), "scheduler.step_size=10 is not reached in 10 steps"));
    EXPECT_TRUE(notes_for(11, step).empty());
    const auto cycle = [](Config& c) { c.scheduler.choose("one_cycle"); };
    EXPECT_TRUE(tells(notes_for(1, cycle), "no higher than 4e-09, and optimizer.lr is 0.001"));
    EXPECT_TRUE(tells(notes_for(5, cycle), "no higher than 0.00095"));
    EXPECT_TRUE(notes_for(20, cycle).empty());
}

// The rate rises to 98% before the cycle begins, whose three steps do not reach it either; in a long run a note about
// that would be in the way.
TEST(Unreached, LooksForThePeakOfACycleInRunsOfUpToAHundredSteps) {
    const auto cycle = [](std::int64_t warmup_steps) {
        return [=](Config& c) {
            c.trainer.max_epochs = 20;
            c.scheduler.choose("one_cycle").as<OneCycleOptions>().pct_start = 0.9;
            c.scheduler.warmup_steps = warmup_steps;
        };
    };
    EXPECT_TRUE(tells(notes_for(100, cycle(97)), "in 100 steps the learning rate gets no higher than 0.00099"));
    EXPECT_TRUE(notes_for(101, cycle(98)).empty());
}

TEST(Unreached, TellsOfAPrecisionThatIsNeverChangedTo) {
    const auto change = [](Config& c) {
        c.trainer.precision_schedule = {{false, 5, "bf16-mixed"}, {true, 1, "16-mixed"}};
    };
    EXPECT_EQ(notes_for(4, change).size(), 2u);
    EXPECT_TRUE(tells(notes_for(6, change), "trainer.precision_schedule.1e=16-mixed is not reached in 6 steps"));
    EXPECT_TRUE(notes_for(11, change).empty());
}

TEST(Unreached, TellsOfALevelThatAPrecisionDoesNotHave) {
    const auto level = [](const char* precision) {
        return [=](Config& c) { c.trainer.precision = precision, c.trainer.amp_level = "O2"; };
    };
    EXPECT_TRUE(tells(notes_for(5, level("32-true")), "trainer.amp_level=O2 changes nothing in 32-true"));
    EXPECT_TRUE(notes_for(5, level("bf16-mixed")).empty());
}

TEST(Unreached, NeedsNoWordForTheShippedSchedulesInAShortRun) {
    const ConfigSources shipped_files{{std::filesystem::path(INVAR_SOURCE_DIR) / "configs"}};
    for (const char* name : {"constant", "cosine"}) {
        const Config shipped = load_config("", {std::string("scheduler=") + name}, shipped_files);
        EXPECT_TRUE(notes_for(5, [&](Config& c) { c.scheduler = shipped.scheduler; }).empty()) << name;
    }
}

}  // namespace
}  // namespace invar
