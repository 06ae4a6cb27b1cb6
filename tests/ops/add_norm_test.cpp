// A residual sum with its norm in one pass: the dtypes and bits of the two ops, and gradients that come on both ways,
// whatever else looks at the sum or uses it.
#include <gtest/gtest.h>

#include <cmath>

#include "invar/amp/autocast.h"
#include "invar/autograd/watch.h"
#include "invar/ops/ops.h"
#include "tests/core/expect_error.h"
#include "tests/ops/gradcheck.h"

namespace invar::testing {
namespace {

using namespace invar::ops;
using Numbers = std::vector<double>;

constexpr std::int64_t kRows = 5, kColumns = 37;

Tensor leaf(std::uint64_t seed, Dtype dtype, const Shape& shape = {kRows, kColumns}) {
    return Tensor::from(random_values(shape.numel(), -2, 2, seed), shape, dtype).set_requires_grad();
}

// What a block of a model does with them: the norm feeds a product, the sum goes on and is added to.
struct Block {
    Tensor x, branch, gamma, beta, weight;
    Tensor sum, normed;

    Block(Dtype stream, Dtype branches)
        : x(leaf(1, stream)),
          branch(leaf(2, branches)),
          gamma(leaf(3, Dtype::f32, {kColumns})),
          beta(leaf(4, Dtype::f32, {kColumns})),
          weight(leaf(5, Dtype::f32, {kColumns, kColumns})) {}

