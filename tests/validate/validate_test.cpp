// Validation end to end on tiny runs.
#include "invar/validate/validate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <set>

#include "invar/core/error.h"
#include "invar/data/synthetic.h"
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
    void step_logged(const StepMetrics& metrics) override { losses.back().push_back(metrics.loss); }
    std::vector<std::string> folders, precisions;
    std::vector<float> first_weights;
    std::vector<std::vector<double>> losses;
};

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
        EXPECT_TRUE(arm.all_finite());
        EXPECT_GT(arm.grad_norm_ratio, 0.5);
        EXPECT_LT(arm.grad_norm_ratio, 2.0);
        EXPECT_LT(arm.memory_of("activations"), validation.baseline.memory_of("activations"));
        EXPECT_GT(arm.memory_of("masters"), 0) << "mixed precision keeps FP32 masters";
        EXPECT_EQ(arm.runs[0].loss.y.size(), 15u) << "curves for the report";
        EXPECT_EQ(arm.runs[0].grad_norm.y.size(), 15u);
    }
    EXPECT_TRUE(std::isnan(validation.candidates[1].final_scale)) << "BF16 has no loss scaling";
}

TEST(Validate, JudgesThePrecisionThatTheConfigurationTrainsIn) {
    const auto candidates = [](const std::string& trainer) {
        return default_candidates(parse_config("trainer: {" + trainer + "}", "test"));
    };
    using Names = std::vector<std::string>;
    EXPECT_EQ(candidates("precision: 16-mixed"), Names{"16-mixed"});
    EXPECT_EQ(candidates("precision: bf16"), Names{"bf16-mixed"});
    EXPECT_EQ(candidates("precision: 16-mixed, amp_level: O3"), Names{"16-true"});
    EXPECT_EQ(candidates("precision: 32-true"), (Names{"16-mixed", "bf16-mixed"}));
    EXPECT_EQ(candidates("amp_level: O3"), (Names{"16-true", "bf16-true"}));
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
    EXPECT_EQ(validation.candidates.at(0).name, "bf16-mixed");
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
    EXPECT_DOUBLE_EQ(base.metric, (base.runs[0].metric + base.runs[1].metric) / 2);
    EXPECT_EQ(base.runs[1].seed, 8);
    EXPECT_TRUE(validation.candidates[0].equivalence.tested && validation.candidates[0].equivalence.paired);
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
    options.base.optimizer.choose("sgd");
    options.base.optimizer.lr = 1e30;
    options.metric = "val_loss";
    Watcher watcher;
    const Validation validation = validate(options, watcher);
    EXPECT_EQ(validation.verdict, Verdict::invalid);
    EXPECT_TRUE(has(validation.reason, "baseline gives nothing to compare with")) << validation.reason;
    EXPECT_EQ(watcher.folders.size(), 1u) << "no candidate needs to run";
}

TEST(Validate, IsInvalidWhereFp32ItselfLearnsNothing) {
    const Scratch scratch;
    ValidateOptions options = tiny(scratch);
    options.base.optimizer.choose("sgd");
    options.base.optimizer.lr = 100;
    Watcher watcher;
    const Validation diverged = validate(options, watcher);
    EXPECT_EQ(diverged.verdict, Verdict::invalid) << diverged.reason;
    EXPECT_EQ(diverged.candidates[0].verdict, Verdict::invalid);
    EXPECT_TRUE(has(diverged.reason, "its loss did not fall")) << diverged.reason;
    EXPECT_EQ(watcher.folders, (std::vector<std::string>{"fp32"})) << "no candidate needs to run";

    // So slow that nothing is learned: the loss may fall by a hair, and guessing is all there is.
    options.base.optimizer.lr = 1e-12;
    options.seeds = 2;
    Watcher slow;
    const Validation still = validate(options, slow);
    EXPECT_EQ(still.verdict, Verdict::invalid) << still.reason;
    EXPECT_EQ(slow.folders.size(), 2u) << "every baseline is run, so that all that did not learn can be named";
    EXPECT_TRUE(has(still.reason, "2 of its 2 runs are not shown to have learned, and all must: seed "))
        << still.reason;
}

