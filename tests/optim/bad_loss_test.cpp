// A loss that is NaN or infinite stops the step by itself, whatever its gradients are.
#include <gtest/gtest.h>

#include "tests/optim/fixture.h"

namespace invar {
namespace {

// The gradient of x + c does not depend on c.
Tensor loss_with(Weights& model, float constant) {
    return ops::sum(model(Tensor::from<float>({1, 2, 3}, {3}))) + double(constant);
}

TEST(GradScaler, SkipsAndBacksOffForALossThatIsNotFiniteThoughItsGradientsAre) {
    for (const float bad : {kNan, kInf, -kInf})
        for (const bool unscaled : {false, true}) {
            Weights model;
            Optimizer optimizer(model, OptimizerSpec{});
            GradScaler scaler(ScalerOptions{64});
            const auto step = [&](float constant) {
                optimizer.zero_grad();
                backward(scaler.scale(loss_with(model, constant)));
                if (unscaled) scaler.unscale(optimizer);
                scaler.step(optimizer);
                scaler.update();
            };
            const std::string before = state_bytes(optimizer);
            step(bad);
            EXPECT_EQ(state_bytes(optimizer), before);
            EXPECT_EQ(scaler.get_scale(), 32);
            EXPECT_EQ(optimizer.state().skipped, 1);
            EXPECT_EQ(optimizer.state().nonfinite, 0);
            EXPECT_TRUE(optimizer.state().bad_loss);
            step(0);
            EXPECT_NE(state_bytes(optimizer), before);
            EXPECT_FALSE(optimizer.state().bad_loss);
        }
}

TEST(GradScaler, SkipsForSuchALossWhereItIsDisabledToo) {
    for (const bool updates : {false, true}) {
        Weights model;
        Optimizer optimizer(model, OptimizerSpec{});
        GradScaler scaler({.spec = {.enabled = false}});
        const auto step = [&](float constant) {
            optimizer.zero_grad();
            backward(scaler.scale(loss_with(model, constant)));
            scaler.step(optimizer);
            if (updates) scaler.update();
        };
        const std::string before = state_bytes(optimizer);
        step(kNan);
        EXPECT_EQ(state_bytes(optimizer), before);
        EXPECT_EQ(optimizer.state().skipped, 1);
        step(0);
        EXPECT_NE(state_bytes(optimizer), before);
        EXPECT_EQ(optimizer.state().taken, 1) << "the bad loss is forgotten";
    }
}

TEST(GradScaler, SeesEveryLossOfAStepAndSkipsEveryOptimizer) {
    Weights first, second;
    Optimizer one(first, OptimizerSpec{}), two(second, OptimizerSpec{});
    GradScaler scaler(ScalerOptions{64});
    const std::string before = state_bytes(one) + state_bytes(two);
    backward(scaler.scale(loss_with(first, kInf)));
    backward(scaler.scale(loss_with(second, -kInf)));
    scaler.step(one);
    scaler.step(two);
    scaler.update();
    EXPECT_EQ(state_bytes(one) + state_bytes(two), before);
    EXPECT_EQ(scaler.get_scale(), 32) << "one step, one back-off";
}

TEST(GradScaler, ForgetsABadLossThatNobodyWentBackwardFrom) {
    Weights model;
    Optimizer optimizer(model, OptimizerSpec{});
    GradScaler scaler(ScalerOptions{64});
    (void)scaler.scale(loss_with(model, kNan));  // looked at and left, as in `if (!finite) continue;`
    backward(scaler.scale(loss_with(model, 0)));
    scaler.step(optimizer);
    scaler.update();
    EXPECT_EQ(optimizer.state().taken, 1);
    EXPECT_EQ(scaler.get_scale(), 64);
}

TEST(GradScaler, SkipsForABadLossWithoutAScaleToo) {
    Weights model;
    Optimizer optimizer(model, OptimizerSpec{});
    ScalerOptions options;
    options.spec.enabled = false;
    GradScaler scaler(options);
    for (int step = 0; step < 4; ++step) {
        optimizer.zero_grad();
        scaler.backward(loss_with(model, step == 1 ? kNan : 0.0f));
        if (step < 2)
            scaler.step_and_update(optimizer);
        else
            scaler.step(optimizer);
    }
    EXPECT_EQ(optimizer.state().taken, 3);
    EXPECT_EQ(optimizer.state().skipped, 1);
}

// A loss for each sample, sent backward with a gradient of its own: the step has their sum, and one of them spoils it.
TEST(GradScaler, SumsTheLossesOfALossThatIsNoScalar) {
    for (const float last : {3.0f, kNan}) {
        Weights model;
        Optimizer optimizer(model, OptimizerSpec{});
        GradScaler scaler(ScalerOptions{64});
        const Tensor losses = model(Tensor::from<float>({1, 2, 3}, {3})) + Tensor::from<float>({1, 2, last}, {3});
        backward(scaler.scale(losses), ops::ones({3}));
        ASSERT_EQ(scaler.loss().numel(), 1);
        if (last == 3.0f) {
            EXPECT_EQ(scaler.loss().item(), 0.5 - 2.5 + 6.0 + 1 + 2 + 3);
        }
        scaler.step(optimizer);
        EXPECT_EQ(optimizer.state().skipped, last == 3.0f ? 0 : 1);
        EXPECT_EQ(optimizer.state().nonfinite, 0);
    }
}

}  // namespace
}  // namespace invar
