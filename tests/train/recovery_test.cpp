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

// ---- the judge itself ----

ReportedStep step_with(std::int64_t step, double loss, double norm) {
    ReportedStep reported;
    reported.before.step = step - 1;
    reported.report.loss = loss;
    reported.report.step.grad_norm = float(norm);
    return reported;
}

// A loss that falls from 2.3 to 0.1 with noise, and norms that go with it.
std::pair<double, double> healthy(std::int64_t step) {
    const double noise = 1.0 + 0.2 * std::sin(12.9898 * double(step)) + 0.1 * std::sin(78.233 * double(step));
    const double loss = (0.1 + 2.2 * std::exp(-double(step) / 80)) * noise;
    return {loss, 3 * loss * noise};
}

TEST(Stability, FindsASpikeAndNothingBeforeIt) {
    for (const bool in_the_norm : {false, true})
        for (const std::int64_t at : {60, 150, 400}) {
            Stability stability{StabilityConfig{}};
            for (std::int64_t step = 1; step < at; ++step) {
                const auto [loss, norm] = healthy(step);
                ASSERT_FALSE(stability.judge(step_with(step, loss, norm))) << step;
            }
            const auto [loss, norm] = healthy(at);
            const auto found =
                stability.judge(in_the_norm ? step_with(at, loss, 1e4 * norm) : step_with(at, 30 * loss + 5, norm));
            ASSERT_TRUE(found) << at;
            EXPECT_EQ(name_of(found->kind), in_the_norm ? "gradient_spike" : "loss_spike");
            EXPECT_EQ(found->at.step(), at);
        }
}

// What an optimizer that goes astray looks like, in a network that is half trained.
TEST(Stability, FindsWhatASingleHardBatchDoesNotExplain) {
    struct Planted {
        const char* kind;
        double loss, norm;  // times what they were
        int steps;
    };
    for (const Planted& planted : {Planted{"loss_spike", 5, 1, 3}, Planted{"loss_spike", 10, 1, 1},
                                   Planted{"gradient_spike", 1, 20, 3}, Planted{"gradient_spike", 1, 400, 1}}) {
        Stability stability{StabilityConfig{}};
        std::int64_t step = 1;
        for (; step <= 100; ++step) {
            const auto [loss, norm] = healthy(step);
            ASSERT_FALSE(stability.judge(step_with(step, loss, norm))) << step;
        }
        std::optional<Instability> found;
        for (int i = 0; i < planted.steps; ++i, ++step) {
            EXPECT_FALSE(found) << planted.kind << ": too early, it might be a hard batch";
            const auto [loss, norm] = healthy(100);
            found = stability.judge(step_with(step, planted.loss * loss, planted.norm * norm));
        }
        ASSERT_TRUE(found) << planted.kind << " " << planted.loss << " " << planted.norm;
        EXPECT_EQ(name_of(found->kind), planted.kind);
    }
}

// What breaks a run is that it does not come back.
std::optional<Instability> after_leap(const std::function<double(int since)>& loss, int steps,
                                      int healthy_steps = 100) {
    Stability stability{StabilityConfig{}};
    std::int64_t step = 1;
    for (; step <= healthy_steps; ++step) {
        const auto [good, norm] = healthy(step);
        if (const auto found = stability.judge(step_with(step, good, norm))) return found;
    }
    for (int since = 0; since < steps; ++since, ++step)
        if (const auto found = stability.judge(step_with(step, loss(since), 1)); found && found->breaks) return found;
    return std::nullopt;
}

