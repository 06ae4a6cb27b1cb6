// Precision that changes in the middle of a run, and runs that become unstable: stopped, gone on with, or set right.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "invar/core/error.h"
#include "invar/train/step.h"
#include "tests/core/expect_error.h"
#include "tests/train/scratch_run.h"

namespace invar {
namespace {

namespace fs = std::filesystem;

Config scheduled_config(const fs::path& output) {
    Config config = small_config(output);
    config.trainer.precision_schedule = {
        {false, 0, "32-true"}, {false, 4, "16-mixed"}, {true, 1, "bf16-mixed"}, {false, 15, "16-mixed"}};
    config.scaler.init_scale = 4096;
    return config;
}

// Inputs so large that FP16 cannot hold them, while BF16 can; trained in FP32 until the seventh step.
Config failing_config(const fs::path& output) {
    Config config = small_config(output);
    config.trainer.precision_schedule = {{false, 7, "16-mixed"}};
    config.trainer.checkpoint_every_n_steps = 3;
    config.trainer.on_instability = "recover";
    config.data.as<SyntheticOptions>().std = 1e-7;
    return config;
}

void expect_same_weights(const fs::path& a, const fs::path& b) {
    const Checkpoint ours = load_checkpoint(last_checkpoint(a)), theirs = load_checkpoint(last_checkpoint(b));
    EXPECT_EQ(ours.state.at("progress"), theirs.state.at("progress"));
    for (const char* key : {"monitor", "stability", "precisions"})
        EXPECT_EQ(ours.state.at("watch").at(key), theirs.state.at("watch").at(key));
    EXPECT_EQ(ours.state.at("scaler"), theirs.state.at("scaler"));
    for (const auto& [name, tensor] : theirs.tensors)
        EXPECT_EQ(ours.tensors.at(name).to_vector<float>(), tensor.to_vector<float>()) << name;
}

TEST(PrecisionSchedule, ChangesPrecisionAtStepsAndEpochsAndSaysSo) {
    const ScratchFolder scratch;
    Stopper observer;
    const RunSummary run = train(scheduled_config(scratch.path()), observer);
    ASSERT_EQ(observer.steps.size(), 20u);
    for (const StepMetrics& m : observer.steps) {
        const char* expected = m.step <= 4 ? "32-true" : m.step <= 10 || m.step > 15 ? "16-mixed" : "bf16-mixed";
        EXPECT_EQ(m.precision, expected) << m.step;
        EXPECT_EQ(m.scale, std::string(expected) == "16-mixed" ? 4096.0 : 1.0) << m.step;
    }
    EXPECT_EQ(lines_with(run.folder, "precision").at(4).at("precision"), "16-mixed");
    EXPECT_EQ(run.precision, "16-mixed");
    const auto summary = nlohmann::json::parse(file_bytes(run.folder / "summary.json"));
    EXPECT_EQ(summary.at("precision_by_step"),
              (nlohmann::json{{"0", "32-true"}, {"4", "16-mixed"}, {"10", "bf16-mixed"}, {"15", "16-mixed"}}));
    std::size_t told = 0;
    for (const std::string& note : observer.notes) told += note.find("instead of") != std::string::npos;
    EXPECT_EQ(told, 3u);
}

TEST(PrecisionSchedule, CarriesWeightsAndMomentsOverToTheBit) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    invar::Setup setup(config);
    setup.train_data->start_epoch(0);
    setup.model->train();
    const Batch batch = *setup.train_data->next();
    const auto step = [&] {
        training_step(setup.loss, *setup.model, *setup.optimizer, *setup.scaler, setup.precision, setup.clip,
                      {&batch, 1});
    };
    const auto state = [&] {
        std::map<std::string, std::vector<float>> all;
        for (const auto& [name, tensor] : take_snapshot(setup, {}, "").tensors) all[name] = tensor.to_vector<float>();
        return all;
    };
    step();
    const auto before = state();
    for (const char* precision : {"16-mixed", "bf16-mixed", "32-true", "bf16-mixed"}) {
        setup.set_precision(Precision::parse(precision));
        EXPECT_EQ(state(), before) << precision;
        EXPECT_EQ(setup.optimizer->state().taken, 1);
    }
    step();
    EXPECT_NE(state(), before);
}

TEST(PrecisionSchedule, FromSixteenBitWeightsToFp32OnesNothingIsLost) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.trainer.precision = "bf16-true";
    invar::Setup setup(config);
    setup.train_data->start_epoch(0);
    const Batch batch = *setup.train_data->next();
    training_step(setup.loss, *setup.model, *setup.optimizer, *setup.scaler, setup.precision, setup.clip, {&batch, 1});
    const StateDict weights = setup.model->state_dict(), moments = setup.optimizer->state_dict();
    setup.set_precision(Precision::parse("32-true"));
    EXPECT_EQ(setup.optimizer->store().weights().dtype(), Dtype::f32);
    for (const auto& [name, tensor] : setup.model->state_dict())
        EXPECT_EQ(tensor.to_vector<float>(), weights.at(name).to_vector<float>()) << name;
    for (const auto& [name, tensor] : setup.optimizer->state_dict())
        EXPECT_EQ(tensor.to_vector<float>(), moments.at(name).to_vector<float>()) << name;
    training_step(setup.loss, *setup.model, *setup.optimizer, *setup.scaler, setup.precision, setup.clip, {&batch, 1});
    EXPECT_EQ(setup.optimizer->state().taken, 2);
}

