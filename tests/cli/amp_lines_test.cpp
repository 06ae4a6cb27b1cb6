// The lines that begin with [AMP] and [AMP Stats], and what a pipe gets of a run that goes badly.
#include <regex>

#include "tests/cli/program.h"

namespace invar::cli {
namespace {

class AmpLines : public CliTest {};

int count_of(const std::string& text, const std::string& part) {
    int count = 0;
    for (std::size_t at = 0; (at = text.find(part, at)) != text.npos; ++at) ++count;
    return count;
}

TEST_F(AmpLines, TellOfScheduleAndOverrides) {
    const std::string said = invar(small({"--mixed_precision", "fp16", "trainer.precision_schedule={5: bf16-mixed}",
                                          "trainer.precision_overrides={\"1\": 32-true}"}))
                                 .out;
    EXPECT_TRUE(has(said, "[AMP] Using FP16 mixed precision (level O1), to begin with")) << said;
    EXPECT_TRUE(has(said, "      - trainer.precision_schedule: bf16-mixed from step 6 on")) << said;
    EXPECT_TRUE(has(said, "1 (Linear) in FP32")) << said;
}

TEST_F(AmpLines, GiveTheScaleAtTheEndOfAnEpochWhereTheLossIsScaled) {
    const Words two = {"trainer.max_epochs=2", "scaler.growth_interval=4"};
    Words fp16 = two, bf16 = two;
    fp16.insert(fp16.end(), {"--mixed_precision", "fp16", "--grad_scaler_init", "1024"});
    bf16.insert(bf16.end(), {"--mixed_precision", "bf16"});
    const std::string said = invar(small(fp16)).out;
    EXPECT_TRUE(has(said, "[AMP Stats] Scale: 4096, Growth tracker: 2 of 4, Skipped: 0 of 10\n")) << said;
    EXPECT_TRUE(has(said, "[AMP Stats] Scale: 32768, Growth tracker: 0 of 4, Skipped: 0 of 20\n")) << said;
    EXPECT_EQ(count_of(said, "[AMP Stats]"), 2) << said;
    EXPECT_FALSE(has(invar(small(bf16)).out, "[AMP Stats]"));
    fp16.emplace_back("trainer.limit_val_batches=0");
    EXPECT_EQ(count_of(invar(small(fp16)).out, "[AMP Stats]"), 1) << "where nothing is validated, at the end";
    fp16.emplace_back("scaler.dynamic=false");
    const std::string fixed = invar(small(fp16)).out;
    EXPECT_TRUE(has(fixed, "[AMP Stats] Scale: 1024, fixed, Skipped: 0 of 20\n")) << fixed;
}

TEST_F(AmpLines, GiveTheScaleOfAPrecisionThatASchedulePutsLater) {
    const std::string said = invar(small({"trainer.precision_schedule={5: 16-mixed}"})).out;
    EXPECT_TRUE(has(said, "[AMP Stats] Scale: 65536, Growth tracker: 5 of 2000, Skipped: 0 of 10\n")) << said;
    EXPECT_FALSE(has(said.substr(0, said.find("step 6/")), "  scale ")) << said;
}

TEST_F(AmpLines, OfBenefitsAreThoseThatAValidationMeasured) {
    const Words run = learner({"--mixed_precision", "fp16"});
    EXPECT_FALSE(has(invar(run).out, "benefits")) << "nobody has measured any";
    const Result validated = invar(learner({"--candidates", "16-mixed"}, {"validate"}));
    ASSERT_TRUE(validated.code == 0 || validated.code == 3) << validated.out << validated.err;
    if (has(validated.out, "disturbed")) GTEST_SKIP() << "other work on this machine made its times worthless";
    const std::string said = invar(run).out;
    const std::regex expected(
        "\\[AMP\\] Expected benefits, as a validation measured them against FP32 on [^\n]*UTC\n"
        "      - Training speedup: ([0-9.]+)x\n      - Memory savings: (-?[0-9]+%[^\n]*)\n");
    std::smatch found;
    ASSERT_TRUE(std::regex_search(said, found, expected)) << said;
    EXPECT_TRUE(has(said, "[AMP] Measured benefits, against FP32 in that validation\n")) << said;
    EXPECT_TRUE(has(said, ", expected " + found[2].str() + "\n")) << said;
    EXPECT_FALSE(has(invar(learner({"--mixed_precision", "fp16", "data.batch_size=8"})).out, "benefits"))
        << "of other batches nobody has measured any";
    EXPECT_FALSE(has(invar(learner()).out, "benefits")) << "FP32";
}

TEST_F(AmpLines, AreNotDrownedInSkippedSteps) {
    // A scale that overflows, and falls slowly: most steps are skipped.
    const Result result =
        invar(small({"--mixed_precision", "fp16", "--grad_scaler_init", "1e30", "--grad_scaler_backoff", "0.5",
                     "trainer.log_every_n_steps=50", "data.size=1600", "stability.streak=1000"}));
    EXPECT_GT(count_of(slurp(folder_ / "runs/run/metrics.jsonl"), "\"skipped_now\":true"), 60) << "the log has each";
    EXPECT_LE(count_of(result.out, "\nstep "), 6) << result.out;
    EXPECT_EQ(count_of(result.out, "are only counted; metrics.jsonl has each"), 1) << result.out;
    EXPECT_TRUE(std::regex_search(result.out, std::regex("step 100/100 [^\n]*  skipped [0-9]+"))) << result.out;
    EXPECT_TRUE(has(result.out, "[AMP Stats] Scale: ")) << result.out;
}

TEST_F(AmpLines, HoldNoNumberOfTensOfDigitsAndNoSignedNaN) {
    for (const Words& bad : {Words{"optimizer.lr=1e30"}, Words{"optimizer.lr=1e18", "optimizer=sgd"},
                             Words{"--mixed_precision", "fp16", "--grad_scaler_init", "1e38"},
                             Words{"--mixed_precision", "bf16", "optimizer.lr=1e30", "optimizer=sgd"}}) {
        const Result result = invar(small(bad));
        const std::string all = result.out + result.err;
        EXPECT_FALSE(has(all, "-nan")) << all;
        EXPECT_FALSE(std::regex_search(all, std::regex("[0-9]{13}"))) << all;
    }
}

}  // namespace
}  // namespace invar::cli