TEST(Stability, BreaksOffWhereALossDoesNotComeBack) {
    const auto stuck = after_leap([](int) { return 3.5; }, 200);
    ASSERT_TRUE(stuck);
    EXPECT_EQ(stuck->kind, Instability::Kind::loss_diverged);
    EXPECT_TRUE(stuck->at.step() >= 101 && stuck->at.step() <= 103) << "where it began: " << stuck->at.step();
    EXPECT_GT(stuck->shown_at, stuck->at.step() + 40) << "it was given time";
    const auto exploded = after_leap([](int since) { return 1e4 * (1 + since); }, 200);
    ASSERT_TRUE(exploded);
    EXPECT_LE(exploded->shown_at, 122) << "there is nothing to wait for";
    EXPECT_FALSE(after_leap([](int since) { return since < 8 ? 9.0 : 0.6; }, 200)) << "over in eight steps";
    EXPECT_FALSE(after_leap([](int since) { return 0.6 + 20 * std::exp(-since / 30.0); }, 200)) << "slowly, but surely";
}

// A network that was at 10 untrained and is at 1: half of what it has learnt is lost above 5.5.
void learn(Stability& stability) {
    ASSERT_FALSE(stability.judge(step_with(1, 10, 1)));
    for (std::int64_t step = 2; step <= 100; ++step) ASSERT_FALSE(stability.judge(step_with(step, 1, 1))) << step;
}

TEST(Stability, IsContentWithARunThatHasLostLessThanHalfOfWhatItHadLearnt) {
    Stability stability{StabilityConfig{}};
    learn(stability);
    ASSERT_TRUE(stability.judge(step_with(101, 20, 1)));
    ASSERT_NE(stability.thrown_off_at(), nullptr);
    for (std::int64_t step = 102; step <= 300; ++step) {
        const auto found = stability.judge(step_with(step, 5, 1));
        ASSERT_FALSE(found) << step << ": " << found->reason;
    }
    EXPECT_EQ(stability.thrown_off_at(), nullptr);
}

TEST(Stability, MeasuresByWhatHasBecomeUsualWhereARunGoesOnAllTheSame) {
    Stability stability{StabilityConfig{}};
    learn(stability);
    std::optional<Instability> diverged;
    std::int64_t step = 101;
    for (; step <= 200 && !diverged; ++step) {
        diverged = stability.judge(step_with(step, 8, 1));
        if (diverged && !diverged->breaks) diverged.reset();
    }
    ASSERT_TRUE(diverged);
    EXPECT_EQ(diverged->kind, Instability::Kind::loss_diverged);
    for (; step <= 400; ++step) {
        const auto found = stability.judge(step_with(step, 8, 1));
        ASSERT_FALSE(found) << step << ": " << found->reason;
    }
}

TEST(Stability, MeasuresByTheUntrainedNetworkFromTheFirstStep) {
    for (const double astray : {1e3, 4.7e11}) {
        Stability stability{StabilityConfig{}};
        std::optional<Instability> found;
        for (std::int64_t step = 1; step <= 40 && !found; ++step) {
            found = stability.judge(step_with(step, step < 3 ? 2.3 : astray, 1));
            if (found && !found->breaks) found.reset();
        }
        ASSERT_TRUE(found) << astray;
        EXPECT_EQ(found->at.step(), 3);
    }
    Stability creeping{StabilityConfig{}};  // never ten times as much, and never any good
    std::optional<Instability> found;
    for (std::int64_t step = 1; step <= 60 && !found; ++step)
        found = creeping.judge(step_with(step, 2.3 + 0.4 * double(std::min<std::int64_t>(step, 15)), 1));
    ASSERT_TRUE(found);
    EXPECT_EQ(found->kind, Instability::Kind::loss_diverged);
}

// Small batches and a high rate: a start that is worse than no training, and gets better all the while.
TEST(Stability, LetsARoughStartPassThatFalls) {
    const auto judged = [](const std::function<double(double)>& loss) {
        Stability stability{StabilityConfig{}};
        for (std::int64_t step = 1; step <= 120; ++step) {
            const double noise = 1.0 + 0.6 * std::sin(12.9898 * double(step)) + 0.3 * std::sin(78.233 * double(step));
            const auto found = stability.judge(step_with(step, step == 1 ? 2.5 : loss(double(step)) * noise, 1));
            if (found && found->breaks) return step;
        }
        return std::int64_t(0);
    };
    EXPECT_EQ(judged([](double step) { return 9 * std::exp(-step / 80); }), 0);
    const std::int64_t stuck = judged([](double) { return 6.5; });
    EXPECT_TRUE(stuck >= 51 && stuck <= 60) << "when the window is full: " << stuck;
}