TEST(PrecisionSchedule, AResumedRunEndsWithTheSameBits) {
    const ScratchFolder scratch;
    Config config = scheduled_config(scratch.path());
    config.exp_name = "whole";
    const fs::path whole = train(config).folder;
    for (const std::int64_t stop : {3, 4, 5, 10, 12, 15, 17}) {
        config.exp_name = fmt::format("parts{}", stop);
        Stopper stopper(stop);
        const fs::path parts = train(config, stopper).folder;
        train(config, parts);
        expect_same_weights(parts, whole);
    }
}

TEST(Recovery, GoesBackAndOnInASaferPrecision) {
    const ScratchFolder scratch;
    const Config config = failing_config(scratch.path());
    Stopper observer;
    const RunSummary run = train(config, observer);
    EXPECT_EQ(run.status, "finished");
    EXPECT_EQ(run.steps, 20);
    ASSERT_EQ(run.recoveries.size(), 1u);
    const Recovery& recovery = run.recoveries[0];
    EXPECT_EQ(recovery.failed_at, 8);
    EXPECT_EQ(recovery.back_to, 6);
    EXPECT_EQ(recovery.from, "16-mixed");
    EXPECT_EQ(recovery.to, "bf16-mixed");
    EXPECT_NE(recovery.reason.find("the loss is"), std::string::npos) << recovery.reason;
    EXPECT_NE(recovery.reason.find("first bad gradient: 1.weight"), std::string::npos) << recovery.reason;
    EXPECT_EQ(run.precision, "bf16-mixed");
    const auto told = lines_with(run.folder, "recovery");
    ASSERT_EQ(told.size(), 1u);
    EXPECT_EQ(told[0].at("step"), 6);
    EXPECT_EQ(told[0].at("to"), "bf16-mixed");
    const auto steps = lines_with(run.folder, "loss");
    ASSERT_EQ(steps.size(), 20u) << "each step once";
    for (std::size_t i = 0; i < steps.size(); ++i) {
        EXPECT_EQ(steps[i].at("step"), std::int64_t(i + 1));
        EXPECT_EQ(steps[i].at("precision"), i < 7 ? "32-true" : "bf16-mixed");
    }
    const auto summary = nlohmann::json::parse(file_bytes(run.folder / "summary.json"));
    EXPECT_EQ(summary.at("recoveries"), 1);
    EXPECT_EQ(summary.at("recovery_1").at("failed_at"), 8);
    bool noted = false;
    for (const std::string& note : observer.notes) noted = noted || note.find("recovered at step 8") == 0;
    EXPECT_TRUE(noted);

    Config direct = config;
    direct.exp_name = "direct";
    direct.trainer.precision_schedule = {{false, 7, "bf16-mixed"}};
    const Checkpoint ours = load_checkpoint(last_checkpoint(run.folder));
    const Checkpoint theirs = load_checkpoint(last_checkpoint(train(direct).folder));
    for (const auto& [name, tensor] : theirs.tensors)
        EXPECT_EQ(ours.tensors.at(name).to_vector<float>(), tensor.to_vector<float>())
            << name << ": as if it had been trained so from the start";
}

TEST(Recovery, FromTheVeryFirstStepGoesBackToTheBeginning) {
    const ScratchFolder scratch;
    Config config = failing_config(scratch.path());
    config.trainer.precision_schedule.clear();
    config.trainer.precision = "16-mixed";
    const RunSummary run = train(config);
    ASSERT_EQ(run.recoveries.size(), 1u);
    EXPECT_EQ(run.recoveries[0].back_to, 0);
    EXPECT_EQ(run.precision, "bf16-mixed");
    ASSERT_EQ(run.precisions.size(), 1u) << "no step counts that was made in FP16";
    EXPECT_EQ(run.precisions[0].precision, "bf16-mixed");
    EXPECT_TRUE(std::isfinite(run.train_loss));
}

// A loss scale that no gradient survives: every step is skipped, and checkpoints that lie among them are no good ones.
TEST(Recovery, FromSkippedStepsGoesBackToBeforeTheFirstOfThem) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.trainer.precision = "16-mixed";
    config.scaler.init_scale = 1e30;
    config.scaler.dynamic = false;
    config.stability.streak = 10;
    config.trainer.checkpoint_every_n_steps = 2;
    config.trainer.keep_checkpoints = 1;
    config.trainer.on_instability = "recover";
    const RunSummary run = train(config);
    ASSERT_EQ(run.recoveries.size(), 1u);
    EXPECT_EQ(run.recoveries[0].failed_at, 10);
    EXPECT_EQ(run.recoveries[0].back_to, 0);
    EXPECT_EQ(run.skipped, 0);
}

