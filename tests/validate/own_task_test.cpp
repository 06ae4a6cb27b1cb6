// A task that no command has heard of, without images, labels or accuracy, under everything that trains and judges.
#include <gtest/gtest.h>

#include "invar/diagnose/diagnose.h"
#include "invar/diagnose/failure.h"
#include "invar/diagnose/record_failure.h"
#include "invar/diagnose/tune.h"
#include "invar/train/bench.h"
#include "invar/validate/validate.h"
#include "tests/core/expect_error.h"
#include "tests/tasks/line.h"
#include "tests/train/scratch_run.h"

namespace invar {
namespace {

Config line_config(const ScratchFolder& folder) {
    Config config = small_config(folder.path());
    config.trainer.max_epochs = 20;
    config.optimizer.lr = 0.03;
    return config;
}

std::shared_ptr<const Task> line_task() {
    return std::make_shared<Regression>(Line(150).task());
}

Validation validated(const Config& config) {
    Observer nobody;
    ValidateOptions options;
    options.task = line_task();
    options.base = config;
    return validate(options, nobody);
}

TEST(OwnTask, TrainsAndLogsItsOwnMetrics) {
    const ScratchFolder folder;
    Observer nobody;
    const RunSummary summary = Trainer(line_task(), line_config(folder)).fit(nobody);
    EXPECT_EQ(summary.status, "finished");
    EXPECT_GT(summary.val("r2"), 0.9);
    EXPECT_LT(summary.val("loss"), 0.1);
    EXPECT_TRUE(std::isnan(summary.val("accuracy")));
    const std::string log = file_bytes(summary.folder / "metrics.jsonl");
    EXPECT_NE(log.find("\"val_r2\":"), std::string::npos);
    EXPECT_EQ(log.find("accuracy"), std::string::npos);
}

TEST(OwnTask, ResumesToTheSameWeights) {
    const ScratchFolder folder;
    Observer nobody;
    Config config = line_config(folder);
    config.trainer.max_epochs = 2;
    const RunSummary whole = Trainer(line_task(), config).fit(nobody);
    config.exp_name = "parts";
    config.trainer.max_steps = 13;
    const RunSummary part = Trainer(line_task(), config).fit(nobody);
    config.trainer.max_steps = -1;
    const RunSummary rest = Trainer(line_task(), config, part.folder).fit(nobody);
    EXPECT_EQ(rest.val("r2"), whole.val("r2"));
    const StateDict expected = model_weights(load_checkpoint(last_checkpoint(whole.folder)));
    for (const auto& [name, tensor] : model_weights(load_checkpoint(last_checkpoint(rest.folder))))
        EXPECT_EQ(tensor.to_vector<float>(), expected.at(name).to_vector<float>()) << name;
}

TEST(OwnTask, IsValidatedByItsOwnMetric) {
    const ScratchFolder folder;
    const Validation validation = validated(line_config(folder));
    EXPECT_EQ(validation.metric, "val_r2");
    EXPECT_EQ(validation.verdict, Verdict::pass) << validation.reason;
    EXPECT_FALSE(validation.percent);
}

TEST(OwnTask, IsReportedWithTheRunsThatWereStoppedEarlyAndWhy) {
    const ScratchFolder folder;
    Config config = line_config(folder);
    config.early_stopping = {.monitor = "val_r2", .patience = 1, .min_delta = 1e3};
    const Validation validation = validated(config);
    ASSERT_FALSE(validation.warnings.empty());
    EXPECT_TRUE(validation.warnings[0].starts_with("fp32 was stopped early at step ")) << validation.warnings[0];
    EXPECT_NE(validation.warnings[0].find("val_r2 has not improved"), std::string::npos) << validation.warnings[0];
}

TEST(OwnTask, ThatLearnedNothingIsInvalid) {
    const ScratchFolder folder;
    Config config = line_config(folder);
    config.optimizer.lr = 0;
    const Validation validation = validated(config);
    EXPECT_EQ(validation.verdict, Verdict::invalid) << validation.reason;
}

TEST(OwnTask, IsDiagnosedTunedAndMeasured) {
    const ScratchFolder folder;
    invar::Setup setup(line_task(), line_config(folder));
    DiagnoseOptions diagnosis;
    diagnosis.steps = 3;
    EXPECT_TRUE(diagnose(setup, diagnosis).healthy());

    invar::Setup fresh(line_task(), line_config(folder));
    TuneOptions tuning;
    tuning.candidate = Precision::parse("bf16-mixed");
    tuning.target = {0.5, 0.5};
    EXPECT_TRUE(tune(fresh, tuning).met);

    BenchOptions bench;
    bench.task = line_task();
    bench.base = line_config(folder);
    bench.steps = 2;
    EXPECT_EQ(run_bench(bench).size(), 3u);
}

TEST(OwnTask, KeepsAFailedStepWithAllTensorsOfItsBatches) {
    const ScratchFolder folder;
    invar::Setup setup(line_task(), line_config(folder));
    setup.train_data->start_epoch(0);
    const std::vector<Batch> group = setup.next_group();
    save_failure(folder.path() / "failure", setup, group, {}, {1, 2}, 4.0, to_yaml(line_config(folder)));
    const Failure kept = load_failure(folder.path() / "failure");
    ASSERT_EQ(kept.group.size(), 1u);
    EXPECT_EQ(kept.group[0].size, group[0].size);
    for (const auto& [name, tensor] : group[0].tensors())
        EXPECT_EQ(kept.group[0][name].to_vector<double>(), tensor.to_vector<double>()) << name;
}

}  // namespace
}  // namespace invar
