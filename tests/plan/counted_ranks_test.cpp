// What one of many ranks holds, counted: the real sharing out of the real step, with others that are not there.
// Against ranks that are there: tests/cli/plan_ranks_test.cpp.
#include "invar/plan/counted_ranks.h"

#include <gtest/gtest.h>

#include "invar/plan/counted_step.h"
#include "invar/tasks/registry.h"
#include "invar/train/bench.h"
#include "tests/plan/configs.h"

namespace invar {
namespace {

// 784-1024-1024-1024-10, in buckets of a mebibyte at least: each of a layer's weights and the biases before it.
constexpr std::int64_t kParameters = 1024 * 785 + 2 * 1024 * 1025 + 10 * 1025;
constexpr std::int64_t kFirst = 4 * 1024 * 784, kLargest = 4 * 1024 * 1024;  // bytes of gradients

class CountedRanksHold : public testing::TestWithParam<const char*> {
  protected:
    static Device device() { return std::string(GetParam()) == "cpu" ? Device::cpu() : Device::cuda(); }
    static CountedStep hold(const std::string& precision, const Ranks& ranks,
                            const std::vector<std::string>& more = {}) {
        std::vector<std::string> words = {"model.hidden=[1024,1024,1024]", "data.batch_size=8", "trainer.bucket_mb=1",
                                          "optimizer=adamw"};
        words.insert(words.end(), more.begin(), more.end());
        const Config config = with_made_up_data(in_precision(config_of("fashion_mnist_mlp", words), precision));
        return count_step(make_task(config), config, 8, {device(), 0, nullptr, ranks}).value();
    }
    static double part_of(const CountedStep& some, const CountedStep& all, Purpose purpose) {
        return double(some.step.peak_of(purpose)) / double(all.step.peak_of(purpose));
    }
};

TEST_P(CountedRanksHold, WhatOneHoldsAloneByDdp) {
    const CountedStep alone = hold("bf16-mixed", {}), ddp = hold("bf16-mixed", {4, Strategy::ddp});
    for (const Purpose purpose : {Purpose::weights, Purpose::masters, Purpose::optimizer})
        EXPECT_NEAR(part_of(ddp, alone, purpose), 1, 0.01) << name_of(purpose);
    EXPECT_NEAR(part_of(ddp, alone, Purpose::gradients), 1.25, 0.01);  // and the sums of its share
}

TEST_P(CountedRanksHold, APartOfMastersAndMomentsByZero1) {
    const CountedStep alone = hold("bf16-mixed", {}), zero1 = hold("bf16-mixed", {4, Strategy::zero1});
    EXPECT_NEAR(part_of(zero1, alone, Purpose::masters), 0.25, 0.01);
    EXPECT_NEAR(part_of(zero1, alone, Purpose::optimizer), 0.25, 0.01);
    EXPECT_NEAR(part_of(zero1, alone, Purpose::gradients), 1.25, 0.01);
    EXPECT_NEAR(part_of(zero1, alone, Purpose::weights), 1, 0.01);
    EXPECT_LT(zero1.evaluation.peak_total, alone.evaluation.peak_total);
    EXPECT_LT(zero1.held, alone.held);
}

TEST_P(CountedRanksHold, APartOfGradientsByZero2AndWhatIsUnderWay) {
    const CountedStep zero2 = hold("bf16-mixed", {4, Strategy::zero2});
    const std::int64_t share = kParameters, gradients = zero2.step.peak_of(Purpose::gradients);  // 4 bytes of a fourth
    EXPECT_GE(gradients, share + kLargest + kLargest + kFirst);  // one travels while one layer fills two others
    EXPECT_LE(gradients, share + 3 * kLargest);
}

TEST_P(CountedRanksHold, LessAtThePeakThanItsPartsTogetherByZero2) {
    const CountedStep zero2 = hold("bf16-mixed", {4, Strategy::zero2});
    std::int64_t together = 0;
    for (const std::int64_t bytes : zero2.step.peak) together += bytes;
    EXPECT_LT(zero2.step.peak_total, together);
}

TEST_P(CountedRanksHold, WhatTheyUpdateWhereThereAreNoMasters) {
    const CountedStep alone = hold("32-true", {}), zero1 = hold("32-true", {4, Strategy::zero1});
    EXPECT_EQ(alone.step.peak_of(Purpose::masters), 0);
    EXPECT_NEAR(double(zero1.step.peak_of(Purpose::masters)), double(kParameters), 0.01 * kParameters);
    EXPECT_NEAR(part_of(zero1, alone, Purpose::weights), 1, 0.01);
}

TEST_P(CountedRanksHold, TheSameAloneByEveryStrategy) {
    const CountedStep ddp = hold("bf16-mixed", {1, Strategy::ddp});
    for (const Strategy strategy : {Strategy::zero1, Strategy::zero2}) {
        const CountedStep other = hold("bf16-mixed", {1, strategy});
        EXPECT_EQ(other.step.peak, ddp.step.peak);
        EXPECT_EQ(other.held, ddp.held);
    }
}

TEST_P(CountedRanksHold, RoomForThePiecesThatArriveOnAGpu) {
    const auto workspace = [&](int bytes) {
        return hold("bf16-mixed", {4, Strategy::zero1, bytes}).step.peak_of(Purpose::workspace) -
               hold("bf16-mixed", {}).step.peak_of(Purpose::workspace);
    };
    if (device().is_cpu()) {
        EXPECT_EQ(workspace(4), 0);
        return;
    }
    EXPECT_NEAR(double(workspace(4)), 0.75 * kLargest, 0.02 * kLargest);           // of three others
    EXPECT_NEAR(double(workspace(2)), (0.5 + 0.375) * kLargest, 0.02 * kLargest);  // what is sent is rounded first
}

TEST_P(CountedRanksHold, LessOfEverythingOnAThousand) {
    const CountedStep few = hold("bf16-mixed", {4, Strategy::zero2}),
                      many = hold("bf16-mixed", {1024, Strategy::zero2});
    EXPECT_LT(many.step.peak_of(Purpose::masters), few.step.peak_of(Purpose::masters) / 100);
    EXPECT_LT(many.step.peak_total, few.step.peak_total);
}

TEST_P(CountedRanksHold, NobodysWorldForLonger) {
    (void)hold("bf16-mixed", {4, Strategy::zero2});
    EXPECT_TRUE(world().alone());
}

TEST_P(CountedRanksHold, WhatNormsOfTheWholeBatchNeed) {
    const Config config = with_made_up_data(
        config_of("cifar10_resnet18", {"data.batch_size=4", "trainer.sync_batchnorm=true", "trainer.bucket_mb=1"}));
    const std::optional<CountedStep> step =
        count_step(make_task(config), config, 4, {device(), 0, nullptr, {4, Strategy::zero2}});
    ASSERT_TRUE(step);
    EXPECT_GT(step->step.peak_total, 0);
}

INSTANTIATE_TEST_SUITE_P(Devices, CountedRanksHold, testing::Values("cpu", "cuda"));

}  // namespace
}  // namespace invar
