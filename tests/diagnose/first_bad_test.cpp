#include <cmath>
#include <cstring>
#include <limits>

#include "invar/core/error.h"
#include "invar/diagnose/find_first_bad.h"
#include "invar/diagnose/finding.h"
#include "invar/diagnose/record_failure.h"
#include "invar/train/step.h"
#include "tests/diagnose/faults.h"
#include "tests/train/scratch_run.h"

namespace invar {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

Finding find(FaultyRun& run, double scale = 1.0, const LossFunction& loss = {}) {
    return find_first_bad(run.setup, run.group, run.rng, scale, loss);
}

TEST(FindFirstBad, HasNothingToSayOfAHealthyStep) {
    for (const char* precision : {"32-true", "16-mixed", "bf16-mixed", "16-true"}) {
        FaultyRun run(precision, Fault::none, 0);
        EXPECT_FALSE(find(run, 1024)) << precision << "\n" << find(run, 1024).text();
    }
}

TEST(FindFirstBad, NamesTheLayerWhoseForwardOverflows) {
    for (int at = 1; at <= kLayers; ++at) {
        FaultyRun run("16-mixed", Fault::forward_overflow, at);
        const Finding f = find(run, 1024);
        ASSERT_TRUE(f);
        EXPECT_EQ(f.module, layer_name(at));
        EXPECT_EQ(f.op, "affine");
        EXPECT_EQ(f.direction, Direction::forward);
        EXPECT_EQ(f.dtype, Dtype::f16);
        EXPECT_EQ(f.blame, Blame::precision) << f.text();
        EXPECT_TRUE(f.op_finite && f.step_finite);
        EXPECT_GT(f.op_largest, 65504);
        EXPECT_NE(f.explanation.find(fmt::format("gives at most {:.6g} ", f.op_largest)), std::string::npos)
            << "65535 must not read as a number that FP16 could hold: " << f.explanation;
        ASSERT_EQ(f.inputs.size(), 1u);
        EXPECT_TRUE(f.inputs[0].finite());
        EXPECT_EQ(f.remedy.str(), "trainer.precision_overrides={" + layer_name(at) + ": 32-true}");
        EXPECT_TRUE(f.verified);
    }
}

TEST(FindFirstBad, NamesTheLayerWhoseBackwardOverflows) {
    for (int at = 1; at <= kLayers; ++at) {
        FaultyRun run("16-mixed", Fault::backward_overflow, at);
        const Finding f = find(run, 1.0);
        ASSERT_TRUE(f);
        EXPECT_EQ(f.module, layer_name(at));
        EXPECT_EQ(f.op, "steep");
        EXPECT_EQ(f.direction, Direction::backward);
        EXPECT_EQ(f.blame, Blame::precision) << f.text();
        EXPECT_TRUE(f.op_finite && f.step_finite);
        EXPECT_EQ(f.inputs.back().what, "incoming gradient");
        EXPECT_EQ(f.remedy.str(), "trainer.precision_overrides={" + layer_name(at) + ": 32-true}");
    }
}

TEST(FindFirstBad, BlamesTheLossScaleWhereASmallerOneServes) {
    for (int at = 1; at <= kLayers; ++at) {
        FaultyRun run("16-mixed", Fault::scale_overflow, at);
        const Finding f = find(run, 65536);
        ASSERT_TRUE(f);
        EXPECT_EQ(f.module, layer_name(at));
        EXPECT_EQ(f.direction, Direction::backward);
        EXPECT_EQ(f.blame, Blame::loss_scale) << f.text();
        ASSERT_EQ(f.remedy.kind, Remedy::Kind::init_scale) << f.remedy.str();
        const double scale = f.remedy.value;
        EXPECT_LT(scale, 65536);
        EXPECT_FALSE(find(run, scale));
        EXPECT_TRUE(find(run, 4 * scale)) << "the scale is smaller than it need be";
    }
}

TEST(FindFirstBad, BlamesAScaleThatTheLossItselfOverflowsAt) {
    FaultyRun run("16-mixed", Fault::gradient_underflow, 2);  // whose gradients would bear any scale
    const Finding f = find(run, 0x1p127, [](Module& model, const Batch& batch) {
        const Tensor output = model(batch["x"]);
        return ops::cross_entropy(output, batch["y"]) * 16.0;
    });
    ASSERT_TRUE(f);
    EXPECT_EQ(f.module, "loss scale");
    EXPECT_EQ(f.direction, Direction::forward);
    EXPECT_EQ(f.blame, Blame::loss_scale) << f.text();
    EXPECT_EQ(f.remedy.kind, Remedy::Kind::init_scale) << f.remedy.str();
}

TEST(FindFirstBad, NamesTheLossAndARemedyThatDoesNotNeedAModule) {
    FaultyRun run("16-mixed", Fault::none, 0);
    const LossFunction steep_loss = [](Module& model, const Batch& batch) {
        const Tensor output = model(batch["x"]);
        return ops::cross_entropy(output * 1e7, batch["y"]);
    };
    const Finding f = find(run, 1.0, steep_loss);
    ASSERT_TRUE(f);
    EXPECT_EQ(f.module, "loss");
    EXPECT_EQ(f.direction, Direction::forward);
    EXPECT_EQ(f.blame, Blame::precision) << f.text();
    EXPECT_EQ(f.remedy, Remedy::of_precision("bf16-mixed"));
    EXPECT_TRUE(f.verified);
}

// A run replays its own loss, not the usual one.
TEST(FindFirstBad, LooksIntoTheLossThatTheRunIsConfiguredWith) {
    FaultyRun run("bf16-mixed", Fault::none, 0);
    EXPECT_FALSE(find(run));
    const Tensor bias = run.net->layer(kLayers).linear.bias->value;
    bias.data<float>()[0] = 200;  // exp of it is beyond FP32
    run.setup.optimizer->store().refresh_shadow();
    EXPECT_FALSE(find(run)) << "cross-entropy bears it";
    run.setup.loss = [](Module& model, const Batch& batch) {
        const Tensor logits = model(batch["x"]);
        return ops::mean(ops::sum(ops::exp(logits - ops::gather(logits, -1, ops::unsqueeze(batch["y"], -1))), {-1}));
    };
    const Finding f = find(run);
    ASSERT_TRUE(f);
    EXPECT_EQ(f.module, "loss");
    EXPECT_EQ(f.op, "exp");
    EXPECT_EQ(f.blame, Blame::model) << f.text();
}

TEST(FindFirstBad, NamesTheSampleThatIsNotFinite) {
    for (const char* precision : {"32-true", "16-mixed"})
        for (const float bad : {kNaN, std::numeric_limits<float>::infinity()}) {
            FaultyRun run(precision, Fault::none, 0);
            run.group[0]["x"].data<float>()[5 * 16 + 3] = bad;
            const Finding f = find(run);
            ASSERT_TRUE(f);
            EXPECT_EQ(f.blame, Blame::data) << f.text();
            EXPECT_NE(f.explanation.find("sample 5 of the batch"), std::string::npos) << f.explanation;
            EXPECT_EQ(f.direction, Direction::forward);
        }
}

TEST(FindFirstBad, FindsWhereValuesVanishedBeforeTheyWereDividedBy) {
    for (int at = 1; at <= kLayers; ++at) {
        FaultyRun run("16-mixed", Fault::vanished_divisor, at);
        const Finding f = find(run);
        ASSERT_TRUE(f);
        EXPECT_EQ(f.module, layer_name(at));
        EXPECT_EQ(f.op, "div");
        EXPECT_EQ(f.blame, Blame::precision) << f.text();
        EXPECT_FALSE(f.op_finite);
        EXPECT_TRUE(f.step_finite);
        EXPECT_NE(f.explanation.find("values vanish first at affine in " + layer_name(at)), std::string::npos)
            << f.explanation;
        EXPECT_EQ(f.remedy.str(), "trainer.precision_overrides={" + layer_name(at) + ": 32-true}");
    }
}

TEST(FindFirstBad, BlamesTheModelThatFp32DoesNotSurviveEither) {
    for (const char* precision : {"32-true", "16-mixed", "bf16-mixed"})
        for (int at = 1; at <= kLayers; ++at) {
            FaultyRun run(precision, Fault::none, 0);
            const Tensor weight = run.net->layer(at).linear.weight.value;
            for (std::int64_t i = 0; i < weight.numel(); ++i) weight.data<float>()[i] = 3e38f;
            run.setup.optimizer->store().refresh_shadow();
            const Finding f = find(run);
            ASSERT_TRUE(f) << precision << " " << at;
            EXPECT_EQ(f.module, layer_name(at) + ".linear") << precision << f.text();
            EXPECT_EQ(f.direction, Direction::forward);
            EXPECT_EQ(f.blame, Blame::model) << f.text();
            EXPECT_EQ(f.remedy.str(), "optimizer.lr=0.001");
            EXPECT_FALSE(f.verified);
        }
}

TEST(FindFirstBad, NamesTheDirectionOfWhatNoPrecisionSurvives) {
    for (const char* precision : {"32-true", "bf16-mixed"})
        for (const Fault fault : {Fault::hopeless_forward, Fault::hopeless_backward})
            for (int at = 1; at <= kLayers; ++at) {
                FaultyRun run(precision, fault, at);
                const Finding f = find(run);
                ASSERT_TRUE(f) << precision << " " << at;
                EXPECT_EQ(f.module, layer_name(at)) << f.text();
                EXPECT_EQ(f.direction, fault == Fault::hopeless_forward ? Direction::forward : Direction::backward);
                EXPECT_EQ(f.blame, Blame::model) << f.text();
                EXPECT_FALSE(f.step_finite);
            }
}

TEST(FindFirstBad, LooksThroughAllBatchesOfAStep) {
    for (const std::size_t bad : {0u, 1u}) {
        FaultyRun run("16-mixed", Fault::none, 0);
        run.group.push_back(*run.setup.train_data->next());
        EXPECT_FALSE(find(run));
        run.group[bad]["x"].data<float>()[2 * 16] = kNaN;
        const Finding f = find(run);
        ASSERT_TRUE(f);
        EXPECT_EQ(f.blame, Blame::data) << f.text();
        EXPECT_NE(f.explanation.find(fmt::format("sample 2 of batch {} of the step", bad)), std::string::npos)
            << f.explanation;
    }
    FaultyRun run("16-mixed", Fault::none, 0);
    run.group.push_back(*run.setup.train_data->next());
    run.group[1].set("x", run.group[1]["x"] * 1e7);  // finite, and beyond FP16 in the second batch alone
    const Finding f = find(run);
    ASSERT_TRUE(f);
    EXPECT_EQ(f.module, "layer1.linear") << f.text();
    EXPECT_EQ(f.blame, Blame::precision) << f.text();
}

TEST(FindFirstBad, TellsAWeightThatOnlyItsCopyCannotHold) {
    FaultyRun run("16-mixed", Fault::none, 0);
    run.net->layer(2).linear.weight.value.data<float>()[0] = 1e6f;
    run.setup.optimizer->store().refresh_shadow();
    const Finding f = find(run);
    ASSERT_TRUE(f);
    EXPECT_EQ(f.module, "layer2.linear");
    EXPECT_EQ(f.blame, Blame::precision) << f.text();
    EXPECT_TRUE(f.op_finite);
    EXPECT_NE(f.text().find("layer2.linear.weight (16-bit copy)"), std::string::npos) << f.text();
}

// One module in FP32 does not serve: then those that fail by themselves, not whatever holds them all.
TEST(FindFirstBad, NamesEachModuleThatFailsWhereOneIsNotEnough) {
    FaultyRun run("16-mixed", Fault::none, 0);
    run.net->layer(1).linear.bias->value.data<float>()[0] = 1e6f;
    const Tensor second = run.net->layer(2).linear.weight.value;
    kernels_for({}).unary(UnaryOp::Affine, second.view(), second.view(), {1e-6, 0});
    run.setup.optimizer->store().refresh_shadow();
    const Finding f = find(run);
    ASSERT_TRUE(f);
    EXPECT_EQ(f.module, "layer1.linear");
    EXPECT_EQ(f.blame, Blame::precision) << f.text();
    EXPECT_EQ(f.remedy.str(), "trainer.precision_overrides={layer1.linear: 32-true, layer2.linear: 32-true}");
    EXPECT_TRUE(f.verified);
}

TEST(FindFirstBad, AddsUpASumOfGradientsInFp32) {
    FaultyRun run("16-mixed", Fault::none, 0);
    const LossFunction branches = [](Module& model, const Batch& batch) {
        const Tensor shared = model(batch["x"]) * 1e-3;
        return ops::sum(ops::cast(shared * 4e4, Dtype::f32)) + ops::sum(ops::cast(shared * 4e4, Dtype::f32));
    };
    const Finding f = find(run, 1.0, branches);
    ASSERT_TRUE(f);
    EXPECT_EQ(f.op, "sum of gradients");
    EXPECT_EQ(f.dtype, Dtype::f16);
    EXPECT_TRUE(f.op_finite && f.step_finite) << f.in_fp32();
    EXPECT_EQ(f.in_fp32(), "in FP32: this operation is finite, the whole step is finite");
    EXPECT_EQ(f.op_largest, 80000);
    ASSERT_EQ(f.inputs.size(), 2u);
    for (const Range& part : f.inputs) EXPECT_EQ(part.largest, 40000);
    EXPECT_EQ(f.blame, Blame::precision) << f.text();
    EXPECT_NE(f.explanation.find("gives at most 80000 "), std::string::npos) << f.explanation;
}

TEST(FindFirstBad, SaysOnWhichInputsFp32FailsWhereTheWholeStepIsFinite) {
    FaultyRun run("16-mixed", Fault::vanished_divisor, 2);
    EXPECT_EQ(find(run).in_fp32(),
              "in FP32: this operation is not finite on the same inputs, the whole step is finite");
}

TEST(FindFirstBad, TellsWeightsThatWereSpoiltBefore) {
    for (int at = 1; at <= kLayers; ++at) {
        FaultyRun run("32-true", Fault::none, 0);
        run.net->layer(at).linear.weight.value.data<float>()[1] = kNaN;
        const Finding f = find(run);
        ASSERT_TRUE(f);
        EXPECT_EQ(f.module, layer_name(at) + ".linear");
        EXPECT_EQ(f.blame, Blame::weights);
        EXPECT_NE(f.explanation.find(layer_name(at) + ".linear.weight"), std::string::npos);
    }
}

TEST(FindFirstBad, SeesIntoCheckpointedRegions) {
    for (const Fault fault : {Fault::forward_overflow, Fault::backward_overflow}) {
        FaultyRun run("16-mixed", fault, 2);
        const Finding plain = find(run);
        for (int i = 1; i <= kLayers; ++i) run.net->layer(i).set_recompute(Recompute::block);
        const Finding f = find(run);
        ASSERT_TRUE(f);
        EXPECT_EQ(f.text(), plain.text());
    }
}

TEST(FindFirstBad, LeavesWeightsPrecisionsAndRandomNumbersAsTheyWere) {
    FaultyRun run("16-mixed", Fault::forward_overflow, 2);
    const auto weights = run.setup.optimizer->store().weights().to_vector<float>();
    default_generator().set_state({5, 9});
    ASSERT_TRUE(find(run));
    EXPECT_EQ(run.setup.optimizer->store().weights().to_vector<float>(), weights);
    EXPECT_EQ(default_generator().state(), (RngState{5, 9}));
    for (const auto& [path, module] : run.setup.model->modules()) EXPECT_FALSE(module->precision()) << path;
}

TEST(Failure, IsFoundAgainInAnotherProcessFromItsFolder) {
    const ScratchFolder scratch;
    const std::filesystem::path folder = failure_folder(scratch.path());
    FaultyRun run("16-mixed", Fault::backward_overflow, 3);
    EXPECT_FALSE(has_failure(scratch.path()));
    FailedStep step{scratch.path(), run.config, run.group, {}};
    step.found.at.before = {12, 1, 4}, step.found.at.rng = run.rng, step.found.at.scale_before = 256;
    const Finding now = record_failure(run.setup, step);
    EXPECT_EQ(one_line(now), "steep in layer3, backward, gave Inf in f16; the precision is to blame");
    EXPECT_TRUE(has_failure(scratch.path()));

    FaultyRun later("16-mixed", Fault::backward_overflow, 3);
    later.net->layer(1).linear.weight.value.data<float>()[0] = 99;
    const Failure failure = load_failure(folder);
    EXPECT_EQ(failure.progress.step, 12);
    EXPECT_EQ(failure.scale, 256);
    EXPECT_EQ(parse_config(failure.config_yaml(), "failure"), run.config);
    const Finding again = replay_failure(later.setup, failure);
    EXPECT_EQ(again.text(), now.text());
    EXPECT_EQ(again.json().text(), now.json().text());
}

TEST(Failure, SaysWhatItsFolderLacks) {
    const ScratchFolder scratch;
    EXPECT_THROW(load_failure(scratch.path()), IoError);
}

}  // namespace
}  // namespace invar
