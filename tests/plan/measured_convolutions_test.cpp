// What convolutions were seen to cost takes the place of what was reckoned, in time and in memory.
#include "invar/plan/measured_convolutions.h"

#include <gtest/gtest.h>

#include "invar/plan/plan.h"
#include "invar/tasks/registry.h"
#include "invar/train/bench.h"
#include "tests/plan/configs.h"

namespace invar {
namespace {

class MeasuredConvolutions : public testing::TestWithParam<const char*> {
  protected:
    CountedStep count(const dry::ConvCosts& costs = {}) const {
        return *count_step(make_task(config_), config_, config_.data.batch_size, {Device::cuda(), 0, &costs});
    }
    Config config_ = with_made_up_data(config_of(
        "", {"data=synthetic", "model=convnet", "data.batch_size=8", std::string("trainer.precision=") + GetParam()}));
};

TEST_P(MeasuredConvolutions, AreEachRunOnce) {
    const CountedStep step = count();
    const dry::ConvCosts costs = measure_convolutions(step.work, config_, Device::cpu());
    ASSERT_EQ(costs.size(), 5u) << "both forward and by weights, and the second one's data";
    for (const dry::ConvCost& cost : costs) {
        EXPECT_GT(cost.seconds, 0);
        EXPECT_GE(cost.scratch, 0);
    }
    std::size_t found = 0;
    for (const dry::Work& work : step.work) found += dry::find_cost(costs, work) != nullptr;
    EXPECT_EQ(found, 5u);
}

TEST_P(MeasuredConvolutions, CountWhereTheyWereMeasured) {
    const CountedStep before = count();
    dry::ConvCosts costs = measure_convolutions(before.work, config_, Device::cpu());
    for (dry::ConvCost& cost : costs) cost.seconds = 1, cost.scratch = double(1 << 30);
    const CountedStep after = count(costs);
    const Card card = card_named("h200");
    const double reckoned = time_of_rank(before, {}, card).total(), seen = time_of_rank(after, {}, card).total();
    EXPECT_GT(seen, 5);
    EXPECT_LT(seen, 5 + reckoned);
    const auto workspace = [](const CountedStep& step) { return step.step.peak_of(Purpose::workspace); };
    EXPECT_GE(workspace(after), std::int64_t(1) << 30);
    EXPECT_LE(workspace(after), workspace(before) + (std::int64_t(1) << 30));
}

INSTANTIATE_TEST_SUITE_P(Precisions, MeasuredConvolutions, testing::Values("32-true", "16-mixed"));

}  // namespace
}  // namespace invar