TEST(Stability, RemembersWhatItWaitsForAcrossACheckpoint) {
    Stability whole{StabilityConfig{}}, resumed{StabilityConfig{}};
    for (std::int64_t step = 1; step < 110; ++step) {
        const auto [loss, norm] = healthy(step);
        whole.judge(step_with(step, step < 100 ? loss : 50, norm));
    }
    ASSERT_NE(whole.thrown_off_at(), nullptr);
    resumed.restore(nlohmann::json::parse(whole.state().dump()));
    std::optional<Instability> found;
    for (std::int64_t step = 110; step < 130 && !found; ++step) found = resumed.judge(step_with(step, 50, 1));
    ASSERT_TRUE(found);
    EXPECT_EQ(found->at.step(), 100);
}

TEST(Stability, LetsHardBatchesPassAndDoesNotMeasureByThem) {
    Stability stability{StabilityConfig{}};
    const auto quiet = [](std::int64_t step) { return 0.02 + 0.001 * std::sin(12.9898 * double(step)); };
    ASSERT_FALSE(stability.judge(step_with(1, 2.3, 3)));
    for (std::int64_t step = 2; step <= 400; ++step) {
        const bool hard = step % 25 < 2;  // two in a row of what the network had never learnt
        const auto found = stability.judge(step_with(step, hard ? 2.2 : quiet(step), 3 * quiet(step)));
        ASSERT_FALSE(found) << step << ": " << found->reason;
    }
    EXPECT_TRUE(stability.judge(step_with(401, 12, 0.06))) << "the hard ones have not become usual";
}

TEST(Stability, TakesGradientsThatComeBackFromNothingAsTheyAre) {
    for (const double nothing : {0.0, 1e-12}) {
        Stability stability{StabilityConfig{}};
        ASSERT_FALSE(stability.judge(step_with(1, 1, 1e-3)));
        for (std::int64_t step = 2; step <= 100; ++step) ASSERT_FALSE(stability.judge(step_with(step, 1, nothing)));
        EXPECT_FALSE(stability.judge(step_with(101, 1, 1e-6))) << "below a thousandth of the first";
        if (nothing == 0) {
            EXPECT_FALSE(stability.judge(step_with(102, 1, 1e-3)));
        }
    }
}

TEST(Stability, KnowsTheOtherSignsToo) {
    Stability stability{StabilityConfig{}};
    EXPECT_EQ(stability.judge(step_with(1, NAN, 1))->kind, Instability::Kind::loss_nonfinite);
    ReportedStep floor = step_with(2, 1, 1);
    floor.report.scale.at_floor = 1;
    EXPECT_EQ(stability.judge(floor)->kind, Instability::Kind::scale_floor);
    ReportedStep streak = step_with(3, 1, INFINITY);
    streak.report.step.skip = 1;
    streak.report.step.skipped_in_a_row = 24;
    EXPECT_FALSE(stability.judge(streak));
    streak.report.step.skipped_in_a_row = 25;
    EXPECT_EQ(stability.judge(streak)->kind, Instability::Kind::skipped_streak);
}

TEST(Stability, RemembersItsWindowAcrossACheckpoint) {
    Stability whole{StabilityConfig{}}, resumed{StabilityConfig{}};
    for (std::int64_t step = 1; step < 90; ++step) {
        const auto [loss, norm] = healthy(step);
        whole.judge(step_with(step, loss, norm));
    }
    resumed.restore(nlohmann::json::parse(whole.state().dump()));
    EXPECT_TRUE(resumed.judge(step_with(90, 100, 1)));
    EXPECT_EQ(resumed.state(), [&] {
        whole.judge(step_with(90, 100, 1));
        return whole.state();
    }());
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
