#include "invar/optim/grad_scaler.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/core/expect_error.h"
#include "tests/optim/fixture.h"

namespace invar {
namespace {

ScalerOptions options_of(double init, int interval = 2000) {
    ScalerOptions options;
    options.init_scale = init;
    options.spec.growth_interval = interval;
    return options;
}

// A scaler that is told in each step whether the gradients overflowed.
struct Rig {
    explicit Rig(const ScalerOptions& options) : optimizer(model, OptimizerSpec{}, {}), scaler(options) {}
    void step(bool overflow) {
        optimizer.zero_grad();
        scaler.scale(Tensor::scalar(1));
        set_wave_gradients(model, 0, float(scaler.get_scale()));
        if (overflow) set_gradient(model.a, {kInf});
        scaler.step(optimizer);
        scaler.update();
    }
    void steps(int count, bool overflow) {
        for (int i = 0; i < count; ++i) step(overflow);
    }
    Weights model;
    Optimizer optimizer;
    GradScaler scaler;
};

TEST(GradScaler, StartsAsPyTorchDoes) {
    const GradScaler scaler;
    EXPECT_TRUE(scaler.enabled());
    EXPECT_EQ(scaler.get_scale(), 65536.0);
    EXPECT_EQ(scaler.spec().growth_factor, 2.0);
    EXPECT_EQ(scaler.spec().backoff_factor, 0.5);
    EXPECT_EQ(scaler.spec().growth_interval, 2000);
    EXPECT_EQ(scaler.growth_tracker(), 0);
}

TEST(GradScaler, MultipliesTheLossAndItsGradientByTheScale) {
    Weights model;
    Optimizer optimizer(model, sgd_spec(1));
    GradScaler scaler(options_of(1024));
    const Tensor loss = scaler.scale(ops::sum(model.forward(Tensor::from<float>({1, 2, 3}, {3}))));
    EXPECT_EQ(loss.item(), (0.5 - 2.5 + 6.0) * 1024);
    backward(loss);
    EXPECT_EQ(model.a.value.grad().to_vector<float>(), (std::vector<float>{1024, 2048, 3072}));
}

TEST(GradScaler, GrowsAtTheIntervalAndNotBefore) {
    Rig rig(options_of(8, 3));
    rig.steps(2, false);
    EXPECT_EQ(rig.scaler.get_scale(), 8);
    EXPECT_EQ(rig.scaler.growth_tracker(), 2);
    rig.step(false);
    EXPECT_EQ(rig.scaler.get_scale(), 16);
    EXPECT_EQ(rig.scaler.growth_tracker(), 0);
    EXPECT_EQ(rig.scaler.state().growths, 1);
}

TEST(GradScaler, BacksOffAndStartsCountingAgainOnOverflow) {
    Rig rig(options_of(8, 3));
    rig.steps(2, false);
    rig.step(true);
    EXPECT_EQ(rig.scaler.get_scale(), 4);
    EXPECT_EQ(rig.scaler.growth_tracker(), 0);
    EXPECT_EQ(rig.scaler.state().backoffs, 1);
    rig.steps(2, false);
    EXPECT_EQ(rig.scaler.get_scale(), 4);
    rig.step(false);
    EXPECT_EQ(rig.scaler.get_scale(), 8);
}

TEST(GradScaler, DoesNotGrowPastFiniteFp32) {
    Rig rig(options_of(0x1p127, 1));
    rig.step(false);
    EXPECT_EQ(rig.scaler.get_scale(), 0x1p127);
    EXPECT_EQ(rig.scaler.growth_tracker(), 0);
    EXPECT_EQ(rig.scaler.state().growths, 0);
}

TEST(GradScaler, KeepsBelowItsCeiling) {
    ScalerOptions options = options_of(4, 1);
    options.spec.max_scale = 16;
    Rig rig(options);
    rig.steps(5, false);
    EXPECT_EQ(rig.scaler.get_scale(), 16);
}

TEST(GradScaler, KeepsAboveItsFloorAndSaysThatItIsThere) {
    ScalerOptions options = options_of(8);
    options.spec.min_scale = 2;
    Rig rig(options);
    rig.steps(2, true);
    EXPECT_EQ(rig.scaler.get_scale(), 2);
    EXPECT_FALSE(rig.scaler.state().at_floor);
    rig.step(true);
    EXPECT_EQ(rig.scaler.get_scale(), 2);
    EXPECT_TRUE(rig.scaler.state().at_floor);
    rig.step(false);
    EXPECT_FALSE(rig.scaler.state().at_floor);
}

// Without a floor of its own the scale would end at 0, and 0 gradients times 1/0 would be NaN weights.
TEST(GradScaler, NeverFallsToZero) {
    Rig rig(options_of(65536));
    rig.steps(300, true);
    EXPECT_GT(rig.scaler.get_scale(), 0);
    EXPECT_TRUE(rig.scaler.state().at_floor);
    rig.optimizer.zero_grad();
    rig.scaler.scale(Tensor::scalar(1));
    set_gradient(rig.model.a, {0}), set_gradient(rig.model.b, {0});
    rig.scaler.step(rig.optimizer);
    for (const float v : rig.model.values()) EXPECT_TRUE(std::isfinite(v));
}

TEST(GradScaler, ForgivesTheFirstOverflowsUnderHysteresisButSkipsThem) {
    ScalerOptions options = options_of(64, 2);
    options.spec.hysteresis = 2;
    Rig rig(options);
    const std::string before = state_bytes(rig.optimizer);
    rig.step(true);
    EXPECT_EQ(rig.scaler.get_scale(), 64);
    EXPECT_EQ(state_bytes(rig.optimizer), before);
    EXPECT_EQ(rig.optimizer.state().skipped, 1);
    rig.step(true);
    EXPECT_EQ(rig.scaler.get_scale(), 32);
    rig.step(true);  // used up: backs off every time now
    EXPECT_EQ(rig.scaler.get_scale(), 16);
    rig.step(false);
    rig.step(true);  // one clean step does not refill it
    EXPECT_EQ(rig.scaler.get_scale(), 8);
    rig.steps(2, false);  // growth does
    EXPECT_EQ(rig.scaler.get_scale(), 16);
    rig.step(true);
    EXPECT_EQ(rig.scaler.get_scale(), 16);
    rig.step(true);
    EXPECT_EQ(rig.scaler.get_scale(), 8);
}

TEST(GradScaler, RefillsHysteresisAfterEachCleanStepWhereAsked) {
    ScalerOptions options = options_of(64);
    options.spec.hysteresis = 2;
    options.spec.consecutive_hysteresis = true;
    Rig rig(options);
    for (int i = 0; i < 3; ++i) {
        rig.step(true);
        rig.step(false);
    }
    EXPECT_EQ(rig.scaler.get_scale(), 64);
    rig.steps(2, true);
    EXPECT_EQ(rig.scaler.get_scale(), 32);
}

TEST(GradScaler, HoldsAStaticScaleAndStillSkips) {
    ScalerOptions options = options_of(128, 1);
    options.spec.dynamic = false;
    Rig rig(options);
    rig.steps(3, false);
    rig.steps(2, true);
    EXPECT_EQ(rig.scaler.get_scale(), 128);
    EXPECT_EQ(rig.optimizer.state().taken, 3);
    EXPECT_EQ(rig.optimizer.state().skipped, 2);
}

TEST(GradScaler, DisabledIsThePlainStep) {
    Weights with, without;
    Optimizer scaled(with, OptimizerSpec{}), plain(without, OptimizerSpec{});
    ScalerOptions options;
    options.spec.enabled = false;
    GradScaler scaler(options);
    EXPECT_EQ(scaler.get_scale(), 1.0);
    const Tensor loss = Tensor::scalar(3);
    EXPECT_TRUE(scaler.scale(loss).same_as(loss));
    for (int step = 0; step < 3; ++step) {
        set_wave_gradients(with, step);
        set_wave_gradients(without, step);
        scaler.unscale(scaled);
        scaler.unscale(scaled);  // nothing to misuse
        scaler.step(scaled);
        scaler.update();
        plain.step();
    }
    EXPECT_EQ(state_bytes(scaled), state_bytes(plain));
    EXPECT_TRUE(scaler.state_dict().empty());
    scaler.load_state_dict(GradScaler().state_dict());
    EXPECT_EQ(scaler.get_scale(), 1.0);
}

// PyTorch's rule on its own: what amp_update_scale does with a flag.
TEST(GradScaler, FollowsPyTorchsRuleThroughAnySequence) {
    std::mt19937 random(7);
    for (int round = 0; round < 40; ++round) {
        const int interval = 1 + int(random() % 6);
        const double growth = random() % 2 ? 2.0 : 1.1, backoff = random() % 2 ? 0.5 : 0.3;
        float scale = std::ldexp(1.0f, int(random() % 40) - 8);
        int tracker = 0;
        ScalerOptions options = options_of(scale, interval);
        options.spec.growth_factor = growth;
        options.spec.backoff_factor = backoff;
        Rig rig(options);
        for (int step = 0; step < 100; ++step) {
            const bool overflow = random() % 4 == 0;
            rig.step(overflow);
            if (overflow) {  // an FP32 scale times a double factor, rounded once
                scale = float(double(scale) * backoff);
                tracker = 0;
            } else if (++tracker == interval) {
                if (const float raised = float(double(scale) * growth); std::isfinite(raised)) scale = raised;
                tracker = 0;
            }
            ASSERT_EQ(float(rig.scaler.get_scale()), scale) << "round " << round << " step " << step;
            ASSERT_EQ(rig.scaler.growth_tracker(), tracker) << "round " << round << " step " << step;
        }
    }
}

// The hand-written step rounds each gradient once more than the fused pass, which multiplies by one product of the two
// factors; with powers of two for scales only the clip factor's rounding is left: a few units in the last place.
TEST(GradScaler, UnscaleThenClipThenStepIsTheFusedStep) {
    Weights by_hand, fused;
    Optimizer hand(by_hand, sgd_spec(0.1f)), pass(fused, sgd_spec(0.1f));
    GradScaler hand_scaler(options_of(4096)), pass_scaler(options_of(4096));
    for (int step = 0; step < 5; ++step) {
        set_wave_gradients(by_hand, step, 4096);
        set_wave_gradients(fused, step, 4096);
        hand_scaler.scale(Tensor::scalar(1));
        pass_scaler.scale(Tensor::scalar(1));
        hand_scaler.unscale(hand);
        const double norm = clip_grad_norm(hand, 0.7);
        hand_scaler.step(hand);
        hand_scaler.update();
        pass_scaler.step(pass, {ClipSpec::Kind::norm, 0.7f});
        pass_scaler.update();
        EXPECT_FLOAT_EQ(float(norm), pass.state().grad_norm);
        const std::vector<float> a = by_hand.values(), b = fused.values();
        for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 4 * 0x1p-24 * (1 + std::fabs(a[i]))) << i;
    }
    EXPECT_EQ(hand.state().taken, 5);
}

// Without clipping, dividing by a power of two is exact, so both ways give the same bits.
TEST(GradScaler, UnscaleThenStepIsTheFusedStepToTheBit) {
    Weights by_hand, fused;
    Optimizer hand(by_hand, OptimizerSpec{}), pass(fused, OptimizerSpec{});
    GradScaler hand_scaler(options_of(4096)), pass_scaler(options_of(4096));
    for (int step = 0; step < 5; ++step) {
        set_wave_gradients(by_hand, step, 4096);
        set_wave_gradients(fused, step, 4096);
        hand_scaler.scale(Tensor::scalar(1));
        pass_scaler.scale(Tensor::scalar(1));
        hand_scaler.unscale(hand);
        hand_scaler.step(hand);
        hand_scaler.update();
        pass_scaler.step(pass);
        pass_scaler.update();
    }
    EXPECT_EQ(state_bytes(hand), state_bytes(pass));
}

// The calls that training_step makes, against those of a loop written from memory.
TEST(GradScaler, BackwardThenStepAndUpdateIsTheLongWayToTheBit) {
    for (const bool enabled : {true, false}) {
        Weights by_hand, short_way;
        Optimizer hand(by_hand, OptimizerSpec{}), brief(short_way, OptimizerSpec{});
        ScalerOptions options = options_of(4096, 3);
        options.spec.enabled = enabled;
        GradScaler hand_scaler(options), brief_scaler(options);
        const ClipSpec clip{ClipSpec::Kind::norm, 0.5f};
        for (int step = 0; step < 6; ++step) {
            const float x = step == 2 ? kInf : float(step + 1);
            const auto loss = [&](Weights& model) { return ops::sum(model(Tensor::from<float>({x, 1, 2}, {3}))); };
            hand.zero_grad(), brief.zero_grad();
            backward(hand_scaler.scale(loss(by_hand)));
            hand_scaler.step(hand, clip);
            hand_scaler.update();
            brief_scaler.backward(loss(short_way));
            brief_scaler.step_and_update(brief, clip);
            EXPECT_EQ(brief_scaler.get_scale(), hand_scaler.get_scale()) << step;
        }
        EXPECT_EQ(state_bytes(hand), state_bytes(brief));
        EXPECT_EQ(brief.state().skipped, 1);
    }
}

TEST(GradScaler, ForgetsAStepThatWasGivenUp) {
    Rig rig(options_of(1024));
    rig.scaler.scale(Tensor::scalar(1));
    rig.scaler.step(rig.optimizer);
    rig.scaler.forget_step();
    EXPECT_NO_THROW(rig.step(false));
}

TEST(GradScaler, SkipsAfterAnExplicitUnscaleToo) {
    Weights model;
    Optimizer optimizer(model, OptimizerSpec{});
    GradScaler scaler(options_of(64));
    set_wave_gradients(model, 0, 64);
    set_gradient(model.b, {kNan});
    const std::string before = state_bytes(optimizer);
    scaler.scale(Tensor::scalar(1));
    scaler.unscale(optimizer);
    clip_grad_value(optimizer, 1.0);  // hides the evidence of an Inf; the step must remember it
    set_gradient(model.b, {0});
    scaler.step(optimizer);
    scaler.update();
    EXPECT_EQ(state_bytes(optimizer), before);
    EXPECT_EQ(scaler.get_scale(), 32);
}

// PyTorch judges the scale by what unscale_ found, whether the step was taken or given up.
TEST(GradScaler, BacksOffWhenUnscaleFoundOverflowAndTheStepWasLeftOut) {
    Weights model;
    Optimizer optimizer(model, OptimizerSpec{});
    GradScaler scaler(options_of(64));
    scaler.scale(Tensor::scalar(1));
    set_gradient(model.a, {kInf});
    scaler.unscale(optimizer);
    scaler.update();
    EXPECT_EQ(scaler.get_scale(), 32);
    scaler.scale(Tensor::scalar(1));
    set_wave_gradients(model, 0, 32);
    scaler.step(optimizer);  // the next step is a new one
    scaler.update();
    EXPECT_EQ(optimizer.state().taken, 1);
    EXPECT_EQ(scaler.get_scale(), 32);
}

TEST(GradScaler, ServesTwoOptimizersAndBacksOffWhenEitherOverflows) {
    Weights first, second;
    Optimizer one(first, OptimizerSpec{}), two(second, OptimizerSpec{});
    GradScaler scaler(options_of(64));
    const std::string before = state_bytes(two);
    scaler.scale(Tensor::scalar(1));
    set_wave_gradients(first, 0, 64);
    set_gradient(second.a, {-kInf});
    scaler.step(one);
    scaler.step(two);
    scaler.update();
    EXPECT_EQ(one.state().taken, 1);
    EXPECT_EQ(two.state().skipped, 1);
    EXPECT_EQ(state_bytes(two), before);
    EXPECT_EQ(scaler.get_scale(), 32);
}

TEST(GradScaler, SavesPyTorchsFiveEntriesAndComesBackFromThem) {
    ScalerOptions options = options_of(64, 5);
    options.spec.hysteresis = 3;
    Rig rig(options);
    rig.steps(2, false);
    rig.steps(2, true);
    rig.steps(2, false);
    const std::map<std::string, double> saved = rig.scaler.state_dict();
    for (const char* key : {"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"})
        EXPECT_TRUE(saved.contains(key)) << key;
    EXPECT_EQ(saved.at("scale"), 64);
    EXPECT_EQ(saved.at("_growth_tracker"), 2);
    GradScaler other(options);
    other.load_state_dict(saved);
    EXPECT_EQ(other.state_dict(), saved);
    // PyTorch's own entries are enough.
    GradScaler plain;
    plain.load_state_dict({{"scale", 512},
                           {"growth_factor", 3},
                           {"backoff_factor", 0.25},
                           {"growth_interval", 7},
                           {"_growth_tracker", 6}});
    EXPECT_EQ(plain.get_scale(), 512);
    EXPECT_EQ(plain.growth_tracker(), 6);
    EXPECT_EQ(plain.spec().growth_interval, 7);
}

TEST(GradScaler, RefusesAStateThatCannotBe) {
    GradScaler scaler;
    const std::map<std::string, double> good = scaler.state_dict();
    for (const char* key : {"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"}) {
        std::map<std::string, double> bad = good;
        bad.erase(key);
        EXPECT_ERROR(scaler.load_state_dict(bad), Error, key);
        bad = good;
        bad[key] = -1.0;
        EXPECT_ERROR(scaler.load_state_dict(bad), Error, "scaler");
        bad[key] = double(kNan);
        EXPECT_ERROR(scaler.load_state_dict(bad), Error, "scaler");
    }
    EXPECT_EQ(scaler.state_dict(), good);
}

TEST(GradScalerMisuse, UnscaleTwice) {
    Rig rig(options_of(8));
    rig.scaler.scale(Tensor::scalar(1));
    rig.scaler.unscale(rig.optimizer);
    EXPECT_ERROR(rig.scaler.unscale(rig.optimizer), Error, "already called");
}

TEST(GradScalerMisuse, UnscaleAfterStep) {
    Rig rig(options_of(8));
    rig.scaler.scale(Tensor::scalar(1));
    rig.scaler.step(rig.optimizer);
    EXPECT_ERROR(rig.scaler.unscale(rig.optimizer), Error, "before step()");
}

TEST(GradScalerMisuse, StepTwiceBeforeUpdate) {
    Rig rig(options_of(8));
    rig.scaler.scale(Tensor::scalar(1));
    rig.scaler.step(rig.optimizer);
    EXPECT_ERROR(rig.scaler.step(rig.optimizer), Error, "already called");
    rig.scaler.update();
    rig.scaler.scale(Tensor::scalar(1));
    rig.scaler.step(rig.optimizer);
}

TEST(GradScalerMisuse, StepWithoutAScaledLoss) {
    Rig rig(options_of(8));
    const std::string before = state_bytes(rig.optimizer);
    set_wave_gradients(rig.model, 0);
    EXPECT_ERROR(rig.scaler.step(rig.optimizer), Error, "scaler.scale(loss)");
    EXPECT_EQ(state_bytes(rig.optimizer), before);
    rig.step(false);
    EXPECT_ERROR(rig.scaler.step(rig.optimizer), Error, "scaler.scale(loss)");
}

TEST(GradScalerMisuse, StepAndUpdateAfterOtherCalls) {
    Rig rig(options_of(1024));
    EXPECT_ERROR(rig.scaler.step_and_update(rig.optimizer), Error, "no loss was scaled");
    rig.scaler.scale(Tensor::scalar(1));
    rig.scaler.unscale(rig.optimizer);
    EXPECT_ERROR(rig.scaler.step_and_update(rig.optimizer), Error, "one optimizer by itself");
}

TEST(GradScalerMisuse, UpdateWithoutStep) {
    GradScaler scaler;
    EXPECT_ERROR(scaler.update(), Error, "no optimizer has stepped");
    scaler.scale(Tensor::scalar(1));
    EXPECT_ERROR(scaler.update(), Error, "no optimizer has stepped");
}

TEST(GradScalerMisuse, NumbersThatCannotBe) {
    const auto with = [](auto change) {
        ScalerOptions options;
        change(options);
        return options;
    };
    for (const double init : {0.0, -1.0, 1e39, double(kInf), double(kNan)}) {
        EXPECT_ERROR(GradScaler(options_of(init)), UsageError, "initial scale");
        GradScaler scaler;
        EXPECT_ERROR(scaler.set_scale(init), UsageError, "scale");
        EXPECT_EQ(scaler.get_scale(), 65536.0);
    }
    for (const double growth : {1.0, 0.5, -2.0, double(kNan)})
        EXPECT_ERROR(GradScaler(with([&](auto& o) { o.spec.growth_factor = growth; })), UsageError, "growth factor");
    for (const double backoff : {1.0, 1.5, 0.0, -0.5, double(kNan)})
        EXPECT_ERROR(GradScaler(with([&](auto& o) { o.spec.backoff_factor = backoff; })), UsageError, "backoff factor");
    EXPECT_ERROR(GradScaler(options_of(1, 0)), UsageError, "growth interval");
    EXPECT_ERROR(GradScaler(with([](auto& o) { o.spec.hysteresis = 0; })), UsageError, "hysteresis");
    EXPECT_ERROR(GradScaler(with([](auto& o) { o.spec.min_scale = 8, o.spec.max_scale = 4; })), UsageError,
                 "wrong way round");
}

TEST(GradScalerMisuse, GradientsReplacedByFp16) {
    Rig rig(options_of(8));
    rig.scaler.scale(Tensor::scalar(1));
    rig.model.b.value.set_grad(ops::zeros({1, 2}, Dtype::f16));
    const std::string before = state_bytes(rig.optimizer);
    EXPECT_ERROR(rig.scaler.unscale(rig.optimizer), Error, "gradient of b was replaced by f16");
    EXPECT_ERROR(rig.scaler.step(rig.optimizer), Error, "gradient of b was replaced by f16");
    EXPECT_ERROR(rig.model.b.value.set_grad(ops::zeros({2})), Error, "f32[2] on cpu is no gradient of f32[1, 2]");
    EXPECT_EQ(state_bytes(rig.optimizer), before);
}

}  // namespace
}  // namespace invar
