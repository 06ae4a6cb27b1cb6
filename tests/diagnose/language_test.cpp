// Faults planted in transformers: what breaks in FP16 is named as people write it.
#include <gtest/gtest.h>

#include "invar/diagnose/diagnose.h"
#include "invar/diagnose/tune.h"

namespace invar {
namespace {

Config config_of(const char* model) {
    Config config;
    config.seed = 3;
    config.task.choose("language");
    config.model.choose(model).set("layers", "3").set("heads", "2").set("width", "32");
    config.data.choose("chains").set("size", "64").set("length", "16").set("vocabulary", "23");
    config.data.batch_size = 4;
    config.data.num_workers = 0;
    config.trainer.threads = 1;
    config.trainer.device = "cpu";
    config.optimizer.lr = 1e-5;
    return config;
}

void multiply(Setup& setup, const std::string& name, float factor) {
    for (const Parameter* parameter : setup.model->parameters()) {
        if (parameter->name != name) continue;
        float* const values = parameter->value.data<float>();
        for (std::int64_t i = 0; i < parameter->value.numel(); ++i) values[i] *= factor;
        parameter->value.bump_version();
        return;
    }
    FAIL() << "there is no " << name;
}

DiagnoseOptions few_steps() {
    DiagnoseOptions options;
    options.steps = 3;
    return options;
}

TEST(LanguageFaults, AttentionThatOverflowsIsFoundInItsLayerAndKeptInFp32) {
    const auto planted = [] {
        auto setup = std::make_unique<invar::Setup>(config_of("gpt"));
        multiply(*setup, "h.1.attn.c_attn.weight", 3e5f);
        return setup;
    };
    const auto diagnosed = planted();
    const Diagnosis diagnosis = diagnose(*diagnosed, few_steps());
    ASSERT_TRUE(bool(diagnosis.finding));
    EXPECT_EQ(diagnosis.finding.module, "h.1.attn.c_attn");
    EXPECT_EQ(diagnosis.finding.op, "linear");
    const auto tuned = planted();
    TuneOptions options;
    options.batches = 1;
    options.target.error = 0.5;
    const Tuning tuning = tune(*tuned, options);
    EXPECT_TRUE(tuning.met);
    ASSERT_FALSE(tuning.modules.empty());
    for (const std::string& module : tuning.modules) EXPECT_TRUE(module.starts_with("h.1")) << module;
}

// A row of zeros has no size to be divided by but epsilon's root, and its gradient grows by that.
TEST(LanguageFaults, ANormWithoutEpsilonIsFoundWhereItsGradientOverflows) {
    Config config = config_of("llama");
    config.model.set("eps", "1e-30").set("tied", "false");
    invar::Setup setup(config);
    multiply(setup, "model.embed_tokens.weight", 0.0f);
    const Diagnosis diagnosis = diagnose(setup, few_steps());
    ASSERT_TRUE(bool(diagnosis.finding));
    EXPECT_EQ(diagnosis.finding.op, "rms_norm");
    EXPECT_EQ(diagnosis.finding.module, "model.layers.0.input_layernorm");  // the stream behind it is FP32
}

}  // namespace
}  // namespace invar
