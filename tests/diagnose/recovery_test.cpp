// Recovering with what a replay of the failed step has shown to mend it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "invar/core/error.h"
#include "invar/diagnose/failure.h"
#include "invar/diagnose/record_failure.h"
#include "invar/train/trainer.h"
#include "tests/diagnose/out_of_range.h"

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

}  // namespace
}  // namespace invar
