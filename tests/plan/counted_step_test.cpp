// Steps that are counted hold what steps that are run hold.
#include "invar/plan/counted_step.h"

#include <gtest/gtest.h>

#include "invar/kernels/devices.h"
#include "invar/tasks/registry.h"
#include "invar/train/bench.h"
#include "tests/plan/configs.h"

namespace invar {
namespace {

struct Case {
    std::string experiment;
    std::vector<std::string> overrides;
};
void PrintTo(const Case& c, std::ostream* out) {
    *out << c.experiment;
    for (const std::string& word : c.overrides) *out << " " << word;
}

void expect_bench_memory(const Config& base, const std::string& precision) {
    BenchOptions options;
    options.base = base;
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
    EXPECT_NEAR(double(counted->step.peak_total), total, 0.01 * total);
    for (int i = 0; i < kPurposes; ++i) {
        const auto purpose = std::size_t(i);
        EXPECT_NEAR(double(counted->step.peak[purpose]), double(measured.memory.peak[purpose]), 0.01 * total)
            << name_of(Purpose(i));
    }
}

class CountedMemory : public testing::TestWithParam<Case> {};

TEST_P(CountedMemory, IsWhatBenchMeasuresInEveryPrecision) {
    std::vector<std::string> words = GetParam().overrides;
    for (const char* more : {"trainer.threads=1", "trainer.device=cpu"}) words.emplace_back(more);
    for (const char* precision : {"32-true", "16-mixed", "bf16-mixed", "bf16-true"}) {
        SCOPED_TRACE(precision);
        expect_bench_memory(config_of(GetParam().experiment, words), precision);
    }
}

INSTANTIATE_TEST_SUITE_P(
    BuiltIn, CountedMemory,
    testing::Values(Case{"fashion_mnist_mlp", {}}, Case{"mnist_convnet", {"data.batch_size=32"}},
                    Case{"mnist_convnet", {"model=lenet", "trainer.accumulate_grad_batches=2"}},
                    Case{"fashion_mnist_vit", {"data.batch_size=8"}},
                    Case{"fashion_mnist_vit", {"data.batch_size=8", "trainer.recompute=block"}},
                    Case{"cifar10_resnet18", {"data.batch_size=8", "trainer.ema_decay=0.9"}},
                    Case{"gpt", {"data=chains", "data.batch_size=4", "model.layers=2"}},
                    Case{"gpt", {"data=chains", "data.batch_size=4", "model=llama", "model.layers=2"}},
                    Case{"gpt",
                         {"data=chains", "data.batch_size=1", "data.length=512", "data.vocabulary=64", "model.layers=1",
                          "model.heads=2", "model.width=64", "trainer.recompute=block"}},
                    Case{"dbnet_small", {"data.batch_size=2", "data.scenes=4", "data.val_scenes=2"}}));

TEST(CountedStep, LeavesNoTraceOnTheDeviceThatItStandsInFor) {
    const Config config = with_made_up_data(config_of("fashion_mnist_mlp", {}));
    const std::shared_ptr<const Task> task = make_task(config);
    const MemoryStats before = memory_stats(Device::cpu());
    const Kernels* const kernels = &kernels_for(Device::cpu());
    (void)count_step(task, config, 64, {.device = Device::cuda()});
    (void)count_step(task, config, 64, {.device = Device::cpu()});
    EXPECT_EQ(memory_stats(Device::cpu()).live_total, before.live_total);
    EXPECT_EQ(&kernels_for(Device::cpu()), kernels);
}

TEST(CountedStep, TakesNoMemoryForAModelThatNoMachineHolds) {
    const Config config = with_made_up_data(config_of(
        "gpt", {"data=chains", "model.layers=48", "model.heads=56", "model.width=7168", "data.batch_size=2"}));
    const std::optional<CountedStep> step = count_step(make_task(config), config, 2, {.device = Device::cuda()});
    ASSERT_TRUE(step);
    EXPECT_GT(step->parameters, 29e9);
    EXPECT_GE(step->step.peak_total, step->parameters * 16);  // weights, gradients and two moments in FP32
}

TEST(CountedStep, OnAGpuIsRecordedInMemoryOfItsOwn) {
    const Config config = with_made_up_data(config_of("mnist_convnet", {"data.batch_size=512"}));
    const std::optional<CountedStep> step = count_step(make_task(config), config, 512, {.device = Device::cuda()});
    ASSERT_TRUE(step);
    EXPECT_TRUE(step->recorded);
    EXPECT_GT(step->held, step->step.peak_total);
    EXPECT_GT(step->evaluation.peak_total, 0);
    Config eager = config;
    eager.trainer.cuda_graph = false;
    EXPECT_FALSE(count_step(make_task(eager), eager, 512, {.device = Device::cuda()})->recorded);
}

// Weights and two moments in FP32.
TEST(CountedStep, OnACpuHasTheCopiesOfACheckpointBesideIt) {
    const Config config = with_made_up_data(config_of("fashion_mnist_mlp", {"optimizer=adamw"}));
    const CountedStep step = count_step(make_task(config), config, 64, {.device = Device::cpu()}).value();
    EXPECT_GE(step.held, step.step.peak_total + step.parameters * 12);
    EXPECT_LT(step.held, step.step.peak_total + step.parameters * 13);
}

TEST(CountedStep, DoesNotFitWhereTheMemoryIsLessThanItHolds) {
    const Config config = with_made_up_data(config_of("mnist_convnet", {}));
    const std::shared_ptr<const Task> task = make_task(config);
    const std::int64_t held = count_step(task, config, 128, {.device = Device::cuda()})->held;
    EXPECT_TRUE(count_step(task, config, 128, {Device::cuda(), held}));
    EXPECT_FALSE(count_step(task, config, 128, {Device::cuda(), held / 2}));
}

}  // namespace
}  // namespace invar
