// Steps that are counted hold what steps that are run hold.
#include "invar/plan/counted_step.h"

#include <gtest/gtest.h>

#include "invar/tasks/registry.h"
#include "invar/train/bench.h"

namespace invar {
namespace {

Config config_of(const std::string& experiment, std::vector<std::string> overrides) {
    ConfigSources sources;
    sources.config_dirs = {std::filesystem::path(INVAR_SOURCE_DIR) / "configs"};
    for (const char* more : {"trainer.threads=1", "trainer.device=cpu"}) overrides.emplace_back(more);
    return load_config(experiment, overrides, sources);
}

struct Case {
    std::string experiment;
    std::vector<std::string> overrides;
};

void expect_bench_memory(const Case& c, const std::string& precision) {
    BenchOptions options;
    options.base = config_of(c.experiment, c.overrides);
    options.precisions = {precision};
    options.steps = 1, options.warmup = 0;
    const BenchResult measured = run_bench(options).at(0);
    const Config config = with_made_up_data(in_precision(options.base, precision));
    const std::optional<CountedStep> counted =
        count_step(make_task(config), config, config.data.batch_size, {.device = Device::cpu()});
    ASSERT_TRUE(counted);
    EXPECT_EQ(counted->flops, measured.flops_per_step);
    EXPECT_EQ(counted->samples, measured.samples_per_step);
    const auto total = double(measured.memory.peak_total);
    EXPECT_NEAR(double(counted->step.peak_total), total, 0.05 * total);
    for (int i = 0; i < kPurposes; ++i) {
        const auto purpose = std::size_t(i);
        EXPECT_NEAR(double(counted->step.peak[purpose]), double(measured.memory.peak[purpose]), 0.05 * total)
            << name_of(Purpose(i));
    }
}

class CountedMemory : public testing::TestWithParam<Case> {};

TEST_P(CountedMemory, IsWhatBenchMeasuresInEveryPrecision) {
    for (const char* precision : {"32-true", "16-mixed", "bf16-mixed"}) {
        SCOPED_TRACE(precision);
        expect_bench_memory(GetParam(), precision);
    }
}

INSTANTIATE_TEST_SUITE_P(
    BuiltIn, CountedMemory,
    testing::Values(Case{"fashion_mnist_mlp", {}}, Case{"mnist_convnet", {"data.batch_size=32"}},
                    Case{"fashion_mnist_vit", {"data.batch_size=8"}}, Case{"cifar10_resnet18", {"data.batch_size=8"}},
                    Case{"gpt", {"data=chains", "data.batch_size=4", "model.layers=2"}},
                    Case{"gpt", {"data=chains", "data.batch_size=4", "model=llama", "model.layers=2"}},
                    Case{"dbnet_small", {"data.batch_size=2", "data.scenes=4", "data.val_scenes=2"}}));

}  // namespace
}  // namespace invar
