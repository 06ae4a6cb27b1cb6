// What proves a run safe, on the GPU: faults named as on the CPU, monitors, changing precision, recovery, validation.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "invar/core/error.h"
#include "invar/diagnose/diagnose.h"
#include "invar/diagnose/failure.h"
#include "invar/diagnose/find_first_bad.h"
#include "invar/diagnose/record_failure.h"
#include "invar/diagnose/tune.h"
#include "invar/validate/validate.h"
#include "tests/diagnose/faults.h"
#include "tests/diagnose/out_of_range.h"
#include "tests/gpu/fixture.h"

namespace invar::testing {
namespace {

namespace fs = std::filesystem;

class GpuSafety : public Gpu {
  protected:
    static FaultyRun faulty(const std::string& precision, Fault fault, int at, int layers = kLayers) {
        return FaultyRun(precision, fault, at, layers, 0.01, "cuda");
    }
    static Config on_gpu(Config config) {
        config.trainer.device = "cuda";
        return config;
    }
};

void expect_same_weights(const fs::path& a, const fs::path& b) {
    const Checkpoint ours = load_checkpoint(last_checkpoint(a)), theirs = load_checkpoint(last_checkpoint(b));
    for (const auto& [name, tensor] : theirs.tensors)
        EXPECT_EQ(bytes_of(ours.tensors.at(name)), bytes_of(tensor)) << name;
}

TEST_F(GpuSafety, FaultsOfEveryLayerAreNamedAsOnTheCpu) {
    for (const Fault fault :
         {Fault::forward_overflow, Fault::backward_overflow, Fault::scale_overflow, Fault::vanished_divisor})
        for (int at = 1; at <= kLayers; ++at) {
            FaultyRun here = faulty("16-mixed", fault, at), there("16-mixed", fault, at);
            const double scale = fault == Fault::scale_overflow ? 65536 : 1;
            const Finding ours = find_first_bad(here.setup, here.group, here.rng, scale);
            const Finding theirs = find_first_bad(there.setup, there.group, there.rng, scale);
            ASSERT_TRUE(ours) << int(fault) << " " << at;
            EXPECT_EQ(ours.module, layer_name(at));
            EXPECT_EQ(ours.where(), theirs.where());
            EXPECT_EQ(ours.blame, theirs.blame) << ours.text();
            EXPECT_EQ(ours.dtype, theirs.dtype);
            if (fault != Fault::scale_overflow) {
                EXPECT_EQ(ours.remedy.str(), theirs.remedy.str());
            }
            EXPECT_TRUE(ours.verified);
        }
    for (const char* precision : {"32-true", "16-mixed", "bf16-mixed"}) {
        FaultyRun healthy = faulty(precision, Fault::none, 0);
        EXPECT_FALSE(find_first_bad(healthy.setup, healthy.group, healthy.rng, 1024)) << precision;
    }
}

TEST_F(GpuSafety, ASampleThatIsNotFiniteIsNamed) {
    FaultyRun run = faulty("16-mixed", Fault::none, 0);
    kernels_for(run.setup.device)
        .fill(run.group[0]["x"].window(5 * 16 + 3, {1}).view(), std::numeric_limits<double>::quiet_NaN());
    const Finding f = find_first_bad(run.setup, run.group, run.rng, 1.0);
    ASSERT_TRUE(f);
    EXPECT_EQ(f.blame, Blame::data) << f.text();
    EXPECT_NE(f.explanation.find("sample 5 of the batch"), std::string::npos) << f.explanation;
}

TEST_F(GpuSafety, DiagnoseSeesWhatVanishesAndNothingElse) {
    DiagnoseOptions options;
    options.candidate = Precision::parse("16-mixed");
    options.format = Dtype::f16;
    options.steps = 2;
    for (int at = 1; at <= kLayers; ++at) {
        FaultyRun run = faulty("32-true", Fault::underflow, at);
        const Diagnosis d = diagnose(run.setup, options);
        EXPECT_FALSE(d.finding) << d.finding.text();
        ASSERT_FALSE(d.concerns.empty());
        EXPECT_EQ(d.concerns[0].module, layer_name(at));
        EXPECT_EQ(d.concerns[0].kind, Concern::Kind::underflow);
    }
    FaultyRun healthy = faulty("32-true", Fault::none, 0), on_cpu("32-true", Fault::none, 0);
    const Diagnosis ours = diagnose(healthy.setup, options), theirs = diagnose(on_cpu.setup, options);
    EXPECT_TRUE(ours.concerns.empty());
    ASSERT_EQ(ours.layers.size(), theirs.layers.size());
    for (std::size_t i = 0; i < ours.layers.size(); ++i) {
        const Tally &a = ours.layers[i].forward.all, &b = theirs.layers[i].forward.all;
        EXPECT_EQ(ours.layers[i].module, theirs.layers[i].module);
        EXPECT_EQ(a.values, b.values);
        EXPECT_NEAR(a.largest, b.largest, 1e-3 * b.largest) << ours.layers[i].module;
    }
    EXPECT_NEAR(ours.scale.recommended, theirs.scale.recommended, 1);
}

TEST_F(GpuSafety, TuneFindsTheOneBadLayerAmongFifty) {
    TuneOptions options;
    options.batches = 1;
    options.target.error = 0.5;
    for (const Fault fault : {Fault::forward_overflow, Fault::backward_overflow}) {
        FaultyRun run = faulty("32-true", fault, 17, 50);
        const Tuning t = tune(run.setup, options);
        EXPECT_TRUE(t.met);
        EXPECT_EQ(t.modules, std::vector<std::string>{layer_name(17) + ".linear"}) << "what of it multiplies";
    }
}

TEST_F(GpuSafety, MonitorsSeeWhatTheySeeOnTheCpu) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.model.as<MlpOptions>().hidden = {12, 9};
    config.model.set("dropout", "0");
    config.monitor.gradients_every_n_steps = 4;
    config.monitor.activations_every_n_steps = 5;
    config.exp_name = "cpu";
    const RunSummary there = train(config);
    for (const bool graph : {true, false}) {
        config = on_gpu(config);
        config.trainer.cuda_graph = graph;
        config.exp_name = graph ? "graphed" : "plain";
        const RunSummary here = train(config);
        for (const char* key : {"grad_norms", "activations"}) {
            const auto ours = lines_with(here.folder, key), theirs = lines_with(there.folder, key);
            ASSERT_EQ(ours.size(), theirs.size()) << key;
            for (std::size_t i = 0; i < ours.size(); ++i) {
                EXPECT_EQ(ours[i].at("step"), theirs[i].at("step"));
                ASSERT_EQ(ours[i].at(key).size(), theirs[i].at(key).size());
                for (const auto& [module, value] : theirs[i].at(key).items())
                    EXPECT_NEAR(number_of(ours[i].at(key).at(module)), number_of(value), 2e-2 * number_of(value))
                        << key << " of " << module;
            }
        }
    }
}

// The host is many steps ahead when it hears of it; the name still is that of the step.
TEST_F(GpuSafety, ASkippedStepNamesTheFirstBadGradient) {
    const ScratchFolder scratch;
    Config config = on_gpu(small_config(scratch.path()));
    config.trainer.precision = "16-mixed";
    config.scaler.init_scale = 0x1p30;
    const RunSummary run = train(config);
    EXPECT_GT(run.skipped, 0);
    const auto alerts = lines_with(run.folder, "alert");
    ASSERT_FALSE(alerts.empty());
    EXPECT_EQ(alerts[0].at("step"), 1);
    EXPECT_NE(std::string(alerts[0].at("message")).find("NaN or Inf"), std::string::npos) << alerts[0].dump();
    EXPECT_NE(std::string(alerts[0].at("message")).find(".weight"), std::string::npos) << alerts[0].dump();
}

TEST_F(GpuSafety, AScheduleRecordsItsStepsAnewAndChangesNoByte) {
    const ScratchFolder scratch;
    Config config = on_gpu(small_config(scratch.path()));
    config.trainer.max_epochs = 5;
    config.trainer.precision_schedule = {
        {false, 0, "32-true"}, {false, 12, "16-mixed"}, {true, 2, "bf16-mixed"}, {false, 35, "16-mixed"}};
    config.scaler.init_scale = 4096;
    config.exp_name = "graphed";
    Stopper observer;
    const RunSummary graphed = train(config, observer);
    ASSERT_EQ(observer.steps.size(), 50u);
    for (const StepMetrics& m : observer.steps)
        EXPECT_EQ(m.precision, m.step <= 12                  ? "32-true"
                               : m.step <= 20 || m.step > 35 ? "16-mixed"
                                                             : "bf16-mixed")
            << m.step;
    config.exp_name = "plain";
    config.trainer.cuda_graph = false;
    expect_same_weights(graphed.folder, train(config).folder);
}

TEST_F(GpuSafety, AnExpLossIsRecordedTooAndChangesNoByte) {
    const ScratchFolder scratch;
    Config config = on_gpu(small_config(scratch.path()));
    config.task.choose("exponential_loss", ClassificationOptions{.loss_weight = 0.5});
    config.trainer.precision = "bf16-mixed";
    config.exp_name = "graphed";
    const RunSummary graphed = train(config);
    config.exp_name = "plain";
    config.trainer.cuda_graph = false;
    expect_same_weights(graphed.folder, train(config).folder);
    EXPECT_TRUE(graphed.all_finite);
}

TEST_F(GpuSafety, ARecoveredRunEndsAsOneThatWasTrainedSoFromTheStart) {
    const ScratchFolder scratch;
    Config config = on_gpu(small_config(scratch.path()));
    config.trainer.max_epochs = 5;
    config.trainer.precision_schedule = {{false, 17, "16-mixed"}};
    config.trainer.checkpoint_every_n_steps = 5;
    config.trainer.on_instability = "recover";
    config.data.as<SyntheticOptions>().std = 1e-7;  // beyond FP16, not beyond BF16
    for (const bool graph : {true, false}) {
        config.trainer.cuda_graph = graph;
        config.exp_name = graph ? "graphed" : "plain";
        const RunSummary run = train(config);
        EXPECT_EQ(run.status, "finished");
        ASSERT_EQ(run.recoveries.size(), 1u);
        EXPECT_EQ(run.recoveries[0].failed_at, 18) << "the step itself, not the one that the host had got to";
        EXPECT_EQ(run.recoveries[0].back_to, 15);
        EXPECT_EQ(run.recoveries[0].to, "bf16-mixed");
        EXPECT_EQ(lines_with(run.folder, "loss").size(), 50u) << "each step once";
        Config direct = config;
        direct.exp_name += "_direct";
        direct.trainer.precision_schedule = {{false, 17, "bf16-mixed"}};
        expect_same_weights(run.folder, train(direct).folder);
    }
}

// What the diagnosis is given is the step that failed, with weights, batch and scale as they were before it.
TEST_F(GpuSafety, TheStepThatFailedWaitsForItsDiagnosis) {
    const ScratchFolder scratch;
    const Config config = on_gpu(out_of_range_config(scratch.path()));
    Trainer trainer(config);
    int asked = 0;
    trainer.set_diagnosis([&](invar::Setup& setup, const FailedStep& step) {
        ++asked;
        EXPECT_EQ(step.progress().step, kOutOfRangeStep - 1);
        EXPECT_EQ(setup.optimizer->state().taken, kOutOfRangeStep - 1);
        EXPECT_GT(range_of("batch", step.group.front()["x"]).largest, 65504);
        return explain(setup, step);
    });
    Stopper observer;
    const RunSummary run = trainer.fit(observer);
    EXPECT_EQ(asked, 1);
    ASSERT_EQ(run.recoveries.size(), 1u);
    EXPECT_EQ(run.recoveries[0].failed_at, kOutOfRangeStep);
    EXPECT_EQ(run.recoveries[0].remedy, Remedy::of_overrides({{"1", "32-true"}}));
    EXPECT_EQ(run.precision, "16-mixed");
    EXPECT_TRUE(run.all_finite);

    const Failure failure = load_failure(failure_folder(run.folder));
    invar::Setup again(parse_config(failure.config_yaml(), "failure"));
    const Finding finding = replay_failure(again, failure);
    ASSERT_TRUE(finding);
    EXPECT_EQ(finding.module, "1");
    EXPECT_EQ(finding.dtype, Dtype::f16);
}

TEST_F(GpuSafety, ValidationComesToAVerdict) {
    const ScratchFolder scratch;
    ValidateOptions options;
    options.base = on_gpu(small_config(scratch.path()));
    options.base.trainer.max_epochs = 6;
    options.base.data.as<SyntheticOptions>().size = 1000;
    options.candidates = {"16-mixed", "bf16-mixed"};
    options.seeds = 2;
    Observer nobody;
    const Validation v = validate(options, nobody);
    ASSERT_EQ(v.candidates.size(), 2u);
    for (const Arm& arm : v.candidates) {
        EXPECT_FALSE(arm.failed()) << arm.failure;
        EXPECT_TRUE(arm.equivalence.tested);
        EXPECT_NEAR(arm.metric, v.baseline.metric, 0.05);
        EXPECT_GT(arm.memory_of("activations"), 0);
    }
}

}  // namespace
}  // namespace invar::testing
