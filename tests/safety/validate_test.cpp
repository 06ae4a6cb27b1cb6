// Validation end to end on tiny runs, and its rule on made-up figures.
#include "invar/safety/validate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <set>

#include "invar/core/error.h"
#include "tests/core/expect_error.h"
#include "tests/io/scratch.h"

namespace invar {
namespace {

namespace fs = std::filesystem;

ValidateOptions tiny(const Scratch& scratch) {
    ValidateOptions options;
    Config& config = options.base;
    config = parse_config(
        "data: {name: synthetic, size: 400, height: 8, width: 8, batch_size: 20, num_workers: 0}\n"
        "model: {name: mlp, hidden: [256]}\n"
        "trainer: {max_epochs: 1, max_steps: 15, log_every_n_steps: 1, threads: 1}\n"
        "logger: {tensorboard: false}\n",
        "test");
    config.output_dir = scratch.path().string();
    config.exp_name = "tiny";
    return options;
}

// Counts runs, and remembers what each began with.
struct Watcher : Observer {
    void started(const Setup& setup, const RunFolder& folder, const Progress&) override {
        folders.push_back(folder.path().filename().string());
        first_weights.push_back(setup.model->parameters().front()->value.to_vector<float>().at(0));
        precisions.push_back(setup.precision.name());
        losses.emplace_back();
    }
    void stepped(const StepMetrics& metrics) override { losses.back().push_back(metrics.loss); }
    std::vector<std::string> folders, precisions;
    std::vector<float> first_weights;
    std::vector<std::vector<double>> losses;
};

RunSummary run_with(double accuracy, double norm = 1.0) {
    RunSummary run;
    run.status = "finished";
    run.val_accuracy = accuracy;
    run.samples_per_s = 100;
    run.max_grad_norm = norm;
    return run;
}

Arm arm_with(std::vector<double> accuracies, double norm = 1.0) {
    Arm arm;
    for (const double accuracy : accuracies) arm.runs.push_back(run_with(accuracy, norm));
    sum_up(arm, "val_accuracy");
    return arm;
}

TEST(Judge, PassesBelowOnePercentAndIsMarginalBelowTwo) {
    EXPECT_EQ(judge(0.0, 0.01, 0.02), Verdict::pass);
    EXPECT_EQ(judge(std::nextafter(0.01, 0.0), 0.01, 0.02), Verdict::pass);
    EXPECT_EQ(judge(0.01, 0.01, 0.02), Verdict::marginal) << "exactly 1% is not below 1%";
    EXPECT_EQ(judge(std::nextafter(0.02, 0.0), 0.01, 0.02), Verdict::marginal);
    EXPECT_EQ(judge(0.02, 0.01, 0.02), Verdict::fail) << "exactly 2% is not below 2%";
}

TEST(Judge, TakesGainsAndLossesAlike) {
    EXPECT_EQ(judge(-0.015, 0.01, 0.02), Verdict::marginal);
    EXPECT_EQ(judge(+0.015, 0.01, 0.02), Verdict::marginal);
    EXPECT_EQ(judge(-0.5, 0.01, 0.02), Verdict::fail);
}

TEST(Judge, FailsWhatIsNotANumber) {
    EXPECT_EQ(judge(std::numeric_limits<double>::quiet_NaN(), 0.01, 0.02), Verdict::fail);
    EXPECT_EQ(judge(std::numeric_limits<double>::infinity(), 0.01, 0.02), Verdict::fail);
}

TEST(Compare, IsRelativeToTheBaseline) {
    const Arm baseline = arm_with({0.8863});
    Arm arm = arm_with({0.8850}, 1.5);
    compare(arm, baseline, {});
    EXPECT_NEAR(arm.difference, -0.0014668, 1e-6);
    EXPECT_EQ(arm.verdict, Verdict::pass);
    EXPECT_DOUBLE_EQ(arm.grad_norm_ratio, 1.5);
    Arm degraded = arm_with({0.8650});
    compare(degraded, baseline, {});
    EXPECT_EQ(degraded.verdict, Verdict::fail);
    EXPECT_EQ(degraded.reason, "val_accuracy differs by 2.40% from FP32, which is not below 2%");
}

TEST(Compare, TakesMeansOverTheSeeds) {
    const Arm baseline = arm_with({0.80, 0.90});
    Arm arm = arm_with({0.90, 0.80});
    compare(arm, baseline, {});
    EXPECT_NEAR(arm.difference, 0.0, 1e-12);
    EXPECT_EQ(arm.verdict, Verdict::pass);
}

TEST(Compare, FailsACandidateThatBrokeDownHoweverCloseItsFigures) {
    const Arm baseline = arm_with({0.9});
    Arm arm = arm_with({0.9});
    arm.failure = "seed 0: NaN or Inf in the losses or weights";
    compare(arm, baseline, {});
    EXPECT_EQ(arm.verdict, Verdict::fail);
    EXPECT_EQ(arm.reason, arm.failure);
}

TEST(Conclude, TakesTheWorstCandidate) {
    Validation validation;
    validation.baseline = arm_with({1.0});
    for (const double accuracy : {0.995, 0.985}) {
        validation.candidates.push_back(arm_with({accuracy}));
        compare(validation.candidates.back(), validation.baseline, validation.options);
    }
    validation.candidates[1].precision = "16-mixed";
    conclude(validation);
    EXPECT_EQ(validation.verdict, Verdict::marginal);
    EXPECT_EQ(validation.reason.find("16-mixed: "), 0u) << validation.reason;
}

TEST(Validate, RunsEveryPrecisionFromTheSameWeightsInFoldersOfTheirOwn) {
    const Scratch scratch;
    Watcher watcher;
    const Validation validation = validate(tiny(scratch), watcher);
    EXPECT_EQ(watcher.folders, (std::vector<std::string>{"fp32", "16-mixed", "bf16-mixed"}));
    EXPECT_EQ(watcher.precisions, (std::vector<std::string>{"32-true", "16-mixed", "bf16-mixed"}));
    ASSERT_EQ(watcher.first_weights.size(), 3u);
    EXPECT_EQ(watcher.first_weights[0], watcher.first_weights[1]);
    EXPECT_EQ(watcher.first_weights[0], watcher.first_weights[2]);
    // The same batches too: the first loss, before any update, differs by no more than the format's rounding.
    for (const auto& losses : watcher.losses) EXPECT_NEAR(losses.at(0), watcher.losses[0].at(0), 0.02);
    EXPECT_EQ(validation.folder, scratch / "tiny");
    for (const std::string& name : watcher.folders)
        EXPECT_TRUE(fs::exists(validation.folder / name / "summary.json")) << name;
    EXPECT_EQ(validation.baseline.runs.size(), 1u);
    EXPECT_GT(validation.baseline.metric, 0.0);
    EXPECT_GT(validation.baseline.samples_per_s, 0.0);
    ASSERT_EQ(validation.candidates.size(), 2u);
    for (const Arm& arm : validation.candidates) {
        EXPECT_TRUE(arm.failure.empty()) << arm.failure;
        EXPECT_TRUE(arm.all_finite);
        EXPECT_GT(arm.grad_norm_ratio, 0.5);
        EXPECT_LT(arm.grad_norm_ratio, 2.0);
        EXPECT_LT(arm.memory.peak_of(Purpose::activations), validation.baseline.memory.peak_of(Purpose::activations));
        EXPECT_GT(arm.memory.peak_of(Purpose::masters), 0) << "mixed precision keeps FP32 masters";
    }
    EXPECT_EQ(validation.candidates[1].final_scale, 1.0) << "BF16 has no loss scaling";
}

TEST(Validate, DropsPrecisionAndOverridesOfTheConfigurationForTheBaseline) {
    const Scratch scratch;
    ValidateOptions options = tiny(scratch);
    options.base.trainer.precision = "16-mixed";
    options.base.trainer.amp_level = "O2";
    options.base.trainer.precision_overrides = {{"1", "bf16-mixed"}};
    options.candidates = {"bf16"};
    Watcher watcher;
    const Validation validation = validate(options, watcher);
    EXPECT_EQ(watcher.precisions.at(0), "32-true");
    const Config baseline = parse_config(read_file(scratch / "tiny/fp32/config.yaml"), "fp32");
    EXPECT_TRUE(baseline.trainer.precision_overrides.empty());
    const Config candidate = parse_config(read_file(scratch / "tiny/bf16-mixed/config.yaml"), "bf16");
    EXPECT_EQ(candidate.trainer.precision_overrides.size(), 1u);
    EXPECT_EQ(validation.candidates.at(0).precision, "bf16-mixed");
}

TEST(Validate, RepeatsWithOtherSeedsAndLeavesEarlierResultsAlone) {
    const Scratch scratch;
    ValidateOptions options = tiny(scratch);
    options.base.seed = 7;
    options.seeds = 2;
    options.candidates = {"16-mixed"};
    Watcher watcher;
    const Validation validation = validate(options, watcher);
    EXPECT_EQ(watcher.folders,
              (std::vector<std::string>{"fp32_seed7", "16-mixed_seed7", "fp32_seed8", "16-mixed_seed8"}));
    EXPECT_NE(watcher.first_weights[0], watcher.first_weights[2]);
    EXPECT_EQ(watcher.first_weights[2], watcher.first_weights[3]);
    EXPECT_EQ(validation.candidates.at(0).runs.size(), 2u);
    const Arm& base = validation.baseline;
    EXPECT_DOUBLE_EQ(base.metric, (base.runs[0].val_accuracy + base.runs[1].val_accuracy) / 2);
    Watcher again;
    EXPECT_EQ(validate(options, again).folder, scratch / "tiny_2");
}

TEST(Validate, FailsACandidateThatCannotTrainAndGoesOnWithTheNext) {
    const Scratch scratch;
    ValidateOptions options = tiny(scratch);
    // A static scale this large overflows FP16 in every step, so the run gives up; BF16 is not scaled.
    options.base.scaler.dynamic = false;
    options.base.scaler.init_scale = 0x1p100;
    options.base.trainer.max_epochs = 8;
    options.base.trainer.max_steps = -1;
    Watcher watcher;
    const Validation validation = validate(options, watcher);
    EXPECT_EQ(validation.verdict, Verdict::fail);
    ASSERT_EQ(validation.candidates.size(), 2u);
    EXPECT_EQ(validation.candidates[0].verdict, Verdict::fail);
    EXPECT_TRUE(has(validation.candidates[0].reason, "in a row")) << validation.candidates[0].reason;
    EXPECT_FALSE(validation.candidates[1].failed());
    EXPECT_EQ(validation.candidates[1].runs.size(), 1u);
}

TEST(Validate, SaysSoWhenTheBaselineGivesNothingToCompareWith) {
    const Scratch scratch;
    ValidateOptions options = tiny(scratch);
    options.base.optimizer.name = "sgd";
    options.base.optimizer.lr = 1e30;
    options.metric = "val_loss";
    Watcher watcher;
    const Validation validation = validate(options, watcher);
    EXPECT_EQ(validation.verdict, Verdict::fail);
    EXPECT_TRUE(has(validation.reason, "FP32 baseline gives nothing to compare with")) << validation.reason;
    EXPECT_EQ(watcher.folders.size(), 1u) << "no candidate needs to run";
}

TEST(Validate, RefusesBadOptionsBeforeTheFirstRun) {
    const Scratch scratch;
    Watcher watcher;
    const auto with = [&](auto change) {
        ValidateOptions options = tiny(scratch);
        change(options);
        validate(options, watcher);
    };
    EXPECT_ERROR(with([](auto& o) { o.candidates = {"16-mixed", "fp17"}; }), UsageError, "fp17");
    EXPECT_ERROR(with([](auto& o) { o.candidates = {}; }), UsageError, "--candidates");
    EXPECT_ERROR(with([](auto& o) { o.candidates = {"fp32"}; }), UsageError, "baseline itself");
    EXPECT_ERROR(with([](auto& o) { o.candidates = {"fp8"}; }), UsageError, "");
    EXPECT_ERROR(with([](auto& o) { o.seeds = 0; }), UsageError, "--seeds 0");
    EXPECT_ERROR(with([](auto& o) { o.metric = "bleu"; }), UsageError, "--metric bleu");
    EXPECT_ERROR(with([](auto& o) { o.pass = 0.05; }), UsageError, "in this order");
    EXPECT_TRUE(watcher.folders.empty());
    EXPECT_TRUE(scratch.names().empty()) << "nothing was written";
}

TEST(Validate, DoesNotBlameThePrecisionForAFolderThatCannotBeWritten) {
    const Scratch scratch;
    put(scratch / "file", "in the way");
    ValidateOptions options = tiny(scratch);
    options.base.output_dir = (scratch / "file").string();
    Watcher watcher;
    EXPECT_ERROR(validate(options, watcher), IoError, "file");
}

}  // namespace
}  // namespace invar
