// Activation checkpointing: the same gradients and random numbers to the bit, with less memory.
#include <gtest/gtest.h>

#include "invar/amp/autocast.h"
#include "invar/autograd/node.h"
#include "invar/core/error.h"
#include "invar/ops/ops.h"
#include "tests/core/expect_error.h"

namespace invar::testing {
namespace {

using namespace invar::ops;

struct Outcome {
    std::vector<float> y, gx, gw;
    RngState rng;
};

Tensor small(const Shape& shape, std::uint64_t seed) {
    Generator generator(seed);
    return normal(shape, 0, 0.3, Dtype::f32, {}, generator).set_requires_grad();
}

Outcome run(bool checkpointed, bool x_learns = true) {
    default_generator().set_state({42, 5});
    const Tensor x = small({4, 8}, 1).set_requires_grad(x_learns), w = small({8, 8}, 2);
    const auto block = [&](const Tensor& in) { return dropout(gelu(linear(dropout(in, 0.3, true), w)), 0.5, true); };
    Tensor y;
    {
        const Autocast autocast(Dtype::bf16);
        y = checkpointed ? checkpoint(block, x) : block(x);
        y = checkpointed ? checkpoint(block, y) : block(y);
    }
    const Tensor noise = dropout(y, 0.5, true);  // the generator stands where it should after the region
    backward(sum(noise));
    return {noise.to_vector<float>(), x_learns ? x.grad().to_vector<float>() : std::vector<float>{},
            w.grad().to_vector<float>(), default_generator().state()};
}

TEST(Checkpoint, GivesTheSameResultsGradientsAndRandomNumbersToTheBit) {
    const Outcome plain = run(false), checkpointed = run(true);
    EXPECT_EQ(plain.y, checkpointed.y);
    EXPECT_EQ(plain.gx, checkpointed.gx);
    EXPECT_EQ(plain.gw, checkpointed.gw);
    EXPECT_EQ(plain.rng, checkpointed.rng);
}

TEST(Checkpoint, ReachesParametersWhereTheInputItselfWantsNoGradient) {
    const Outcome plain = run(false, false), checkpointed = run(true, false);
    EXPECT_EQ(plain.gw, checkpointed.gw);
}

std::int64_t peak(bool checkpointed) {
    const Tensor x = ones({1 << 14}).set_requires_grad();
    const auto block = [](const Tensor& in) {
        Tensor y = in;
        for (int i = 0; i < 8; ++i) y = exp(y * 0.1);
        return y;
    };
    reset_peak_memory(Device::cpu());
    Tensor y = x;
    for (int i = 0; i < 4; ++i) y = checkpointed ? checkpoint(block, y) : block(y);
    backward(sum(y));
    return memory_stats(Device::cpu()).peak_of(Purpose::activations);
}

TEST(Checkpoint, NeedsLessMemoryAtThePeak) {
    EXPECT_LT(double(peak(true)), 0.6 * double(peak(false)));
}

// What several results share is recomputed once, and is not kept until then.
TEST(Checkpoint, OfSeveralResultsRunsItsRegionOnceMoreAndKeepsOnlyItsInputs) {
    const Tensor x = ones({1 << 12}).set_requires_grad();
    int runs = 0;
    const auto region = [&](const Tensors& in) {
        ++runs;
        Tensor y = in[0] * in[1];
        for (int i = 0; i < 8; ++i) y = exp(y * 0.1);
        return Tensors{sum(y), sum(y * y)};
    };
    const std::int64_t before = memory_stats(Device::cpu()).live_total;
    const Tensors results = checkpoint(region, {x, x});
    EXPECT_LT(memory_stats(Device::cpu()).live_total - before, 1024);
    backward(results[0] + results[1] * 2.0);
    EXPECT_EQ(runs, 2);
    EXPECT_TRUE(x.grad());
    EXPECT_ERROR(backward(results[0]), Error, "keep_graph");
}

TEST(Checkpoint, MovesRunningStatisticsOnce) {
    const Tensor x = small({6, 2}, 3), mean = zeros({2}), variance = ones({2});
    const Tensor other_mean = zeros({2}), other_variance = ones({2});
    backward(sum(checkpoint([&](const Tensor& in) { return batch_norm(in, {}, {}, mean, variance, true); }, x)));
    batch_norm(x, {}, {}, other_mean, other_variance, true);
    EXPECT_EQ(mean.to_vector<float>(), other_mean.to_vector<float>());
    EXPECT_EQ(variance.to_vector<float>(), other_variance.to_vector<float>());
}

TEST(Checkpoint, RefusesASecondBackward) {
    const Tensor x = small({2}, 1);
    const Tensor y = checkpoint([](const Tensor& in) { return sum(in * in); }, x);
    backward(y);
    EXPECT_ERROR(backward(y), Error, "keep_graph");
}

TEST(Checkpoint, SeesThatItsInputWasChanged) {
    const Tensor x = small({2}, 1);
    const Tensor y = checkpoint([](const Tensor& in) { return sum(in * in); }, x);
    x.bump_version();
    EXPECT_ERROR(backward(y), Error, "checkpoint");
}

TEST(Checkpoint, OfTheIdentityIsNoLoop) {
    const Tensor x = small({2}, 1);
    backward(sum(checkpoint([](const Tensor& in) { return in; }, x)));
    EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{1, 1}));
}

TEST(Checkpoint, PutsEverythingBackWhenTheRegionThrowsTheSecondTime) {
    const Tensor x = small({2}, 1);
    int calls = 0;
    const Tensor y = checkpoint(
        [&](const Tensor& in) {
            if (++calls == 2) throw Error("second time");
            return sum(in);
        },
        x);
    const RngState before = default_generator().state();
    EXPECT_ERROR(backward(y), Error, "second time");
    EXPECT_EQ(default_generator().state(), before);
    EXPECT_FALSE(recomputing());
    EXPECT_TRUE(GradMode::recording());
}

}  // namespace
}  // namespace invar::testing
