// What is expected of a lower precision rests on measurements, made on this machine, and on nothing else.
#include "invar/validate/benefits.h"

#include <gtest/gtest.h>

#include "invar/validate/validated.h"
#include "tests/io/scratch.h"

namespace invar {
namespace {

constexpr int kThreads = 3;

// FP32 at 100 samples a second in 1000 bytes, BF16 at 150 in 700.
Validation measured() {
    Validation v;
    v.metric = "val_accuracy";
    v.threads = kThreads;
    v.baseline.samples_per_s = 100, v.baseline.memory = {{"total", 1000.0}};
    Arm& arm = v.candidates.emplace_back();
    arm.name = "bf16-mixed";
    arm.samples_per_s = 150, arm.memory = {{"total", 700.0}};
    return v;
}

Config in_bf16() {
    Config config;
    config.trainer.precision = "bf16";
    return config;
}

RunSummary run_of(double samples_per_s, std::int64_t bytes) {
    RunSummary summary;
    summary.samples_per_s = samples_per_s;
    summary.memory.peak_total = bytes;
    summary.precisions = {{0, "bf16-mixed"}};
    return summary;
}

using Lines = std::vector<std::string>;

TEST(Benefits, AreExpectedAsAValidationMeasuredThem) {
    const Scratch scratch;
    const std::string machine = machine_of("", kThreads, 1);
    EXPECT_FALSE(recall_benefits(scratch / "v.jsonl", in_bf16(), machine).has_value());
    ASSERT_TRUE(remember(scratch / "v.jsonl", measured(), "r.html"));
    const std::optional<Benefits> known = recall_benefits(scratch / "v.jsonl", in_bf16(), machine);
    ASSERT_TRUE(known.has_value());
    EXPECT_EQ(expected_benefits(*known), (Lines{"Training speedup: 1.50x", "Memory savings: 30%"}));
    EXPECT_EQ(measured_benefits(*known, run_of(120, 1100)),
              (Lines{"Training speedup: 1.20x, expected 1.50x", "Memory savings: -10% (it takes more), expected 30%"}));
}

TEST(Benefits, OfOtherMachinesAndOtherConfigurationsSayNothing) {
    const Scratch scratch;
    remember(scratch / "v.jsonl", measured(), "r.html");
    EXPECT_FALSE(recall_benefits(scratch / "v.jsonl", in_bf16(), machine_of("", kThreads + 1, 1)).has_value());
    EXPECT_FALSE(recall_benefits(scratch / "v.jsonl", in_bf16(), machine_of("", kThreads, 2)).has_value());
    EXPECT_FALSE(recall_benefits(scratch / "v.jsonl", in_bf16(), machine_of("cuda:0: a card", 1, 1)).has_value());
    EXPECT_FALSE(recall_benefits(scratch / "v.jsonl", Config{}, machine_of("", kThreads, 1)).has_value());
}

TEST(Benefits, AreOfAMachineThatSaysHowManyRanksThereWere) {
    const std::string one = machine_of("cuda:0: a card", kThreads, 1);
    EXPECT_TRUE(one.ends_with(": cuda:0: a card")) << one;
    EXPECT_EQ(machine_of("cuda:0: a card", kThreads, 2), one + ", 2 ranks");
}

TEST(Benefits, AreNotClaimedWhereTimesWereDisturbedOrNothingWasMeasured) {
    const Scratch scratch;
    Validation disturbed = measured(), unknown = measured();
    disturbed.candidates[0].disturbed = "other work";
    unknown.baseline.samples_per_s = kUnknown;
    remember(scratch / "v.jsonl", disturbed, "r.html");
    remember(scratch / "v.jsonl", unknown, "r.html");
    EXPECT_FALSE(recall_benefits(scratch / "v.jsonl", in_bf16(), machine_of("", kThreads, 1)).has_value());

    const Benefits known{150, 100, 700, 1000, ""};
    RunSummary waiting = run_of(150, 700), changing = run_of(150, 700);
    waiting.waited_share = 0.5;
    changing.precisions.push_back({5, "32-true"});
    EXPECT_EQ(measured_benefits(known, waiting), Lines{"Memory savings: 30%, expected 30%"});
    EXPECT_TRUE(measured_benefits(known, changing).empty());
}

}  // namespace
}  // namespace invar
