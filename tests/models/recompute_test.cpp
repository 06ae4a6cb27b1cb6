// Levels of recomputation on models that have everything in them: the same bits for less memory.
#include <gtest/gtest.h>

#include <map>

#include "invar/amp/autocast.h"
#include "invar/autograd/node.h"
#include "invar/core/error.h"
#include "invar/core/memory.h"
#include "invar/core/rng.h"
#include "invar/kernels/flops.h"
#include "invar/models/gpt.h"
#include "invar/models/llama.h"
#include "invar/ops/checkpoint.h"
#include "invar/ops/ops.h"
#include "tests/core/expect_error.h"

namespace invar {
namespace {

constexpr std::int64_t kBatch = 3, kLength = 16, kWidth = 32, kHidden = 128, kLayers = 4, kVocabulary = 31;

struct Outcome {
    double loss = 0;
    std::map<std::string, std::vector<float>> gradients;
    std::int64_t kept = 0;  // bytes that are there for backward alone
};

Outcome train_once(Module& model, Recompute level, const char* precision) {
    model.set_recompute(level == Recompute::light ? level : Recompute::none);
    for (Module* block : model.checkpoint_blocks())
        block->set_recompute(level == Recompute::block ? level : Recompute::none);
    for (const Parameter* parameter : model.parameters()) parameter->value.set_grad({});
    default_generator().set_state({5, 0});
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < kBatch * kLength; ++i) ids.push_back(i * 7 % kVocabulary);
    const Tensor tokens = Tensor::from(ids, {kBatch, kLength});
    Outcome outcome;
    const std::int64_t before = memory_stats({}).live_total;
    Tensor loss;
    {
        const Autocast cast(Precision::parse(precision));
        loss = model(tokens, tokens)[0];
    }
    outcome.kept = memory_stats({}).live_total - before;
    outcome.loss = loss.item();
    backward(loss);
    for (const Parameter* parameter : model.parameters())
        outcome.gradients[parameter->name] = parameter->value.grad().to_vector<float>();
    return outcome;
}

void expect_same_bits(Module& model, const char* precision) {
    const Outcome all = train_once(model, Recompute::none, precision);
    for (const Recompute level : {Recompute::light, Recompute::block}) {
        const Outcome some = train_once(model, level, precision);
        EXPECT_EQ(some.loss, all.loss) << precision;
        EXPECT_EQ(some.gradients, all.gradients) << precision << ", level " << int(level);
        EXPECT_LT(some.kept, all.kept) << precision;
    }
}

TEST(Recompute, ChangesNoBitOfGpt) {
    for (const char* precision : {"32-true", "16-mixed", "bf16-mixed"})
        for (const double dropout : {0.0, 0.1})
            expect_same_bits(*make_gpt({.layers = kLayers,
                                        .heads = 4,
                                        .width = kWidth,
                                        .vocabulary = kVocabulary,
                                        .length = kLength,
                                        .dropout = dropout}),
                             precision);
}

TEST(Recompute, ChangesNoBitOfLlama) {
    for (const char* precision : {"32-true", "16-mixed", "bf16-mixed"})
        expect_same_bits(*make_llama({.layers = kLayers,
                                      .heads = 4,
                                      .kv_heads = 2,
                                      .width = kWidth,
                                      .hidden = kHidden,
                                      .vocabulary = kVocabulary,
                                      .length = kLength}),
                         precision);
}

// Of a block's activations, light leaves out both norms and what stands behind GELU: 2 widths and a hidden one.
TEST(Recompute, LightKeepsNeitherNormsNorActivations) {
    const auto gpt =
        make_gpt({.layers = kLayers, .heads = 4, .width = kWidth, .vocabulary = kVocabulary, .length = kLength});
    const std::int64_t saved =
        train_once(*gpt, Recompute::none, "32-true").kept - train_once(*gpt, Recompute::light, "32-true").kept;
    const std::int64_t expected = kLayers * kBatch * kLength * (2 * kWidth + kHidden) * std::int64_t(sizeof(float));
    EXPECT_GE(saved, expected);
    EXPECT_LE(saved, expected + expected / 10);  // the norm before the head is one more
}

// As a user writes it: the product of two activations, from casts, in a chain.
TEST(Recompute, LightServesWhatUsersWrite) {
    Generator generator(3);
    const Tensor x = ops::normal({64, 32}, 0, 1, Dtype::f32, {}, generator);
    const auto weight = [&](std::int64_t out, std::int64_t in) {
        return ops::normal({out, in}, 0, 0.2, Dtype::f32, {}, generator).set_requires_grad();
    };
    const Tensor gate = weight(48, 32), up = weight(48, 32), down = weight(32, 48);
    const auto run = [&](bool light) {
        for (const Tensor& w : {gate, up, down}) w.set_grad({});
        const std::int64_t before = memory_stats({}).live_total;
        Tensor loss;
        {
            const Autocast cast(Precision::parse("bf16-mixed"));
            const LightRecompute scope(light);
            const Tensor h = ops::gelu(ops::layer_norm(x, {32}));
            loss = ops::mean(ops::linear(ops::silu(ops::linear(h, gate)) * ops::linear(h, up), down));
        }
        const std::int64_t kept = memory_stats({}).live_total - before;
        backward(loss);
        std::vector<std::vector<float>> gradients;
        for (const Tensor& w : {gate, up, down}) gradients.push_back(w.grad().to_vector<float>());
        return std::pair(gradients, kept);
    };
    const auto whole = run(false), light = run(true);
    EXPECT_EQ(light.first, whole.first);
    EXPECT_LT(light.second, whole.second);
}

// An activation that one op reads begins its backward early, in the memory of its gradient. Who else reads it, or looks
// at that gradient, must see nothing of it.
TEST(Recompute, LightShowsTheSameGradientsToEveryone) {
    Generator generator(3);
    const auto leaf = [&](const Shape& shape) {
        return ops::normal(shape, 0, 0.5, Dtype::f32, {}, generator).set_requires_grad();
    };
    const Tensor x = leaf({16, 24}), w = leaf({32, 24}), b = leaf({32}), u = leaf({16, 32}), gates = leaf({64, 24});
    const auto run = [&](bool light, bool watched, bool twice, bool gated) {
        for (const Tensor& each : {x, w, b, u, gates}) each.set_grad({});
        const LightRecompute scope(light);
        const Tensor h = gated ? ops::swiglu(ops::linear(x, gates)) : ops::linear(x, w, b, Activation::gelu_tanh);
        std::shared_ptr<const Tensor> seen;
        if (watched) seen = retain_grad(h);
        Tensor loss = ops::sum(ops::linear(h, u));
        if (twice) loss = loss + ops::sum(ops::linear(h, u) * ops::linear(h, u));
        backward(loss, {}, true);
        backward(loss);
        std::vector<std::vector<float>> all;
        if (watched) all.push_back(seen->to_vector<float>());
        for (const Tensor& each : {x, w, b, u, gates})
            if (each.grad()) all.push_back(each.grad().to_vector<float>());
        return all;
    };
    for (const bool watched : {false, true})
        for (const bool twice : {false, true})
            for (const bool gated : {false, true})
                EXPECT_EQ(run(true, watched, twice, gated), run(false, watched, twice, gated))
                    << watched << twice << gated;
}

TEST(Recompute, NoticesWhatWasChangedInPlace) {
    const Tensor x = ops::normal({8, 8}).set_requires_grad(), w = ops::normal({8, 8}).set_requires_grad();
    const LightRecompute scope(true);
    const Tensor y = ops::gelu(x), loss = ops::mean(ops::linear(y, w));
    ops::copy_(y.detach(), x.detach());
    EXPECT_ERROR(backward(loss), Error, "the result of gelu) was changed in place");
}

TEST(Recompute, ABlockDoesNotComputeItsLastProductAgain) {
    const Tensor x = ops::normal({8, 16}).set_requires_grad(), w = ops::normal({16, 16}).set_requires_grad();
    const double product = 2.0 * 8 * 16 * 16;
    const auto flops_of_second_run = [&](const std::function<Tensor(const Tensor&)>& region) {
        double last = 0;
        backward(ops::sum(ops::checkpoint(
            [&](const Tensor& in) {
                const FlopCount count;
                const Tensor y = region(in);
                last = count.count();
                return y;
            },
            x)));
        return last;
    };
    EXPECT_EQ(flops_of_second_run([&](const Tensor& in) { return ops::linear(ops::linear(in, w), w); }), product);
    // What comes behind it reads it.
    EXPECT_EQ(flops_of_second_run([&](const Tensor& in) { return ops::gelu(ops::linear(in, w)); }), product);
    // A region that takes another way the second time has all of it computed.
    int runs = 0;
    EXPECT_EQ(flops_of_second_run([&](const Tensor& in) {
                  const Tensor y = ops::linear(runs++ == 0 ? in : ops::gelu(in), w);
                  return y;
              }),
              product);
    EXPECT_EQ(runs, 3);
}

}  // namespace
}  // namespace invar
