#include "invar/diagnose/tune.h"

#include "invar/core/error.h"
#include "tests/diagnose/faults.h"

namespace invar {
namespace {

constexpr int kMany = 50;

TuneOptions options_for(const char* precision, int batches = 1) {
    TuneOptions options;
    options.candidate = Precision::parse(precision);
    options.batches = batches;
    options.target.error = 0.5;  // of fifty layers in 16 bits: rounding alone makes several percent
    return options;
}

// The layer, or the linear one inside it: what that gives to the rest of the layer is FP32 then as well.
bool is_of_layer(const std::string& module, int at) {
    return module == layer_name(at) || module == layer_name(at) + ".linear";
}

TEST(Tune, KeepsNothingInFp32WhereNothingNeedsIt) {
    FaultyRun run("32-true", Fault::none, 0);
    const Tuning t = tune(run.setup, options_for("16-mixed", 2));
    EXPECT_TRUE(t.met);
    EXPECT_TRUE(t.modules.empty());
    EXPECT_EQ(t.trials, 1);
    EXPECT_GT(t.before.cosine, 0.99);
}

TEST(Tune, FindsTheOneBadLayerAmongFiftyAndNoOther) {
    for (const Fault fault : {Fault::forward_overflow, Fault::underflow, Fault::backward_overflow})
        for (const int at : {1, 17, 50}) {
            FaultyRun run("32-true", fault, at, kMany);
            const Tuning t = tune(run.setup, options_for("16-mixed"));
            EXPECT_TRUE(t.met);
            ASSERT_EQ(t.modules.size(), 1u) << int(fault);
            EXPECT_TRUE(is_of_layer(t.modules[0], at)) << int(fault) << ": " << t.modules[0];
            EXPECT_FALSE(TuneTarget{}.met(t.before));
            EXPECT_LT(t.after.worst, 0.5);
            EXPECT_LT(t.trials, 60);
            EXPECT_EQ(t.overrides(), fmt::format("{{{}: 32-true}}", t.modules[0]));
        }
}

// The gradients of one layer are next to nothing: what rounding does to them does not matter, and costs no module.
TEST(Tune, DoesNotMindALayerWhoseGradientsDoNotCount) {
    FaultyRun run("32-true", Fault::none, 0);
    run.net->layer(1).gradient_factor = 1e-6;
    TuneOptions options = options_for("16-mixed", 2);
    options.scale = 1.0;  // so that they vanish
    options.target.error = 0.1;
    const Tuning t = tune(run.setup, options);
    EXPECT_TRUE(t.met);
    EXPECT_TRUE(t.modules.empty()) << t.overrides();
    EXPECT_LT(t.before.worst, 0.1) << t.before.worst_module;
}

TEST(Tune, TriesAScaleThatMovesBeforeItKeepsAModule) {
    for (const Scaling scaling : {Scaling::fixed, Scaling::off}) {
        const bool off = scaling == Scaling::off;
        FaultyRun run("32-true", off ? Fault::none : Fault::scale_overflow, off ? 0 : 2);
        TuneOptions options = options_for("16-mixed");
        options.scaling = scaling;
        options.scale = off ? 1.0 : 65536.0;
        if (off)
            options.loss = [](Module& model, const Batch& batch) {
                return ops::cross_entropy(model(batch["x"]), batch["y"]) * 1e-6;
            };
        const Tuning t = tune(run.setup, options);
        EXPECT_TRUE(t.met);
        EXPECT_TRUE(t.scaler) << off;
        EXPECT_TRUE(t.modules.empty()) << t.overrides();
        EXPECT_FALSE(options.target.met(t.before));
        const Config config = parse_config(t.yaml(), "test");
        EXPECT_TRUE(config.scaler.enabled && config.scaler.dynamic);
    }
}

TEST(Tune, LeavesAScalerAloneThatIsNotToBlame) {
    FaultyRun run("32-true", Fault::forward_overflow, 2);
    TuneOptions options = options_for("16-mixed");
    options.scaling = Scaling::fixed, options.scale = 1024;
    const Tuning t = tune(run.setup, options);
    EXPECT_FALSE(t.scaler);
    ASSERT_EQ(t.modules.size(), 1u);
    EXPECT_TRUE(is_of_layer(t.modules[0], 2)) << t.modules[0];
}

TEST(Tune, RefusesAModelThatFp32DoesNotSurvive) {
    FaultyRun run("32-true", Fault::none, 0);
    TuneOptions options = options_for("16-mixed");
    options.loss = [](Module& model, const Batch& batch) {
        const Tensor output = model(batch["x"]);
        const Tensor low = ops::cast(output, Dtype::f16);
        return ops::cross_entropy((low * 1e7) * 1e-7, batch["y"]);
    };
    EXPECT_THROW(tune(run.setup, options), Error);
}

TEST(Tune, LeavesWeightsAndPrecisionsAsTheyWere) {
    FaultyRun run("32-true", Fault::forward_overflow, 2);
    const auto weights = run.setup.optimizer->store().weights().to_vector<float>();
    (void)tune(run.setup, options_for("16-mixed"));
    EXPECT_EQ(run.setup.optimizer->store().weights().to_vector<float>(), weights);
    for (const auto& [path, module] : run.setup.model->modules()) EXPECT_FALSE(module->precision()) << path;
}

TEST(Tune, PrintsYamlThatTheConfigurationReads) {
    Tuning t;
    t.modules = {"layers.0", "3"};
    const Config config = parse_config(t.yaml(), "test");
    EXPECT_EQ(config.trainer.precision_overrides, (PrecisionOverrides{{"layers.0", "32-true"}, {"3", "32-true"}}));
}

}  // namespace
}  // namespace invar
