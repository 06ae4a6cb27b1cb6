// Plans against the card at hand: a step that is counted holds what `invar bench` measures on it, within 5%, and takes
// what it takes, within 15%.
#include "invar/plan/plan.h"

#include "invar/plan/measured_convolutions.h"
#include "invar/scene/fonts.h"
#include "invar/tasks/registry.h"
#include "invar/train/bench.h"
#include "tests/gpu/fixture.h"

namespace invar {
namespace {

struct Case {
    std::string name;
    std::vector<std::string> words;
    std::vector<std::string> precisions = {"bf16-mixed"};
    bool deterministic = false;
};
void PrintTo(const Case& c, std::ostream* out) {
    *out << c.name;
}

class GpuPlan : public testing::OnGpu<::testing::TestWithParam<Case>> {};

TEST_P(GpuPlan, IsWhatBenchMeasuresHere) {
    if (GetParam().name == "DBNet") {
        try {
            (void)scene::FontSet::train();
        } catch (const Error& error) {
            GTEST_SKIP() << "its scenes need fonts: " << error.what();
        }
    }
    BenchOptions options;
    std::vector<std::string> words = GetParam().words;
    words.emplace_back("trainer.device=cuda");
    words.emplace_back("optimizer=adamw");
    words.emplace_back(fmt::format("trainer.deterministic={}", GetParam().deterministic));
    options.base = load_config("", words, {});
    options.precisions = GetParam().precisions;
    options.steps = 10;
    const std::vector<BenchResult> results = run_bench(options);
    std::vector<Precision> precisions;
    for (const std::string& name : options.precisions) precisions.push_back(Precision::parse(name));
    const Card card = measured_card(Device::cuda(), precisions);
    for (const BenchResult& measured : results) {
        SCOPED_TRACE(measured.precision);
        const Config config = with_made_up_data(in_precision(options.base, measured.precision));
        std::optional<CountedStep> counted =
            count_step(make_task(config), config, config.data.batch_size, {.device = Device::cuda()});
        ASSERT_TRUE(counted);
        const dry::ConvCosts costs = measure_convolutions(counted->work, config, Device::cuda());
        counted = count_step(make_task(config), config, config.data.batch_size, {Device::cuda(), 0, &costs});
        ASSERT_TRUE(counted);
        const auto total = double(measured.memory.peak_total);
        EXPECT_NEAR(double(counted->step.peak_total) / total, 1, 0.05);
        for (int i = 0; i < kPurposes; ++i)
            EXPECT_NEAR(double(counted->step.peak[std::size_t(i)]), double(measured.memory.peak[std::size_t(i)]),
                        0.05 * total)
                << name_of(Purpose(i));
        const double time = 1e3 * time_of_rank(*counted, {}, card).total() / measured.ms_per_step;
        EXPECT_NEAR(time, 1, 0.15);
        RecordProperty(measured.precision, fmt::format("{:.3f} of the time, {:.3f} of the memory", time,
                                                       double(counted->step.peak_total) / total));
    }
}

const std::vector<std::string> kAll = {"32-true", "tf32", "16-mixed", "bf16-mixed"};
const std::vector<std::string> kPhotographs = {"data=synthetic", "data.channels=3",   "data.height=224",
                                               "data.width=224", "data.classes=1000", "data.size=256"};

std::vector<std::string> photographs(std::vector<std::string> words) {
    words.insert(words.begin(), kPhotographs.begin(), kPhotographs.end());
    return words;
}
std::vector<std::string> tokens(std::vector<std::string> words) {
    const std::vector<std::string> first = {"task=language", "data=chains", "data.length=1024",
                                            "trainer.gradient_clip_val=1.0"};
    words.insert(words.begin(), first.begin(), first.end());
    return words;
}

INSTANTIATE_TEST_SUITE_P(
    BuiltIn, GpuPlan,
    ::testing::Values(
        Case{"GPT-2 124M", tokens({"model=gpt", "model.layers=12", "model.heads=12", "model.width=768",
                                   "data.vocabulary=50304", "data.batch_size=32", "trainer.recompute=light"})},
        Case{"a Llama", tokens({"model=llama", "model.layers=8", "model.heads=16", "model.kv_heads=4",
                                "model.width=1024", "data.vocabulary=32000", "data.batch_size=16"})},
        Case{"ViT-B/16", photographs({"model=vit", "model.patch=16", "model.layers=12", "model.heads=12",
                                      "model.width=768", "data.batch_size=128"})},
        Case{"ResNet-50",
             photographs({"model=resnet", "model.layers=50", "data.batch_size=256"}),
             {"16-mixed", "bf16-mixed"}},
        Case{"DBNet",
             {"task=text_detection", "data=scene_text", "data.size=640", "data.scenes=32", "data.val_scenes=16",
              "data.batch_size=16", "model=dbnet"},
             {"16-mixed"}},
        Case{"ConvNet", {"data=synthetic", "model=convnet", "data.batch_size=4096"}, {"32-true", "16-mixed"}},
        Case{"ConvNet, 128", {"data=synthetic", "model=convnet", "data.batch_size=128"}, kAll},
        Case{"ConvNet, 128, deterministic", {"data=synthetic", "model=convnet", "data.batch_size=128"}, kAll, true},
        Case{"MLP, deterministic",
             {"data=synthetic", "model=mlp", "model.hidden=[2048,2048]", "data.batch_size=512"},
             kAll,
             true},
        Case{"LeNet, deterministic", {"data=synthetic", "model=lenet", "data.batch_size=512"}, kAll, true},
        Case{"ResNet-18, deterministic",
             {"data=synthetic", "data.channels=3", "data.height=32", "data.width=32", "model=resnet", "model.layers=18",
              "model.stem=cifar", "data.batch_size=256"},
             {"32-true", "16-mixed"},
             true}));

}  // namespace
}  // namespace invar
