// Recovering with what a replay of the failed step has shown to mend it.
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "invar/core/error.h"
#include "invar/diagnose/failure.h"
#include "invar/diagnose/record_failure.h"
#include "invar/train/trainer.h"
#include "tests/core/expect_error.h"
#include "tests/diagnose/out_of_range.h"
#include "tests/dist/thread_ranks.h"

namespace invar {
namespace {

namespace fs = std::filesystem;

RunSummary run_with_diagnosis(const Config& config, Observer& observer, std::optional<fs::path> resume = {}) {
    Trainer trainer(config, std::move(resume));
    trainer.set_diagnosis(explain);
    return trainer.fit(observer);
}

TEST(Remedy, IsAppliedWhereTheReplayHasShownThatItHelps) {
    const ScratchFolder scratch;
    const Config config = out_of_range_config(scratch.path());
    Stopper observer;
    const RunSummary run = run_with_diagnosis(config, observer);
    EXPECT_EQ(run.status, "finished");
    ASSERT_EQ(run.recoveries.size(), 1u);
    const Recovery& recovery = run.recoveries[0];
    EXPECT_EQ(recovery.remedy, Remedy::of_overrides({{"1", "32-true"}}));
    EXPECT_EQ(recovery.from, "16-mixed");
    EXPECT_EQ(recovery.to, "16-mixed");
    EXPECT_EQ(recovery.failed_at, kOutOfRangeStep);
    EXPECT_EQ(run.precision, "16-mixed") << "one module is enough";
    EXPECT_TRUE(run.all_finite);
    const auto summary = nlohmann::json::parse(file_bytes(run.folder / "summary.json"));
    EXPECT_EQ(summary.at("recovery_1").at("setting"), "trainer.precision_overrides={1: 32-true}");
    bool told = false;
    for (const std::string& note : observer.notes)
        told = told || note.find("on in 16-mixed with trainer.precision_overrides={1: 32-true}") != note.npos;
    EXPECT_TRUE(told);
    EXPECT_EQ(load_failure(failure_folder(run.folder)).progress.step, kOutOfRangeStep - 1) << "before it";
}

TEST(Remedy, IsKeptAcrossAResume) {
    const ScratchFolder scratch;
    Config config = out_of_range_config(scratch.path());
    Stopper nobody;
    config.exp_name = "whole";
    const fs::path whole = run_with_diagnosis(config, nobody).folder;
    config.exp_name = "parts";
    Stopper stopper(kOutOfRangeStep + 3);
    const fs::path parts = run_with_diagnosis(config, stopper).folder;
    const RunSummary ended = run_with_diagnosis(config, nobody, parts);
    EXPECT_EQ(ended.recoveries.size(), 1u);
    const Checkpoint ours = load_checkpoint(last_checkpoint(parts)), theirs = load_checkpoint(last_checkpoint(whole));
    for (const auto& [name, tensor] : theirs.tensors)
        EXPECT_EQ(ours.tensors.at(name).to_vector<float>(), tensor.to_vector<float>()) << name;
}

TEST(Remedy, GivesWayToASaferPrecisionWhereItIsNotWanted) {
    const ScratchFolder scratch;
    Config config = out_of_range_config(scratch.path());
    config.stability.apply_remedy = false;
    Stopper nobody;
    const RunSummary run = run_with_diagnosis(config, nobody);
    ASSERT_EQ(run.recoveries.size(), 1u);
    EXPECT_EQ(run.recoveries[0].to, "bf16-mixed");
    EXPECT_FALSE(run.recoveries[0].remedy);
}

TEST(Remedy, GivesWayToASaferPrecisionWhereItHasBeenTriedBefore) {
    const ScratchFolder scratch;
    Config config = out_of_range_config(scratch.path());
    Trainer trainer(config);
    trainer.set_diagnosis([](invar::Setup&, const FailedStep&) -> Explanation {
        // Another module: it helps nobody.
        return {"no idea", Remedy::of_overrides({{"5", "32-true"}}), true};
    });
    Stopper nobody;
    const RunSummary run = trainer.fit(nobody);
    ASSERT_EQ(run.recoveries.size(), 2u);
    EXPECT_EQ(run.recoveries[0].to, "16-mixed");
    EXPECT_EQ(run.recoveries[1].to, "bf16-mixed");
}

// A static scale does not mend itself.
TEST(Remedy, LowersAStaticLossScale) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.trainer.precision = "16-mixed";
    config.trainer.on_instability = "recover";
    config.scaler.dynamic = false;
    config.scaler.init_scale = 0x1p24;
    config.stability.streak = 3;
    Stopper observer;
    const RunSummary run = run_with_diagnosis(config, observer);
    ASSERT_EQ(run.recoveries.size(), 1u);
    EXPECT_EQ(run.recoveries[0].remedy.kind, Remedy::Kind::init_scale) << run.recoveries[0].remedy.str();
    EXPECT_EQ(run.recoveries[0].to, "16-mixed");
    EXPECT_LT(run.final_scale, 0x1p24);
    EXPECT_LT(run.skipped, 3) << "the first three are taken back; a static scale may overflow again, but not in a row";
    EXPECT_EQ(run.recoveries[0].failed_at, 3);
}

// FP16 breaks first, and yet it is the learning rate: FP32 from the same checkpoint goes the same way.
TEST(Blame, IsNotOfThePrecisionWhereFp32GoesTheSameWay) {
    for (const char* precision : {"16-mixed", "32-true"}) {
        const ScratchFolder scratch;
        Config config = small_config(scratch.path());
        config.trainer.precision = precision;
        config.trainer.on_instability = "recover";
        config.trainer.max_epochs = 8;
        config.optimizer.choose("sgd");
        config.optimizer.lr = 300;
        config.model.set("dropout", "0");
        Stopper nobody;
        EXPECT_ERROR(run_with_diagnosis(config, nobody), UnstableError, "no precision is to blame");
        const auto summary = nlohmann::json::parse(file_bytes(scratch.path() / "run" / "summary.json"));
        EXPECT_EQ(summary.at("status"), "unstable");
        EXPECT_EQ(summary.at("recoveries"), 0) << "nothing that does not help was tried";
        const std::string failure = summary.at("failure");
        EXPECT_NE(failure.find("Try optimizer.lr="), failure.npos) << failure;
    }
}

// A finite step has changed the weights before anybody knew: what is kept is from before it.
TEST(FailedStep, IsKeptWithTheWeightsFromBeforeItWhereItWasFinite) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.trainer.precision = "32-true";
    config.trainer.on_instability = "stop";
    config.trainer.max_epochs = 8;
    config.optimizer.choose("sgd");
    config.optimizer.lr = 30;
    config.model.set("dropout", "0");
    Stopper watched;
    EXPECT_THROW(run_with_diagnosis(config, watched), UnstableError);
    const Failure failure = load_failure(failure_folder(scratch.path() / "run"));
    const std::int64_t number = failure.progress.step + 1;
    invar::Setup setup(parse_config(failure.config_yaml(), "failure"));
    restore_snapshot(setup, failure.state);
    const std::vector<Batch> group = on_device(failure.group, setup.device);
    const Replayed again = replay(*setup.model, *setup.optimizer, {group, failure.rng},
                                  {setup.precision, failure.scale, true, setup.loss, nullptr});
    for (const StepMetrics& m : watched.steps)
        if (m.step == number) {
            EXPECT_FLOAT_EQ(float(again.loss), float(m.loss)) << "as in training, step " << number;
        }
}

