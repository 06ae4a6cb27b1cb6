// Faults planted in transformers: what breaks in FP16 is named as people write it.
#include <gtest/gtest.h>

#include <algorithm>

#include "invar/diagnose/diagnose.h"
#include "invar/diagnose/record_failure.h"
#include "invar/diagnose/tune.h"
#include "invar/io/safetensors.h"
#include "invar/models/language_model.h"
#include "invar/train/trainer.h"
#include "tests/diagnose/faults.h"
#include "tests/train/scratch_run.h"

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

// The same fault in weights that a run begins with.
TEST(LanguageFaults, ARunRecoversFromAttentionThatOverflowsByItsLayerAlone) {
    const ScratchFolder scratch;
    Config config = config_of("gpt");
    invar::Setup setup(config);
    multiply(setup, "h.1.attn.c_attn.weight", 3e5f);
    config.init_from = (scratch.path() / "planted.safetensors").string();
    save_safetensors(config.init_from, setup.model->state_dict());
    config.output_dir = scratch.path().string();
    config.trainer.precision = "16-mixed";
    config.trainer.on_instability = "recover";
    config.trainer.max_steps = 4;
    Trainer trainer(config);
    trainer.set_diagnosis(explain);
    Stopper nobody;
    const RunSummary run = trainer.fit(nobody);
    EXPECT_EQ(run.status, "finished");
    EXPECT_EQ(run.precision, "16-mixed") << "one module is enough";
    ASSERT_FALSE(run.recoveries.empty());
    for (const Recovery& recovery : run.recoveries) {
        ASSERT_EQ(recovery.remedy.kind, Remedy::Kind::precision_overrides) << recovery.remedy.str();
        for (const auto& [module, precision] : recovery.remedy.overrides)
            EXPECT_TRUE(module.starts_with("h.1.attn")) << module;
    }
}

// An embedding as a product, which runs in 16 bits. Forward as any other; what comes back is too small for FP16 on its
// way.
class FaintEmbedding : public Linear {
  public:
    FaintEmbedding() : Linear(23, 32, false) {}
    Tensor forward(const Tensor& tokens) override {
        return steep(steep(Linear::forward(ops::cast(ops::one_hot(tokens, 23), Dtype::f32)), 1e20), 1e-20);
    }
};

class FaintModel : public LanguageModel {
  public:
    FaintModel()
        : wte_(add<FaintEmbedding>("wte")),
          c_fc_(add<Linear>("c_fc", 32, 32)),
          lm_head_(add<Linear>("lm_head", 32, 23, false)) {}
    std::int64_t context() const override { return 16; }

  protected:
    Tensor hidden(const Tensor& tokens) override { return c_fc_(wte_(tokens)); }
    Tensor head() const override { return lm_head_.weight.value; }

  private:
    FaintEmbedding& wte_;
    Linear &c_fc_, &lm_head_;
};

TEST(LanguageFaults, AnEmbeddingWhoseGradientVanishesIsNamedAndKeptInFp32) {
    const auto planted = [] {
        auto setup = std::make_unique<invar::Setup>(config_of("gpt"));
        setup->optimizer.reset();
        setup->model = std::make_unique<FaintModel>();
        setup->optimizer = std::make_unique<Optimizer>(*setup->model, OptimizerSpec{.lr = 1e-5},
                                                       StoreOptions::for_precision(setup->precision));
        return setup;
    };
    const auto diagnosed = planted();
    const Diagnosis diagnosis = diagnose(*diagnosed, few_steps());
    EXPECT_FALSE(diagnosis.finding) << diagnosis.finding.text();
    ASSERT_EQ(diagnosis.concerns.size(), 1u);
    const Concern& concern = diagnosis.concerns[0];
    EXPECT_EQ(concern.kind, Concern::Kind::underflow);
    EXPECT_EQ(concern.direction, Direction::backward);
    EXPECT_EQ(concern.module, "wte") << concern.text;
    EXPECT_EQ(concern.remedy, Remedy::of_overrides({{"wte", "32-true"}}));
    const auto tuned = planted();
    TuneOptions options;
    options.batches = 1;
    EXPECT_EQ(tune(*tuned, options).modules, std::vector<std::string>{"wte"});
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