TEST(Validate, JudgesAScheduleOfPrecisionsAgainstFp32Alone) {
    const Scratch scratch;
    ValidateOptions options = tiny(scratch);
    options.base.trainer.precision_schedule = {{false, 0, "bf16-mixed"}, {false, 8, "16-mixed"}};
    Watcher watcher;
    const Validation validation = validate(options, watcher);
    EXPECT_EQ(watcher.folders, (std::vector<std::string>{"fp32", "configured"}));
    EXPECT_EQ(watcher.precisions, (std::vector<std::string>{"32-true", "bf16-mixed"}));
    EXPECT_EQ(validation.candidates[0].runs[0].precision, "bf16-mixed then 16-mixed");
    options.candidates = {"bf16-mixed"};
    const Validation named = validate(options, watcher);
    EXPECT_EQ(watcher.precisions.back(), "bf16-mixed");
    EXPECT_EQ(named.candidates[0].runs[0].precision, "bf16-mixed") << "from the first step to the last";
    options.base.trainer.precision_schedule.clear();
    options.base.trainer.precision_overrides = {{"*", "bf16-mixed"}};
    options.candidates.clear();
    EXPECT_EQ(validate(options, watcher).candidates[0].name, "configured");
    options.base.trainer.precision_overrides.clear();
    options.candidates = {"configured"};
    EXPECT_ERROR(validate(options, watcher), UsageError, "neither a trainer.precision_schedule");
}

TEST(Validate, DoesNotPassACandidateThatHadToBeRecovered) {
    const Scratch scratch;
    ValidateOptions options = tiny(scratch);
    options.base.data.as<SyntheticOptions>().std = 1e-7;  // beyond FP16
    options.base.trainer.on_instability = "recover";
    options.candidates = {"16-mixed"};
    options.limits = {0.5, 0.9};  // whatever comes of it is close enough
    Observer nobody;
    const Validation validation = validate(options, nobody);
    const Arm& arm = validation.candidates.at(0);
    ASSERT_FALSE(arm.failed()) << arm.failure;
    EXPECT_EQ(arm.verdict, Verdict::marginal) << arm.reason;
    EXPECT_NE(arm.reason.find("recovered 1 time"), std::string::npos) << arm.reason;
    ASSERT_EQ(arm.recoveries(), 1u);
    const std::string& told = arm.runs[0].recoveries[0];
    for (const char* part : {"at step 1", "in f16", "back to step 0", "on in bf16-mixed"})
        EXPECT_NE(told.find(part), std::string::npos) << part << " is not in: " << told;
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
    EXPECT_ERROR(with([](auto& o) { o.candidates = {"fp32"}; }), UsageError, "baseline itself");
    EXPECT_ERROR(with([](auto& o) { o.candidates = {"fp8"}; }), UsageError, "not train in FP8");
    EXPECT_ERROR(with([](auto& o) { o.candidates = {"O2"}; }), UsageError, "trainer.amp_level=O2");
    EXPECT_ERROR(with([](auto& o) { o.seeds = 0; }), UsageError, "--seeds 0");
    EXPECT_ERROR(with([](auto& o) { o.metric = "bleu"; }), UsageError, "--metric bleu");
    EXPECT_ERROR(with([](auto& o) { o.limits.margin = 0.05; }), UsageError, "in this order");
    EXPECT_TRUE(watcher.folders.empty());
    EXPECT_TRUE(scratch.names().empty()) << "nothing was written";
}

// Two FP32 runs agree perfectly: that is no PASS of anything.
TEST(Validate, RefusesCandidatesThatAreFp32AllAlong) {
    const Scratch scratch;
    Watcher watcher;
    const auto with = [&](auto change) {
        ValidateOptions options = tiny(scratch);
        change(options.base.trainer);
        validate(options, watcher);
    };
    EXPECT_ERROR(with([](auto& t) { t.amp_level = "O0"; }), UsageError, "trainer.amp_level=O0 nothing is cast");
    EXPECT_ERROR(with([](auto& t) {
                     t.precision = "16-mixed";
                     t.precision_overrides = {{"*", "32-true"}};
                 }),
                 UsageError, "trainer.precision_overrides keeps every module with weights in FP32");
    EXPECT_ERROR(with([](auto& t) { t.precision_overrides = {{"1", "32-true"}}; }), UsageError, "FP32");
    EXPECT_ERROR(with([](auto& t) {
                     t.precision_schedule = {{false, 15, "bf16-mixed"}};
                 }),
                 UsageError, "trainer.precision_schedule reaches no lower precision in 15 steps");
    EXPECT_TRUE(watcher.folders.empty());
    EXPECT_TRUE(scratch.names().empty()) << "nothing was written";
}

TEST(Validate, NamesTheMetricsThereAreBeforeAnythingIsTrained) {
    const Scratch scratch;
    ValidateOptions options = tiny(scratch);
    options.metric = "val_acuracy";
    Watcher watcher;
    EXPECT_ERROR(validate(options, watcher), UsageError,
                 "--metric val_acuracy: there is no such metric (did you mean 'val_accuracy'?); there are val_loss, "
                 "val_accuracy");
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