// What is kept for diagnose is of the precision at that step, not of the configuration's first one.
TEST(Remedy, KeepsTheStepAsItWasTrained) {
    const ScratchFolder scratch;
    Config config = out_of_range_config(scratch.path());
    config.trainer.precision = "32-true";
    config.trainer.precision_schedule = {{false, 2, "16-mixed"}};
    config.trainer.on_instability = "stop";
    Stopper nobody;
    EXPECT_THROW(run_with_diagnosis(config, nobody), Error);
    const Failure failure = load_failure(failure_folder(scratch.path() / "run"));
    const Config kept = parse_config(failure.config_yaml(), "failure");
    EXPECT_EQ(kept.trainer.precision, "16-mixed");
    EXPECT_TRUE(kept.trainer.precision_schedule.empty());
    invar::Setup setup(kept);
    const Finding finding = replay_failure(setup, failure);
    ASSERT_TRUE(finding);
    EXPECT_EQ(finding.module, "1");
    EXPECT_EQ(finding.dtype, Dtype::f16);
}

// The second rank's part holds an infinity: that part is kept, and one process finds it there.
TEST(FailedStep, OfRanksIsReplayedByOneProcess) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.data.num_workers = 0;
    for (const char* strategy : {"ddp", "zero1", "zero2"}) {
        config.trainer.strategy = strategy;
        std::vector<Batch::Part> parts(3);
        as_ranks(3, [&](Communicator& ranks) {
            invar::Setup setup(config);
            setup.train_data->start_epoch(0);
            FailedStep step{scratch.path(), config, setup.next_group(), {}};
            parts[std::size_t(ranks.rank())] = step.group[0].part;
            if (ranks.rank() == 1) step.group[0]["x"].data<float>()[0] = std::numeric_limits<float>::infinity();
            step.found.at.report.step.bad_rank = 1;
            const Explanation why = explain(setup, step);
            EXPECT_EQ(why.cause, "rank 1's part of the step is kept");
            EXPECT_NE(why.command.find("diagnose " + scratch.path().string()), std::string::npos) << why.command;
        });
        const Failure failure = load_failure(failure_folder(scratch.path()));
        EXPECT_EQ(failure.rank, 1);
        EXPECT_EQ(failure.ranks, 3);
        EXPECT_EQ(failure.group[0].part.first, parts[1].first);
        EXPECT_EQ(failure.group[0].part.of, 16);
        EXPECT_GT(parts[1].first, 0);
        invar::Setup alone(config);
        const Finding finding = replay_failure(alone, failure);
        EXPECT_EQ(finding.blame, Blame::data) << strategy;
        EXPECT_NE(finding.explanation.find("sample 0 of the batch"), std::string::npos) << finding.explanation;
    }
}

}  // namespace
}  // namespace invar