TEST(Recovery, AResumedRunKeepsTheRecoveredPrecision) {
    const ScratchFolder scratch;
    Config config = failing_config(scratch.path());
    config.exp_name = "whole";
    const RunSummary undisturbed = train(config);
    const fs::path whole = undisturbed.folder;
    const std::int64_t alerts = undisturbed.alerts;
    for (const std::int64_t stop : {6, 7, 8, 9, 13}) {
        config.exp_name = fmt::format("parts{}", stop);
        Stopper stopper(stop);
        const fs::path parts = train(config, stopper).folder;
        const RunSummary ended = train(config, parts);
        EXPECT_EQ(ended.recoveries.size(), 1u) << stop;
        EXPECT_EQ(ended.alerts, alerts) << stop;
        EXPECT_EQ(lines_with(parts, "recovery").size(), 1u) << stop;
        expect_same_weights(parts, whole);
    }
}

// A NaN in the data is nobody's precision's fault: recovery goes as far as FP32, and the run ends with a diagnosis.
TEST(Recovery, EndsWithADiagnosisWhereNoPrecisionHelps) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.trainer.precision = "16-mixed";
    config.trainer.on_instability = "recover";
    config.optimizer.choose("sgd");
    config.optimizer.lr = 1e10;
    config.model.set("dropout", "0");
    Stopper observer;
    Trainer trainer(config);
    std::vector<std::string> asked;
    trainer.set_diagnosis([&](invar::Setup&, const FailedStep& step) -> Explanation {
        EXPECT_EQ(step.run, scratch.path() / "run");
        EXPECT_FALSE(step.group.empty());
        asked.push_back(name_of(step.found.kind));
        return {"the learning rate is a mountain", Remedy::of_learning_rate(1e-3), false, "look here"};
    });
    EXPECT_ERROR(trainer.fit(observer), Error, "there is no safer precision");
    EXPECT_EQ(asked.size(), 3u);
    const auto summary = nlohmann::json::parse(file_bytes(scratch.path() / "run" / "summary.json"));
    EXPECT_EQ(summary.at("status"), "unstable");
    EXPECT_EQ(summary.at("recoveries"), 2);
    const std::string failure = summary.at("failure");
    for (const char* part : {"step", "32-true", "a mountain; more: look here", "Try optimizer.lr=0.001 or"})
        EXPECT_NE(failure.find(part), std::string::npos) << part << " is not in: " << failure;
}

TEST(Recovery, HasALimit) {
    const ScratchFolder scratch;
    Config config = failing_config(scratch.path());
    config.stability.max_recoveries = 0;
    EXPECT_ERROR(train(config), Error, "after 0 recoveries");
}

TEST(Instability, StopsTheRunWhereThatIsAskedFor) {
    const ScratchFolder scratch;
    Config config = failing_config(scratch.path());
    config.trainer.on_instability = "stop";
    EXPECT_ERROR(train(config), Error, "training stopped at step 8");
    EXPECT_EQ(last_checkpoint(scratch.path() / "run").filename(), "step_00000006.safetensors");
}

TEST(Instability, IsToldOnceAndGoneOnWithWhereStepsAreSkipped) {
    const ScratchFolder scratch;
    Config config = failing_config(scratch.path());
    config.trainer.on_instability = "skip";
    const RunSummary run = train(config);
    EXPECT_EQ(run.status, "finished");
    EXPECT_EQ(run.skipped, 13);
    std::size_t told = 0;
    for (const nlohmann::json& line : lines_with(run.folder, "alert")) told += line.at("alert") == "loss_nonfinite";
    EXPECT_EQ(told, 1u);
}

// Twenty runs that are well, of several kinds: not one may be called unstable.
TEST(Instability, IsNeverSeenInHealthyRuns) {
    const ScratchFolder scratch;
    for (int seed = 0; seed < 20; ++seed) {
        Config config = small_config(scratch.path());
        config.seed = seed;
        config.trainer.precision = std::array{"32-true", "16-mixed", "bf16-mixed"}[std::size_t(seed % 3)];
        config.trainer.max_epochs = 40;  // far beyond the point where every sample is known by heart
        config.trainer.log_every_n_steps = 100;
        config.trainer.on_instability = "stop";
        config.trainer.limit_val_batches = BatchCount::of(1);
        config.optimizer.choose(seed % 2 ? "adam" : "sgd");
        config.optimizer.lr = seed % 2 ? 0.003 : 0.1;
        config.data.batch_size = seed % 4 == 3 ? 4 : 16;
        config.scheduler.choose(seed % 5 ? "constant" : "one_cycle");
        config.trainer.keep_checkpoints = 1;
        config.monitor.grad_norm_low = 0;  // what is known by heart has no gradients left
        Stopper observer;
        const RunSummary run = train(config, observer);
        EXPECT_EQ(run.status, "finished") << seed;
        EXPECT_EQ(run.alerts, 0) << "seed " << seed << ": " << (observer.notes.empty() ? "" : observer.notes.front());
    }
}

}  // namespace
}  // namespace invar
