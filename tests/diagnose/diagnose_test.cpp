#include "invar/diagnose/diagnose.h"

#include <cmath>

#include "invar/core/error.h"
#include "invar/diagnose/concerns.h"
#include "invar/diagnose/lost_updates.h"
#include "tests/diagnose/faults.h"

namespace invar {
namespace {

DiagnoseOptions options_for(const char* precision, int steps = 4) {
    DiagnoseOptions options;
    options.candidate = Precision::parse(precision);
    options.format = options.candidate.compute_dtype();
    options.steps = steps;
    return options;
}

Diagnosis run_diagnosis(FaultyRun& run, const DiagnoseOptions& options) {
    return diagnose(run.setup, options);
}

const LayerPassages& layer_of(const Diagnosis& d, std::string_view module) {
    for (const LayerPassages& layer : d.layers)
        if (layer.module == module) return layer;
    ADD_FAILURE() << "no passages of " << module;
    return d.layers.front();
}

TEST(Diagnose, GivesNoAlarmOverTwentyHealthyRuns) {
    for (int seed = 0; seed < 20; ++seed) {
        FaultyRun run("32-true", Fault::none, 0);
        default_generator().set_state({std::uint64_t(seed), 0});
        for (Parameter* p : run.setup.model->parameters())
            kernels_for({}).uniform(p->value.view(), -0.3, 0.3, default_generator().reserve(4096));
        const Diagnosis d = run_diagnosis(run, options_for(seed % 2 == 0 ? "16-mixed" : "bf16-mixed", 5));
        EXPECT_FALSE(d.finding) << seed << "\n" << d.finding.text();
        for (const Concern& concern : d.concerns) ADD_FAILURE() << seed << " " << concern.text;
        EXPECT_EQ(d.steps, 5);
    }
}

TEST(Diagnose, FindsThePlantedOverflowInEveryLayer) {
    for (const Fault fault : {Fault::forward_overflow, Fault::backward_overflow})
        for (int at = 1; at <= kLayers; ++at) {
            FaultyRun run("32-true", fault, at);
            const Diagnosis d = run_diagnosis(run, options_for("16-mixed", 1));
            ASSERT_TRUE(d.finding);
            EXPECT_EQ(d.finding.module, layer_name(at));
            EXPECT_EQ(d.finding.direction, fault == Fault::forward_overflow ? Direction::forward : Direction::backward);
            EXPECT_EQ(d.finding.blame, Blame::precision);
            const LayerPassages& layer = layer_of(d, layer_name(at));
            const Tally& tally = fault == Fault::forward_overflow ? layer.forward.low : layer.backward.low;
            EXPECT_GT(tally.formats[0].overflow, 0);
        }
}

TEST(Diagnose, NamesTheLayerInWhichValuesOnlyVanish) {
    for (int at = 1; at <= kLayers; ++at) {
        FaultyRun run("32-true", Fault::underflow, at);
        const Diagnosis d = run_diagnosis(run, options_for("16-mixed", 2));
        EXPECT_FALSE(d.finding) << d.finding.text();
        ASSERT_FALSE(d.concerns.empty());
        EXPECT_EQ(d.concerns[0].kind, Concern::Kind::underflow);
        EXPECT_EQ(d.concerns[0].module, layer_name(at));
        EXPECT_EQ(d.concerns[0].direction, Direction::forward);
        EXPECT_EQ(d.concerns[0].remedy, Remedy::of_overrides({{layer_name(at), "32-true"}}));
    }
}

TEST(Diagnose, NamesTheLayerInWhichGradientsVanishAtAnyScale) {
    for (int at = 1; at <= kLayers; ++at) {
        FaultyRun run("32-true", Fault::gradient_underflow, at);
        const Diagnosis d = run_diagnosis(run, options_for("16-mixed", 2));
        for (const Concern& c : d.concerns) EXPECT_EQ(c.direction, Direction::backward) << c.text;
        ASSERT_EQ(d.concerns.size(), 1u);
        EXPECT_EQ(d.concerns[0].module, layer_name(at)) << d.concerns[0].text;
        EXPECT_EQ(d.concerns[0].direction, Direction::backward);
        EXPECT_FALSE(d.scale.exists());
    }
}

TEST(Diagnose, NamesTheOpThatLosesItsDigits) {
    FaultyRun run("32-true", Fault::none, 0);
    DiagnoseOptions options = options_for("bf16-mixed", 2);
    options.loss = [&](Module& model, const Batch& batch) {
        const Tensor h = model(batch["x"]);
        return ops::cross_entropy((h + 3000.0) - 3000.0, batch["y"]);
    };
    const Diagnosis d = run_diagnosis(run, options);
    ASSERT_EQ(d.concerns.size(), 1u);
    EXPECT_EQ(d.concerns[0].kind, Concern::Kind::significance) << d.concerns[0].text;
    EXPECT_EQ(d.concerns[0].module, "loss");
    const auto loss = std::ranges::find(d.significance, "loss", &Significance::module);
    ASSERT_NE(loss, d.significance.end());
    EXPECT_GT(loss->made, 0.3);
    EXPECT_LT(loss->given, 0.01);
}

TEST(Diagnose, NamesTheLayerThatASpikeStartsIn) {
    for (int at = 1; at <= kLayers; ++at) {
        FaultyRun run("32-true", Fault::none, 0);
        DiagnoseOptions options = options_for("bf16-mixed", 6);
        options.before_step = [&](int step, std::vector<Batch>&) {
            const Tensor weight = run.net->layer(at).linear.weight.value;
            if (step == 6)
                for (std::int64_t i = 0; i < weight.numel(); ++i) weight.data<float>()[i] *= 1000;
        };
        const Diagnosis d = run_diagnosis(run, options);
        ASSERT_EQ(d.concerns.size(), 1u);
        EXPECT_EQ(d.concerns[0].kind, Concern::Kind::spike);
        EXPECT_EQ(d.concerns[0].module, layer_name(at) + ".linear") << d.concerns[0].text;
        EXPECT_EQ(d.concerns[0].direction, Direction::forward);
        EXPECT_EQ(d.concerns[0].step, 6);
        EXPECT_FALSE(d.concerns[0].in_data);
    }
}

TEST(Diagnose, NamesTheLayerThatASpikeOfGradientsStartsIn) {
    for (int at = 1; at <= kLayers; ++at) {
        FaultyRun run("32-true", Fault::none, 0);
        DiagnoseOptions options = options_for("bf16-mixed", 6);
        // A factor that is there from the start, so that all steps have the same ops.
        options.before_step = [&](int step, std::vector<Batch>&) {
            run.net->layer(at).gradient_factor = step == 6 ? 1000.0 : 1.0 + 1e-6;
        };
        const Diagnosis d = run_diagnosis(run, options);
        ASSERT_EQ(d.concerns.size(), 1u) << at;
        EXPECT_EQ(d.concerns[0].kind, Concern::Kind::spike);
        EXPECT_EQ(d.concerns[0].direction, Direction::backward) << d.concerns[0].text;
        EXPECT_EQ(d.concerns[0].module, layer_name(at)) << d.concerns[0].text;
        EXPECT_EQ(d.concerns[0].step, 6);
        EXPECT_FALSE(d.concerns[0].in_data);
    }
}

TEST(Diagnose, TrainsOnTheFirstBatchesOfTheRun) {
    FaultyRun run("32-true", Fault::none, 0);
    DiagnoseOptions options = options_for("bf16-mixed", 1);
    options.before_step = [&](int, std::vector<Batch>& group) {
        for (const char* name : {"x", "y"})
            EXPECT_EQ(group[0][name].to_vector<double>(), run.group[0][name].to_vector<double>()) << name;
    };
    EXPECT_EQ(run_diagnosis(run, options).steps, 1);
}

TEST(Diagnose, SaysWhetherTheCandidateKeepsMasters) {
    for (const auto& [precision, masters] : {std::pair{"16-mixed", true}, {"bf16-mixed", true}, {"bf16-true", false}}) {
        FaultyRun run("32-true", Fault::none, 0);
        EXPECT_EQ(run_diagnosis(run, options_for(precision, 1)).masters, masters) << precision;
    }
}

TEST(SpikeWatch, NamesTheModuleWhoseValuesJumpFivefold) {
    const auto concerns_of = [](double values) {
        SpikeWatch watch;
        std::vector<LayerPassages> layers(2);
        layers[0].module = "layer1", layers[1].module = "layer2";
        layers[0].forward.all.largest = layers[1].forward.all.largest = 1;
        std::vector<Concern> concerns;
        for (int step = 0; step < 3; ++step) watch.observe({1, 1}, layers, {}, 0.1, concerns);
        layers[1].forward.all.largest = values;
        watch.observe({10, 1}, layers, {}, 0.1, concerns);
        return concerns;
    };
    const std::vector<Concern> jumped = concerns_of(5), stayed = concerns_of(3);
    ASSERT_EQ(jumped.size(), 1u);
    EXPECT_EQ(jumped[0].text, "step 4: the loss is 10 times its largest before; values jump first in layer2, forward");
    ASSERT_EQ(stayed.size(), 1u);
    EXPECT_EQ(stayed[0].text, "step 4: the loss is 10 times its largest before");
}

TEST(Diagnose, KeepsTheModuleThatLosesDigitsInFullPrecision) {
    const auto remedy_of = [](const std::string& module) {
        Diagnosis d;
        d.format = Dtype::bf16;
        d.significance = {{.module = module, .op = "sub", .given = 0.001, .made = 0.5}};
        add_significance_concern(d);
        EXPECT_EQ(d.concerns.size(), 1u) << module;
        return d.concerns.at(0).remedy;
    };
    EXPECT_EQ(remedy_of("layer1"), Remedy::of_overrides({{"layer1", "32-true"}}));
    EXPECT_EQ(remedy_of("loss"), Remedy()) << "no module to be told to";
    EXPECT_EQ(remedy_of(""), Remedy());
}

TEST(Diagnose, FindsTheOverflowInTheLoss) {
    FaultyRun run("32-true", Fault::none, 0);
    DiagnoseOptions options = options_for("16-mixed", 2);
    options.loss = [](Module& model, const Batch& batch) {
        const Tensor output = model(batch["x"]);
        return ops::cross_entropy(output * 1e7, batch["y"]);
    };
    const Diagnosis d = run_diagnosis(run, options);
    ASSERT_TRUE(d.finding);
    EXPECT_EQ(d.finding.module, "loss") << d.finding.text();
    EXPECT_EQ(d.finding.direction, Direction::forward);
    EXPECT_EQ(d.finding.blame, Blame::precision) << d.finding.text();
}

TEST(Diagnose, SaysSoWhereTheSpikeComesWithTheBatch) {
    FaultyRun run("32-true", Fault::none, 0);
    DiagnoseOptions options = options_for("bf16-mixed", 6);
    options.before_step = [&](int step, std::vector<Batch>& group) {
        if (step == 5) group[0].set("x", group[0]["x"] * 1000.0);
    };
    const Diagnosis d = run_diagnosis(run, options);
    ASSERT_FALSE(d.concerns.empty());
    EXPECT_EQ(d.concerns[0].step, 5);
    EXPECT_TRUE(d.concerns[0].in_data) << d.concerns[0].text;
}

TEST(Diagnose, BlamesTheModelThatDivergesInFp32) {
    FaultyRun run("32-true", Fault::none, 0, kLayers, 1e8);
    const Diagnosis d = run_diagnosis(run, options_for("16-mixed", 30));
    ASSERT_TRUE(d.finding);
    EXPECT_EQ(d.finding.blame, Blame::model) << d.finding.text();
    EXPECT_FALSE(d.finding.step_finite);
    EXPECT_EQ(d.finding.remedy.kind, Remedy::Kind::learning_rate);
    EXPECT_LT(d.steps, 30);
}

TEST(Diagnose, FindsNaNInTheData) {
    FaultyRun run("32-true", Fault::none, 0);
    DiagnoseOptions options = options_for("16-mixed", 4);
    options.before_step = [&](int step, std::vector<Batch>& group) {
        if (step == 3) group[0]["x"].data<float>()[7] = NAN;
    };
    const Diagnosis d = run_diagnosis(run, options);
    ASSERT_TRUE(d.finding);
    EXPECT_EQ(d.finding.blame, Blame::data);
    EXPECT_EQ(d.steps, 3);
}

TEST(Diagnose, LowersAScaleThatIsTooLargeWithoutMakingAFindingOfIt) {
    FaultyRun run("32-true", Fault::scale_overflow, 2);
    DiagnoseOptions options = options_for("16-mixed", 2);
    const Diagnosis d = run_diagnosis(run, options);
    EXPECT_FALSE(d.finding) << d.finding.text();
    EXPECT_GE(d.scale_drops, 1);
    EXPECT_LT(d.scale_survived, options.scale);
    EXPECT_LE(std::log2(d.scale_survived), d.scale.most + 1) << "tallies and replay disagree";
}

TEST(Diagnose, FindsAScaleThatIsTooLargeAndDoesNotMove) {
    FaultyRun run("32-true", Fault::scale_overflow, 2);
    DiagnoseOptions options = options_for("16-mixed", 3);
    options.scaling = Scaling::fixed;
    const Diagnosis d = run_diagnosis(run, options);
    ASSERT_TRUE(d.finding);
    EXPECT_EQ(d.finding.blame, Blame::loss_scale);
    EXPECT_EQ(d.finding.remedy.kind, Remedy::Kind::init_scale);
    EXPECT_TRUE(d.finding.verified);
    EXPECT_EQ(d.overflows, 3) << "every step";
    EXPECT_EQ(d.scale_drops, 0);
    EXPECT_EQ(d.scale_survived, options.scale) << "as it is in the run";
}

TEST(Diagnose, FindsGradientsThatVanishForWantOfAScale) {
    const auto concerns_at = [](Scaling scaling, double scale) {
        FaultyRun run("32-true", Fault::none, 0);
        DiagnoseOptions options = options_for("16-mixed", 2);
        options.scaling = scaling, options.scale = scale;
        options.loss = [](Module& model, const Batch& batch) {
            return ops::cross_entropy(model(batch["x"]), batch["y"]) * 1e-6;
        };
        return run_diagnosis(run, options).concerns;
    };
    EXPECT_TRUE(concerns_at(Scaling::moving, 65536).empty()) << "a scaler sees to it";
    const std::vector<Concern> off = concerns_at(Scaling::off, 1), fixed = concerns_at(Scaling::fixed, 2);
    ASSERT_EQ(off.size(), 1u);
    EXPECT_EQ(off[0].kind, Concern::Kind::underflow);
    EXPECT_EQ(off[0].direction, Direction::backward);
    EXPECT_NE(off[0].text.find("without a loss scale"), std::string::npos) << off[0].text;
    EXPECT_EQ(off[0].remedy, Remedy::of_scaling());
    EXPECT_EQ(off[0].remedy.str(), "scaler.enabled=true");
    EXPECT_EQ(Remedy::parse(off[0].remedy.str()), off[0].remedy);
    ASSERT_EQ(fixed.size(), 1u);
    EXPECT_NE(fixed[0].text.find("at the loss scale 2, which scaler.dynamic=false keeps"), std::string::npos);
    EXPECT_EQ(fixed[0].remedy.kind, Remedy::Kind::init_scale);
    EXPECT_GT(fixed[0].remedy.value, 65536);
}

// Half of the gradients are of pixels that a sigmoid has settled; all of them together are nothing.
TEST(Diagnose, DoesNotMindTheTailOfASigmoid) {
    Diagnosis d;
    d.format = Dtype::f16;
    const auto passage_of = [](const std::vector<std::vector<float>>& tensors) {
        Passage passage;
        const Dtype format = Dtype::f16;
        for (const std::vector<float>& values : tensors) {
            Tally tally(1);
            tally_values(Dtype::f32, values.data(), values.size(), std::span(&format, 1), tally);
            passage.add_low({passage.tensors.size(), "the result of it", tally});
        }
        return passage;
    };
    const float small = 1e-14f;
    EXPECT_FALSE(vanishes(d, passage_of({{1e-3f, 2e-3f, small, small}}), Direction::backward));
    EXPECT_TRUE(vanishes(d, passage_of({{1e-3f, 2e-3f}, {small, small}}), Direction::backward))
        << "a tensor of its own";
    std::vector<float> many(100000, 2e-8f);
    many.push_back(1e-3f);
    EXPECT_FALSE(vanishes(d, passage_of({{1e-3f, 2e-3f, 2e-8f, 2e-8f}}), Direction::backward));
    EXPECT_TRUE(vanishes(d, passage_of({many}), Direction::backward)) << "small, but most of it";
}

TEST(Diagnose, CountsOnlyWhatTheCandidateHoldsInItsFormat) {
    FaultyRun run("32-true", Fault::none, 0);
    const Diagnosis d = run_diagnosis(run, options_for("16-mixed", 1));
    EXPECT_GT(layer_of(d, "layer1.linear").forward.low.values, 0);
    EXPECT_GT(layer_of(d, "loss").forward.all.values, 0);
    // The logits of four classes, as they are, and nothing of the loss itself.
    const auto logits = 4 * run.group[0]["y"].numel();
    EXPECT_EQ(layer_of(d, "loss").forward.low.values, logits) << "the loss runs in FP32 under autocast";
    EXPECT_GT(layer_of(d, "loss").forward.all.values, logits);
    for (const LayerPassages& layer : d.layers)
        EXPECT_EQ(layer.forward.all.formats.size(), 1u) << "no format but the candidate's: " << layer.module;
}

TEST(ScaleRange, IsThatOfTheExponents) {
    Tally tally(1);
    const Dtype format = Dtype::f16;
    const std::vector<float> values = {0x1p-30f, 0x1p-10f, -0x1p-30f, 0.0f};
    tally_values(Dtype::f32, values.data(), values.size(), std::span(&format, 1), tally);
    const ScaleRange range = scale_range(tally, format);
    EXPECT_EQ(range.most, 25);  // 2^-10 * 2^25 = 32768; twice that is infinite
    EXPECT_EQ(range.least, 5);  // 2^-30 * 2^5 is half the smallest subnormal and next to surviving
    EXPECT_TRUE(range.exists());
    EXPECT_EQ(range.recommended, 22);
    EXPECT_EQ(range.vanishing, 0);
}

TEST(ScaleRange, KeepsOneOfAThousandFromVanishing) {
    const auto least = [](std::size_t others) {
        Tally tally(1);
        const Dtype format = Dtype::f16;
        std::vector<float> values(others, 0x1p-10f);
        values.push_back(0x1p-30f);
        tally_values(Dtype::f32, values.data(), values.size(), std::span(&format, 1), tally);
        return scale_range(tally, format).least;
    };
    EXPECT_EQ(least(999), 5) << "0.1% is not few";
    EXPECT_EQ(least(1000), -15) << "less is";
}

TEST(LostUpdates, AreThoseThatRoundBackToTheWeight) {
    struct One : Module {
        One() : w(add_parameter("w", Tensor::from<float>({1.0f, 1.0f, 0.0f, 1.0f}, {4}))) {}
        Tensor forward(const Tensor& x) override { return x; }
        Parameter& w;
    } model;
    Optimizer optimizer(model, {.kind = OptimizerSpec::Kind::sgd, .lr = 1.0f});
    std::vector<LostUpdates> totals;
    const UpdateWatch watch(optimizer, Dtype::bf16);
    float* w = model.w.value.data<float>();
    w[0] += 0x1p-9f;  // less than half a unit of the last place
    w[1] += 0x1p-6f;
    w[2] += 1e-20f;  // next to zero there is always room
    watch.add_to(totals);
    ASSERT_EQ(totals.size(), 1u);
    EXPECT_EQ(totals[0].parameter, "w");
    EXPECT_EQ(totals[0].updates, 3);
    EXPECT_EQ(totals[0].lost, 1);
}

TEST(DiagnoseOptions, FollowTheConfigurationUnlessToldOtherwise) {
    Config config = faulty_config("bf16-mixed");
    EXPECT_EQ(diagnose_options(config, "").format, Dtype::bf16);
    EXPECT_EQ(config.trainer.precision, "32-true");
    EXPECT_EQ(diagnose_options(config, "").format, Dtype::f16);  // of an FP32 run
    const DiagnoseOptions eight = diagnose_options(config, "e4m3");
    EXPECT_EQ(eight.format, Dtype::f8e4m3);
    EXPECT_FALSE(eight.replays);
    EXPECT_THROW(diagnose_options(config, "fp16,bf16"), UsageError);
}

}  // namespace
}  // namespace invar