    // The loss; sum and normed stay for whoever wants to see them.
    Tensor run(bool fused, bool rms) {
        if (fused) {
            const Tensors both = rms ? add_rms_norm(x, branch, gamma) : add_layer_norm(x, branch, gamma, beta);
            sum = both[0], normed = both[1];
        } else {
            sum = x + branch;
            normed = rms ? rms_norm(sum, gamma) : layer_norm(sum, {kColumns}, gamma, beta);
        }
        return ops::sum(affine(sum, 0.5, 0) + linear(normed, weight));
    }
    std::vector<Numbers> gradients() const {
        std::vector<Numbers> all;
        for (const Tensor& t : {x, branch, gamma, beta, weight})
            all.push_back(t.grad() ? t.grad().to_vector<double>() : Numbers{});
        return all;
    }
};

struct Formats {
    Dtype stream, branch, low;  // low f32: no autocast
};
constexpr Formats kFormats[] = {{Dtype::f64, Dtype::f64, Dtype::f32},    {Dtype::f32, Dtype::f32, Dtype::f32},
                                {Dtype::f32, Dtype::bf16, Dtype::bf16},  {Dtype::f32, Dtype::f16, Dtype::f16},
                                {Dtype::bf16, Dtype::bf16, Dtype::bf16}, {Dtype::f16, Dtype::f16, Dtype::f16},
                                {Dtype::f16, Dtype::f16, Dtype::f32},    {Dtype::bf16, Dtype::f32, Dtype::bf16}};

CastPolicy policy_of(Dtype low) {
    return low == Dtype::f32 ? Autocast::off() : CastPolicy{CastPolicy::Mode::low, low, Level::O1};
}

TEST(AddNorm, HasTheDtypesAndBitsOfTheTwoOpsForwardAndBackward) {
    for (const Formats& f : kFormats)
        for (const bool rms : {false, true}) {
            if (f.stream == Dtype::f16 && f.low == Dtype::f32 && rms) continue;  // no product of 16 bits by f32
            const std::string what =
                fmt::format("{} + {}, autocast {}, rms {}", name_of(f.stream), name_of(f.branch), name_of(f.low), rms);
            Block one(f.stream, f.branch), two(f.stream, f.branch);
            if (f.low == Dtype::f32)
                for (Block* block : {&one, &two}) block->weight = leaf(5, f.stream, {kColumns, kColumns});
            const Autocast cast(policy_of(f.low));
            backward(one.run(true, rms));
            const Tensor loss = two.run(false, rms);
            {
                OpWatcher watcher;  // with it, the engine makes every sum of gradients by itself
                const WatchScope apart(&watcher);
                backward(loss);
            }
            EXPECT_EQ(name_of(one.sum.dtype()), name_of(two.sum.dtype())) << what;
            EXPECT_EQ(name_of(one.normed.dtype()), name_of(two.normed.dtype())) << what;
            EXPECT_EQ(one.sum.to_vector<double>(), two.sum.to_vector<double>()) << what;
            EXPECT_EQ(one.normed.to_vector<double>(), two.normed.to_vector<double>()) << what;
            EXPECT_EQ(one.gradients(), two.gradients()) << what;
            EXPECT_EQ(one.branch.grad().dtype(), f.branch) << what;
        }
}

// Told of every node, an op gives its own part alone; a sum that the engine makes has the same bits.
TEST(AddNorm, GivesTheSameGradientsWhereEachNodesPartIsWatched) {
    struct Parts : OpWatcher {
        void backward(const BackwardRun& run) override {
            if (std::string(run.node.name()) == "layer_norm") seen = run.outgoing[0].to_vector<double>();
        }
        Numbers seen;
    } parts;
    for (const Formats& f : kFormats) {
        if (f.low == Dtype::f32) continue;
        Block free(f.stream, f.branch), watched(f.stream, f.branch), alone(f.stream, f.branch);
        const Autocast cast(policy_of(f.low));
        backward(free.run(true, false));
        {
            const Tensor loss = watched.run(true, false);
            const WatchScope scope(&parts);
            backward(loss);
        }
        EXPECT_EQ(free.gradients(), watched.gradients()) << name_of(f.stream);
        alone.run(true, false);
        const auto kept = retain_grad(alone.sum);
        backward(ops::sum(linear(alone.normed, alone.weight)));
        EXPECT_EQ(parts.seen, kept->to_vector<double>()) << "what the norm alone sends to the sum";
    }
}

TEST(AddNorm, LetsHooksSeeAndChangeTheWholeGradientOfTheSum) {
    Block one(Dtype::f32, Dtype::bf16), two(Dtype::f32, Dtype::bf16);
    const Autocast cast(Dtype::bf16);
    const Tensor a = one.run(true, false), b = two.run(false, false);
    const auto first = retain_grad(one.sum), second = retain_grad(two.sum);
    for (const Tensor& sum : {one.sum, two.sum}) register_hook(sum, [](const Tensor& g) { return g * 3.0; });
    backward(a), backward(b);
    EXPECT_EQ(first->to_vector<double>(), second->to_vector<double>());
    EXPECT_EQ(one.gradients(), two.gradients());
    // A gradient that is changed in place is another one too.
    Block three(Dtype::f32, Dtype::bf16);
    const Tensor c = three.run(true, false);
    register_hook(three.sum, [](const Tensor& g) {
        kernels_for(g.device()).fill(g.view(), 7);
        g.bump_version();
        return Tensor();
    });
    backward(c);
    EXPECT_EQ(three.branch.grad().to_vector<double>(), Numbers(std::size_t(kRows * kColumns), 7.0));
}

TEST(AddNorm, RunsBackwardTwiceOverAKeptGraph) {
    Block one(Dtype::f32, Dtype::bf16);
    const Autocast cast(Dtype::bf16);
    const Tensor loss = one.run(true, false);
    backward(loss, {}, true);
    const std::vector<Numbers> once = one.gradients();
    for (const Tensor& t : {one.x, one.branch, one.gamma, one.beta, one.weight}) t.set_grad({});
    backward(loss, {}, true);
    EXPECT_EQ(one.gradients(), once);
    one.x.set_grad({});
    backward(loss);
    EXPECT_EQ(one.gradients()[0], once[0]);
    EXPECT_ERROR(backward(loss), Error, "keep_graph");
}

TEST(AddNorm, IsTheSameInACheckpointedRegion) {
    for (const Formats& f : kFormats) {
        if (f.low == Dtype::f32) continue;
        Block one(f.stream, f.branch), two(f.stream, f.branch);
        const Autocast cast(policy_of(f.low));
        backward(one.run(true, true));
        const Tensors both = checkpoint([&](const Tensors& in) { return add_rms_norm(in[0], in[1], two.gamma); },
                                        Tensors{two.x, two.branch});
        backward(sum(affine(both[0], 0.5, 0) + linear(both[1], two.weight)));
        EXPECT_EQ(one.gradients(), two.gradients()) << name_of(f.stream);
    }
}

// Consumers before, after and none at all; a chain of blocks as in a model, with the sum used at its end again.
TEST(AddNorm, AddsUpWhatEveryUseOfTheSumSendsBack) {
    const auto check = [](const Function& run) {
        const Tensors in{leaf(1, Dtype::f64), leaf(2, Dtype::f64), leaf(3, Dtype::f64, {kColumns})};
        EXPECT_EQ(gradient_mismatch(run, in), "");
    };
    check([](const Tensors& in) { return add_rms_norm(in[0], in[1], in[2])[1]; });
    check([](const Tensors& in) { return add_rms_norm(in[0], in[1], in[2])[0] * in[2]; });
    check([](const Tensors& in) {
        const Tensors both = add_rms_norm(in[0], in[1], in[2]);
        const Tensor early = tanh(both[0]), late = sigmoid(both[1]);
        return early * late + both[0] * both[0];
    });
    check([](const Tensors& in) {
        Tensors a = add_layer_norm(in[0], in[1], in[2]);
        const Tensor first = a[0];
        for (int i = 0; i < 3; ++i) a = add_layer_norm(a[0], tanh(a[1]), in[2]);
        return a[0] + a[1] * first;
    });
    check([](const Tensors& in) {  // the same tensor twice
        const Tensors both = add_rms_norm(in[0], in[0], in[2]);
        return both[0] + both[1] * in[1];
    });
    check([](const Tensors& in) {  // a norm by itself, beside another use of what it normalises
        const Tensor h = in[0] * in[1];
        return tanh(h) + rms_norm(h, in[2]) * h;
    });
}

TEST(AddNorm, LeavesFrozenPartsAlone) {
    const Tensor x = leaf(1, Dtype::f32).detach(), branch = leaf(2, Dtype::f32),
                 gamma = leaf(3, Dtype::f32, {kColumns});
    const Tensors both = add_rms_norm(x, branch, gamma.detach());
    backward(sum(both[0] + both[1]));
    EXPECT_FALSE(x.grad());
    EXPECT_TRUE(branch.grad());
    const Tensors only = add_rms_norm(x, x, gamma);
    EXPECT_FALSE(only[0].requires_grad());
    backward(sum(only[1]));
    EXPECT_TRUE(gamma.grad());
    const NoGrad no_grad;
    EXPECT_FALSE(add_rms_norm(x, branch, gamma)[1].requires_grad());
}

TEST(AddNorm, LeavesNoMemoryBehind) {
    const auto live = [] { return memory_stats(Device::cpu()).live[int(Purpose::activations)]; };
    const std::int64_t before = live();
    {
        Block block(Dtype::f32, Dtype::bf16);
        const Autocast cast(Dtype::bf16);
        backward(block.run(true, false));
        block.run(true, true);  // and a graph that nobody runs
    }
    EXPECT_EQ(live(), before);
}

TEST(AddNorm, SaysWhatDoesNotFit) {
    const Tensor x = zeros({2, 4}), gamma = ones({4});
    EXPECT_ERROR(add_layer_norm(x, zeros({4}), gamma, gamma), Error, "add_layer_norm: a branch f32[4]");
    EXPECT_ERROR(add_rms_norm(x, x, ones({3})), Error, "it must be [4]");
    EXPECT_ERROR(add_rms_norm(x, zeros({2, 4}, Dtype::i64), gamma), Error, "needs a floating");
    EXPECT_ERROR(rms_norm(Tensor::scalar(1)), Error, "rms_norm");
    EXPECT_ERROR(rms_norm(x, ones({3})), Error, "it must be [4]");
}

// --- autocast makes no FP32 copies for ops that widen what they read ---

struct Casts : OpWatcher {
    void forward(const ForwardRun& run) override { count += std::string(run.op) == "cast"; }
    int count = 0;
};

TEST(Autocast, WidensNoActivationThatIsReadOnce) {
    for (const Dtype low : {Dtype::f16, Dtype::bf16}) {
        const Tensor x = leaf(1, low), gamma = leaf(3, Dtype::f32, {kColumns});
        gamma.set_shadow(full({kColumns}, 100, low));  // different on purpose: norms use the master
        const Tensor target = zeros({kRows}, Dtype::i64);
        Casts casts;
        const WatchScope watch(&casts);
        const Autocast cast(low);
        const Tensor normed = layer_norm(x, {kColumns}, gamma, gamma), root = rms_norm(x, gamma);
        EXPECT_EQ(normed.dtype(), low);
        EXPECT_EQ(softmax(x).dtype(), Dtype::f32);
        EXPECT_EQ(log_softmax(x).dtype(), Dtype::f32);
        const Tensor loss = cross_entropy(x, target);
        EXPECT_EQ(loss.dtype(), Dtype::f32);
        EXPECT_EQ(casts.count, 0);
        for (const double v : root.to_vector<double>()) EXPECT_LT(std::fabs(v), 10);
        backward(loss);
        EXPECT_EQ(x.grad().dtype(), low);
        EXPECT_EQ(layer_norm(leaf(1, Dtype::f32), {kColumns}, gamma).dtype(), low) << "of FP32 too";
        EXPECT_EQ(layer_norm(leaf(1, Dtype::f64), {kColumns}).dtype(), Dtype::f64);
        const Autocast pin(Autocast::fp32());
        EXPECT_EQ(layer_norm(x, {kColumns}, gamma).dtype(), Dtype::f32);
        EXPECT_EQ(rms_norm(x, gamma).dtype(), Dtype::f32);
        EXPECT_EQ(add_rms_norm(x, x, gamma)[0].dtype(), Dtype::f32);
    }
}

// What is written in 16 bits was computed in FP32: half a unit of the last digit away, as if FP32 had been rounded.
TEST(Autocast, RoundsANormOnce) {
    const Tensor x = leaf(1, Dtype::f32), gamma = leaf(3, Dtype::f32, {kColumns});
    const Numbers wide = cast(rms_norm(x, gamma), Dtype::bf16).to_vector<double>();
    const Tensor logits = leaf(7, Dtype::bf16);
    const Numbers probabilities = softmax(cast(logits, Dtype::f32)).to_vector<double>();
    const Autocast low(Dtype::bf16);
    EXPECT_EQ(rms_norm(x, gamma).to_vector<double>(), wide);
    EXPECT_EQ(softmax(logits).to_vector<double>(), probabilities);
}

}  // namespace
}  // namespace invar::testing
