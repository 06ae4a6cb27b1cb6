// A validation that was interrupted, or that is to have more seeds, goes on with the runs it has.
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "invar/core/error.h"
#include "invar/train/run_config.h"
#include "invar/validate/begun.h"
#include "invar/validate/validate.h"
#include "tests/core/expect_error.h"
#include "tests/io/scratch.h"

namespace invar {
namespace {

namespace fs = std::filesystem;

ValidateOptions tiny(const Scratch& scratch) {
    ValidateOptions options;
    options.base = parse_config(
        "data: {name: synthetic, size: 400, height: 8, width: 8, batch_size: 20, num_workers: 0}\n"
        "model: {name: mlp, hidden: [64]}\n"
        "trainer: {max_epochs: 1, max_steps: 16, log_every_n_steps: 1, threads: 1, checkpoint_every_n_steps: 4}\n"
        "logger: {tensorboard: false}\n",
        "test");
    options.base.output_dir = scratch.path().string();
    options.base.exp_name = "v";
    options.candidates = {"bf16-mixed"};
    options.seeds = 2;
    return options;
}

// Asks for an end at a step of a run; remembers where runs begin.
struct Watcher : Observer {
    void started(const Setup&, const RunFolder& folder, const Progress& progress) override {
        begun.emplace_back(folder.path().filename().string(), progress.step);
    }
    void step_reported(const ReportedStep& step) override {
        if (stop_in == begun.back().first && step.step() == stop_at) Trainer::request_stop("test");
    }
    std::string stop_in;
    std::int64_t stop_at = 0;
    std::vector<std::pair<std::string, std::int64_t>> begun;
};
using Begun = std::vector<std::pair<std::string, std::int64_t>>;

std::vector<double> metrics_of(const Arm& arm) {
    std::vector<double> values;
    for (const RunRecord& run : arm.runs) values.push_back(run.val_loss);
    return values;
}

void expect_same(const Validation& a, const Validation& b) {
    EXPECT_EQ(metrics_of(a.baseline), metrics_of(b.baseline)) << "to the last bit";
    EXPECT_EQ(metrics_of(a.candidates.at(0)), metrics_of(b.candidates.at(0)));
    EXPECT_EQ(a.reason, b.reason);
}

TEST(ResumedValidation, GoesOnFromTheLastCheckpointAndLeavesFinishedRunsAlone) {
    const Scratch whole_scratch, scratch;
    Observer nobody;
    const Validation whole = validate(tiny(whole_scratch), nobody);
    ValidateOptions options = tiny(scratch);
    Watcher first;
    first.stop_in = "bf16-mixed_seed0", first.stop_at = 9;
    EXPECT_THROW(validate(options, first), ValidationStopped);
    const auto written = fs::last_write_time(scratch / "v/fp32_seed0/metrics.jsonl");

    options.resume = true;
    std::vector<std::string> kept;
    options.kept = [&](const fs::path& run) { kept.push_back(run.filename().string()); };
    Watcher second;
    const Validation resumed = validate(options, second);
    EXPECT_EQ(kept, std::vector<std::string>{"fp32_seed0"});
    EXPECT_EQ(second.begun, (Begun{{"bf16-mixed_seed0", 9}, {"fp32_seed1", 0}, {"bf16-mixed_seed1", 0}}));
    EXPECT_EQ(fs::last_write_time(scratch / "v/fp32_seed0/metrics.jsonl"), written);
    EXPECT_EQ(resumed.folder, scratch / "v");
    expect_same(resumed, whole);

    Watcher third;
    expect_same(validate(options, third), whole);
    EXPECT_TRUE(third.begun.empty()) << "nothing is left to train";
}

TEST(ResumedValidation, AddsSeedsToAFinishedOne) {
    const Scratch whole_scratch, scratch;
    Observer nobody;
    ValidateOptions all = tiny(whole_scratch);
    all.seeds = 3;
    const Validation whole = validate(all, nobody);
    ValidateOptions options = tiny(scratch);
    options.seeds = 1;
    validate(options, nobody);
    options.resume = true;
    options.seeds = 2;
    Watcher watcher;
    const Validation two = validate(options, watcher);
    EXPECT_EQ(watcher.begun, (Begun{{"fp32_seed1", 0}, {"bf16-mixed_seed1", 0}})) << "the first is called fp32 still";
    EXPECT_TRUE(two.warnings.empty()) << two.warnings.front();
    options.seeds = 3;
    const Validation three = validate(options, watcher);
    EXPECT_EQ(three.baseline.runs.size(), 3u);
    expect_same(three, whole);
    ASSERT_EQ(three.warnings.size(), 1u);
    EXPECT_TRUE(has(three.warnings[0], "there was a verdict on 2 seeds before")) << three.warnings[0];
}

TEST(ResumedValidation, TakesUpWhatWasAskedForBefore) {
    const Scratch scratch;
    Observer nobody;
    ValidateOptions options = tiny(scratch);
    options.metric = "val_loss";
    options.limits = Limits::parse("abs:0.25");
    validate(options, nobody);
    ValidateOptions again;
    again.base = tiny(scratch).base;
    again.resume = true;
    again.seeds = 0;
    take_up(again, false);
    EXPECT_EQ(again.seeds, 2);
    EXPECT_EQ(again.candidates, options.candidates);
    EXPECT_EQ(again.metric, "val_loss");
    EXPECT_EQ(again.limits.word(), "abs:0.25");
    again.metric = "val_accuracy";
    again.limits = {};
    take_up(again, true);
    EXPECT_EQ(again.metric, "val_accuracy") << "the same runs, judged by something else";
    EXPECT_EQ(again.limits.word(), "0.01");
}

TEST(ResumedValidation, RefusesAnotherConfigurationAndNamesWhatDiffers) {
    const Scratch scratch;
    Observer nobody;
    const ValidateOptions options = tiny(scratch);
    validate(options, nobody);
    const std::string before = read_file(scratch / "v/validation.json");
    const auto with = [&](auto change) {
        ValidateOptions other = options;
        other.resume = true;
        change(other);
        validate(other, nobody);
    };
    EXPECT_ERROR(with([](auto& o) { o.base.optimizer.lr = 0.5; }), UsageError, "optimizer.lr was 0.001 and is 0.5;");
    EXPECT_ERROR(with([](auto& o) { o.base.seed = 4; }), UsageError, "seed was 0 and is 4");
    EXPECT_ERROR(with([](auto& o) { o.base.model.choose("lenet"); }), UsageError, "model.name was mlp and is lenet");
    EXPECT_ERROR(with([](auto& o) { o.seeds = 1; }), UsageError, "is of 2 seeds, and none of them may be left out");
    EXPECT_ERROR(with([](auto& o) { o.candidates = {"16-mixed"}; }), UsageError, "is of bf16-mixed too");
    EXPECT_ERROR(with([](auto& o) { o.base.exp_name = "w"; }), UsageError, "there is no validation in");
    EXPECT_EQ(read_file(scratch / "v/validation.json"), before);

    // A run that is not what it was: its settings were changed by hand.
    const fs::path config = scratch / "v/fp32_seed1/config.yaml";
    std::string yaml = read_file(config);
    yaml.replace(yaml.find("max_steps: 16"), 13, "max_steps: 12");
    std::ofstream(config) << yaml;
    EXPECT_ERROR(with([](auto&) {}), UsageError,
                 "fp32_seed1 holds a run of another configuration: trainer.max_steps was 12 and is 16");
    put(scratch / "v/validation.json", "{\"seeds\": 2");
    EXPECT_ERROR(with([](auto&) {}), IoError, "validation.json cannot be made sense of");
}

TEST(WhatDiffers, NamesThreeSettingsAndCountsTheOthers) {
    const Config was;
    Config is = was;
    is.seed = 4;
    is.optimizer.lr = 0.5;
    EXPECT_EQ(what_differs(was, is, {}), "seed was 0 and is 4, optimizer.lr was 0.001 and is 0.5");
    is.trainer.max_epochs = 7;
    EXPECT_FALSE(has(what_differs(was, is, {}), " more"));
    is.trainer.max_steps = 3;
    is.trainer.log_every_n_steps = 9;
    const std::string told = what_differs(was, is, {});
    EXPECT_TRUE(told.ends_with(", and 2 more")) << told;
    EXPECT_EQ(what_differs(was, is, {"seed", "optimizer.lr", "trainer.max_epochs", "trainer.max_steps"}),
              fmt::format("trainer.log_every_n_steps was {} and is 9", was.trainer.log_every_n_steps));
}

// A summary that somebody wrote by hand says nothing under a key whose value is of another kind.
TEST(BegunRun, TakesASummaryForWhatItSays) {
    const Scratch scratch;
    const Config config = tiny(scratch).base;
    put(scratch / "config.yaml", run_config_text(config));
    put(scratch / "metrics.jsonl", "");
    const auto with = [&](std::string_view summary) {
        put(scratch / "summary.json", summary);
        return look_at_run(scratch.path(), config);
    };
    EXPECT_EQ(with("{}").state, BegunRun::State::begun);
    const BegunRun odd = with("{\"status\": 5, \"failure\": [], \"stopped_early\": null, \"steps\": \"many\"}");
    EXPECT_EQ(odd.state, BegunRun::State::begun);
    EXPECT_EQ(odd.failure + odd.stopped_early, "");
    EXPECT_EQ(odd.steps, 0);
    const BegunRun ended = with("{\"status\": \"finished\", \"stopped_early\": \"enough\", \"steps\": 7}");
    EXPECT_EQ(ended.state, BegunRun::State::finished);
    EXPECT_EQ(ended.stopped_early, "enough");
    EXPECT_EQ(ended.steps, 7);
}

TEST(ResumedValidation, KeepsACandidateThatBrokeDown) {
    const Scratch scratch;
    Observer nobody;
    ValidateOptions options = tiny(scratch);
    options.base.scaler.dynamic = false;
    options.base.scaler.init_scale = 0x1p100;
    options.base.trainer.max_epochs = 8;
    options.base.trainer.max_steps = -1;
    options.base.trainer.on_instability = "stop";
    options.candidates = {"16-mixed"};
    const Validation broken = validate(options, nobody);
    ASSERT_EQ(broken.verdict, Verdict::fail) << broken.reason;
    options.resume = true;
    Watcher watcher;
    const Validation again = validate(options, watcher);
    EXPECT_EQ(again.verdict, Verdict::fail);
    EXPECT_EQ(again.reason, broken.reason);
    EXPECT_TRUE(watcher.begun.empty()) << watcher.begun.front().first;
}

TEST(ResumedValidation, IsRefusedWhileAnotherProcessIsAtIt) {
    const Scratch scratch;
    Observer nobody;
    ValidateOptions options = tiny(scratch);
    options.seeds = 1;
    validate(options, nobody);
    const FolderLock other(scratch / "v");
    options.resume = true;
    EXPECT_ERROR(validate(options, nobody), IoError, "another run (process ");
}

}  // namespace
}  // namespace invar
