// Plans for an H200 against what was measured on one (docs/BENCHMARKS.md): memory within 5%, time within 15%. And for
// H100s against what LLM.Q's authors publish, within 20%.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "invar/plan/plan.h"
#include "invar/tasks/registry.h"
#include "invar/train/bench.h"
#include "tests/plan/configs.h"

namespace invar {
namespace {

struct Measured {
    std::string name, precision;
    double gibibytes, milliseconds;  // 0: not measured
    std::string experiment;
    std::vector<std::string> overrides;
};
void PrintTo(const Measured& m, std::ostream* out) {
    *out << m.name;
}

std::vector<std::string> operator+(std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

const std::vector<std::string> kText = {"data=chains", "trainer.deterministic=false"};
const std::vector<std::string> kLight = kText + std::vector<std::string>{"trainer.recompute=light"};
const std::vector<std::string> kGpt2 = {"model.layers=12",       "model.heads=12",   "model.width=768",
                                        "data.vocabulary=50304", "data.length=1024", "data.batch_size=32"};
const std::vector<std::string> kLarge = {"model.layers=36",       "model.heads=20",   "model.width=1280",
                                         "data.vocabulary=50304", "data.length=1024", "data.batch_size=8"};
const std::vector<std::string> kTinyLlama = {
    "model=llama",       "model.layers=22",  "model.heads=32",        "model.kv_heads=4", "model.width=2048",
    "model.hidden=5632", "model.tied=false", "data.vocabulary=32000", "data.length=2048", "data.batch_size=8"};
const std::vector<std::string> kQwen = {"model=llama",
                                        "model.layers=24",
                                        "model.heads=14",
                                        "model.kv_heads=2",
                                        "model.width=896",
                                        "model.hidden=4864",
                                        "model.attention_bias=true",
                                        "data.vocabulary=151936",
                                        "data.length=1024",
                                        "data.batch_size=32"};
const std::vector<std::string> kImages = {"data=synthetic",
                                          "data.channels=3",
                                          "data.height=224",
                                          "data.width=224",
                                          "data.classes=1000",
                                          "optimizer=adamw",
                                          "trainer.gradient_clip_val=1.0",
                                          "trainer.deterministic=false"};
const std::vector<std::string> kConvNet = {"data=synthetic", "optimizer=adamw", "trainer.gradient_clip_val=1.0",
                                           "trainer.deterministic=false"};

class OnAnH200 : public testing::TestWithParam<Measured> {};

TEST_P(OnAnH200, APlanIsWhatWasMeasured) {
    const Measured& m = GetParam();
    const Config config = with_made_up_data(in_precision(config_of(m.experiment, m.overrides), m.precision));
    const std::optional<CountedStep> step =
        count_step(make_task(config), config, config.data.batch_size, {.device = Device::cuda()});
    ASSERT_TRUE(step);
    if (m.gibibytes > 0) {
        EXPECT_NEAR(double(step->step.peak_total) / double(1 << 30) / m.gibibytes, 1, 0.05);
    }
    const double milliseconds = 1e3 * time_of_rank(*step, {}, card_named("h200")).total();
    EXPECT_NEAR(milliseconds / m.milliseconds, 1, 0.15);
    RecordProperty("planned", fmt::format("{}, {}: {:.3g} GiB, {:.4g} ms", m.name, m.precision,
                                          double(step->step.peak_total) / double(1 << 30), milliseconds));
}

INSTANTIATE_TEST_SUITE_P(
    BuiltIn, OnAnH200,
    testing::Values(
        Measured{"GPT-2 124M, light", "bf16-mixed", 9.7, 59.7, "gpt", kLight + kGpt2},
        Measured{"GPT-2 124M, none", "bf16-mixed", 13.0, 58.4, "gpt", kText + kGpt2},
        Measured{"GPT-2 774M, light", "bf16-mixed", 21.9, 89.2, "gpt", kLight + kLarge},
        Measured{"TinyLlama, light", "bf16-mixed", 35.6, 217.4, "gpt", kLight + kTinyLlama},
        Measured{"TinyLlama, light, deterministic", "bf16-mixed", 35.6, 244.9, "gpt",
                 kLight + kTinyLlama + std::vector<std::string>{"trainer.deterministic=true"}},
        Measured{"TinyLlama, block", "bf16-mixed", 24.2, 266.4, "gpt",
                 kText + kTinyLlama + std::vector<std::string>{"trainer.recompute=block"}},
        Measured{"Qwen2.5-0.5B, light", "bf16-mixed", 32.9, 210.4, "gpt", kLight + kQwen},
        Measured{"ViT-B, light", "bf16-mixed", 7.2, 34.6, "",
                 kImages + std::vector<std::string>{"model=vit_b", "data.batch_size=128", "trainer.recompute=light"}},
        Measured{"ViT-B, none", "bf16-mixed", 9.7, 33.2, "",
                 kImages + std::vector<std::string>{"model=vit_b", "data.batch_size=128"}},
        Measured{"ResNet-50", "16-mixed", 10.5, 32.7, "",
                 kImages + std::vector<std::string>{"model=resnet50", "data.batch_size=256", "data.size=256"}},
        Measured{"ResNet-18", "16-mixed", 1.4, 6.41, "",
                 kImages + std::vector<std::string>{"model=resnet18", "model.stem=cifar", "data.height=32",
                                                    "data.width=32", "data.classes=10", "data.batch_size=512"}},
        Measured{"DBNet",
                 "16-mixed",
                 3.5,
                 15.75,
                 "dbnet",
                 {"data.size=640", "data.batch_size=16", "data.scenes=64", "data.val_scenes=16", "optimizer=adamw",
                  "trainer.gradient_clip_val=1.0", "trainer.deterministic=false"}},
        Measured{"ConvNet, 4096", "16-mixed", 0.730, 1.63, "",
                 kConvNet + std::vector<std::string>{"data.batch_size=4096"}},
        Measured{"ConvNet, 4096", "tf32", 2.2, 5.84, "", kConvNet + std::vector<std::string>{"data.batch_size=4096"}},
        Measured{"ConvNet, 4096", "32-true", 2.2, 15.4, "",
                 kConvNet + std::vector<std::string>{"data.batch_size=4096"}},
        Measured{"ConvNet, 128", "16-mixed", 0, 0.187, "", kConvNet},
        Measured{"ConvNet, 128", "tf32", 0, 0.361, "", kConvNet},
        Measured{"ConvNet, 128", "32-true", 0, 0.562, "", kConvNet},
        Measured{"ConvNet, 128, deterministic", "32-true", 0, 0.739, "",
                 kConvNet + std::vector<std::string>{"trainer.deterministic=true"}},
        Measured{"MLP", "16-mixed", 0, 0.055, "",
                 kConvNet + std::vector<std::string>{"model=mlp", "model.hidden=[512]", "data.batch_size=32"}}));

TEST(OnH100s, APlanIsWithinTwentyPercentOfWhatIsPublished) {
    const Config config = with_made_up_data(in_precision(config_of("gpt", kLight + kQwen), "bf16-mixed"));
    const auto tokens_per_s = [&](int count) {
        const Ranks ranks{count, Strategy::zero1};
        const CountedStep step = count_step(make_task(config), config, 32, {Device::cuda(), 0, nullptr, ranks}).value();
        return count * 32 * 1024 / time_of_rank(step, ranks, card_named("h100")).total();
    };
    EXPECT_NEAR(tokens_per_s(1) / 149e3, 1, 0.2);
    EXPECT_NEAR(tokens_per_s(8) / 1.15e6, 1, 0.2);
}

}  // namespace
}  // namespace invar
