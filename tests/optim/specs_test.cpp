// What a configuration says of an optimizer or a schedule, by name and key, is what the step goes by.
#include "invar/optim/specs.h"

#include "tests/core/expect_error.h"
#include "tests/optim/fixture.h"

namespace invar {
namespace {

TEST(OptimizerByName, IsTheOneOfThatNameWithItsOptions) {
    using Kind = OptimizerSpec::Kind;
    for (const auto& [name, kind] : {std::pair("adam", Kind::adam), std::pair("adamw", Kind::adamw)}) {
        OptimizerConfig config;
        config.choose(name, AdamOptions{.betas = {0.7, 0.8}, .eps = 1e-3});
        config.lr = 0.25;
        config.weight_decay = 0.125;
        const OptimizerSpec spec = optimizer_spec(config);
        EXPECT_EQ(spec, (OptimizerSpec{
                            .kind = kind, .lr = 0.25, .weight_decay = 0.125, .beta1 = 0.7, .beta2 = 0.8, .eps = 1e-3}))
            << name;
    }
    OptimizerConfig config;
    config.choose("sgd", SgdOptions{.momentum = 0.5, .nesterov = true});
    const OptimizerSpec spec = optimizer_spec(config);
    EXPECT_EQ(spec.kind, Kind::sgd);
    EXPECT_EQ(spec.momentum, 0.5);
    EXPECT_TRUE(spec.nesterov);
}

// The rate at a step of a run of so many.
double rate_at(const SchedulerConfig& config, std::int64_t step, std::int64_t steps) {
    return 0.2 * make_schedule(config, 0.2, steps).spec.factor(step);
}

TEST(ScheduleByName, CosineEndsAtTheRateThatItIsTold) {
    SchedulerConfig config;
    config.choose("cosine", CosineOptions{.min_lr = 0.05});
    EXPECT_DOUBLE_EQ(rate_at(config, 0, 10), 0.2);
    EXPECT_DOUBLE_EQ(rate_at(config, 5, 10), 0.125);
    EXPECT_DOUBLE_EQ(rate_at(config, 10, 10), 0.05);
    config.as<CosineOptions>().min_lr = 0.3;
    EXPECT_ERROR(make_schedule(config, 0.2, 10), UsageError, "scheduler.min_lr = 0.3: is above optimizer.lr = 0.2");
}

TEST(ScheduleByName, OneCycleStartsPeaksAndEndsWhereItIsTold) {
    SchedulerConfig config;
    config.choose("one_cycle", OneCycleOptions{.pct_start = 0.5, .div_factor = 10, .final_div_factor = 4});
    EXPECT_DOUBLE_EQ(rate_at(config, 0, 20), 0.02);
    EXPECT_DOUBLE_EQ(rate_at(config, 9, 20), 0.2);
    EXPECT_DOUBLE_EQ(rate_at(config, 19, 20), 0.005);
}

TEST(ScheduleByName, OneCycleRisesForAShareOfTheStepsAndNoMore) {
    SchedulerConfig config;
    config.choose("one_cycle");
    config.set("pct_start", "1");
    EXPECT_DOUBLE_EQ(rate_at(config, 19, 20), 0.2) << "all of them";
    EXPECT_THROW(config.set("pct_start", "1.5"), UsageError);
    EXPECT_THROW(config.set("pct_start", "-0.5"), UsageError);
}

}  // namespace
}  // namespace invar
