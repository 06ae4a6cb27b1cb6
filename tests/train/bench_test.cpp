// The measuring behind `invar bench`: what it counts, never how long it took.
#include "invar/train/bench.h"

#include <gtest/gtest.h>

#include "invar/core/error.h"
#include "tests/core/expect_error.h"

namespace invar {
namespace {

BenchOptions tiny() {
    BenchOptions options;
    options.base = parse_config(
        "data: {name: fashion_mnist, root: /nowhere, batch_size: 16}\nmodel: {name: mlp, hidden: [1024]}\n"
        "trainer: {threads: 1}\n",
        "test");
    options.steps = 3;
    options.warmup = 1;
    return options;
}

TEST(Bench, MeasuresEveryPrecisionWithoutADataSet) {
    const std::vector<BenchResult> results = run_bench(tiny());
    ASSERT_EQ(results.size(), 3u);
    EXPECT_EQ(results[0].precision, "32-true");
    EXPECT_EQ(results[1].precision, "16-mixed");
    EXPECT_EQ(results[2].precision, "bf16-mixed");
    EXPECT_EQ(results[0].ratio, 1.0);
    for (const BenchResult& result : results) {
        EXPECT_GT(result.ms_per_step, 0.0);
        EXPECT_LE(result.fastest_ms, result.ms_per_step);
        EXPECT_DOUBLE_EQ(result.samples_per_s, 16e3 / result.ms_per_step);
        EXPECT_EQ(result.samples_per_step, 16);
    }
}

TEST(Bench, HoldsTheArithmeticOfAStepAgainstTheBestProduct) {
    for (const BenchResult& result : run_bench(tiny())) {
        // 784 to 1024 to 10: forward, the weights' gradients, and the gradient of the hidden layer.
        EXPECT_EQ(result.flops_per_step, 2.0 * 16 * (2 * 784 * 1024 + 3 * 1024 * 10)) << result.precision;
        EXPECT_DOUBLE_EQ(result.flops_per_s, 1e3 * result.flops_per_step / result.ms_per_step);
        EXPECT_GT(result.product_flops_per_s, 1e8);
    }
}

TEST(Bench, CountsTheMemoryOfOnePrecisionAtATime) {
    const std::vector<BenchResult> together = run_bench(tiny());
    for (const BenchResult& result : together) {
        BenchOptions alone = tiny();
        alone.precisions = {result.precision};
        EXPECT_EQ(run_bench(alone).at(0).memory.peak_total, result.memory.peak_total) << result.precision;
    }
    EXPECT_EQ(together[0].memory.peak_of(Purpose::masters), 0);
    EXPECT_GT(together[1].memory.peak_of(Purpose::masters), 0);
    EXPECT_LT(together[1].memory.peak_of(Purpose::activations), together[0].memory.peak_of(Purpose::activations));
}

TEST(Bench, CountsAllBatchesOfAnAccumulation) {
    BenchOptions options = tiny();
    options.base.trainer.accumulate_grad_batches = 3;
    options.precisions = {"bf16"};
    const BenchResult result = run_bench(options).at(0);
    EXPECT_EQ(result.samples_per_step, 48);
    EXPECT_EQ(result.ratio, 0.0) << "there is no FP32 to compare with";
}

TEST(Bench, TellsItsProgressUpToTheEnd) {
    double last = 0.0;
    run_bench(tiny(), [&](double share) {
        EXPECT_GT(share, last);
        last = share;
    });
    EXPECT_DOUBLE_EQ(last, 1.0);
}

TEST(Bench, RefusesBadOptions) {
    const auto with = [&](auto change) {
        BenchOptions options = tiny();
        change(options);
        run_bench(options);
    };
    EXPECT_ERROR(with([](auto& o) { o.steps = 0; }), UsageError, "--steps 0");
    EXPECT_ERROR(with([](auto& o) { o.warmup = -1; }), UsageError, "--warmup -1");
    EXPECT_ERROR(with([](auto& o) { o.precisions = {}; }), UsageError, "--precisions");
    EXPECT_ERROR(with([](auto& o) { o.precisions = {"32-true", "int4"}; }), UsageError, "int4");
}

// Batches of images with texts hold more than random images could stand for.
TEST(Bench, TakesDataThatAreMoreThanLabelsAsTheyAre) {
    BenchOptions options;
    options.base = parse_config(
        "data: {name: icdar2015, root: /nowhere, size: 64}\nmodel: {name: dbnet}\ntask: {name: text_detection}\n"
        "trainer: {threads: 1}\n",
        "test");
    EXPECT_ERROR(run_bench(options), UsageError, "/nowhere");
}

}  // namespace
}  // namespace invar
