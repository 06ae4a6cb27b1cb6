// The backward engine: order, accumulation, what is freed and when, and the errors of misuse.
#include <gtest/gtest.h>

#include <thread>

#include "invar/core/error.h"
#include "invar/ops/apply.h"
#include "invar/ops/ops.h"
#include "tests/core/expect_error.h"

namespace invar::testing {
namespace {

using namespace invar::ops;

std::int64_t live_activations() {
    return memory_stats(Device::cpu()).live[int(Purpose::activations)];
}

Tensor leaf(const std::vector<double>& values) {
    return Tensor::from(values, {std::int64_t(values.size())}).set_requires_grad();
}

TEST(Autograd, ASecondBackwardIsAnErrorThatSaysWhatToDo) {
    const Tensor x = leaf({1, 2});
    const Tensor y = sum(exp(x));
    backward(y);
    EXPECT_ERROR(backward(y), Error, "keep_graph");
    const Tensor z = sum(x + x);  // saves nothing, and is refused all the same
    backward(z);
    EXPECT_ERROR(backward(z), Error, "sum");
}

TEST(Autograd, AKeptGraphRunsAgain) {
    const Tensor x = leaf({1, 2});
    const Tensor y = sum(x * x);
    backward(y, {}, true);
    backward(y, {}, true);
    backward(y);
    EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{6, 12}));
}

TEST(Autograd, ChangingASavedTensorInPlaceIsAnErrorThatNamesTheOp) {
    const Tensor x = leaf({1, 2});
    const ModuleScope scope("block");
    const Tensor h = x * 2.0, y = sum(h * h);
    kernels_for(h.device()).fill(h.view(), 0);
    h.bump_version();
    EXPECT_ERROR(backward(y), Error, "mul in block");
}

TEST(Autograd, ChangingAViewOfASavedTensorIsSeenToo) {
    const Tensor x = leaf({1, 2});
    const Tensor h = x * 2.0, y = sum(exp(h) * h);
    slice(h, 0, 0, 1).bump_version();
    EXPECT_ERROR(backward(y), Error, "changed in place");
}

TEST(Autograd, AGradientOfAnotherShapeIsAnError) {
    const Tensor x = leaf({1, 2});
    EXPECT_ERROR(backward(x * 2.0, ones({3}, Dtype::f64)), Error, "[3]");
    EXPECT_ERROR(backward(x * 2.0), Error, "only a scalar");
}

struct WrongShape {
    static constexpr const char* kName = "test_wrong_shape";
    static constexpr CastClass kCast = CastClass::keep;
    Tensor forward(Context&, const Tensors& in) { return in[0].detach(); }
    Tensors backward(Context&, const Tensor& g) { return {zeros({7}, g.dtype())}; }
};

TEST(Autograd, AnOpThatReturnsAWrongShapeIsFoundAtTheNextOne) {
    const Tensor x = leaf({1, 2});
    EXPECT_ERROR(backward(sum(apply(WrongShape{}, {exp(x)}))), Error,
                 "exp: a gradient of shape [7] for a result of shape [2]");
}

TEST(Autograd, WithoutAnythingToDifferentiateBackwardSaysSo) {
    EXPECT_ERROR(backward(ones({})), Error, "does not depend on anything");
}

TEST(Autograd, NothingIsRecordedUnderNoGrad) {
    const Tensor x = leaf({1, 2});
    {
        const NoGrad no_grad;
        EXPECT_FALSE((x * x).requires_grad());
        const GradMode again(true);
        EXPECT_TRUE((x * x).requires_grad());
    }
    EXPECT_TRUE((x * x).requires_grad());
}

TEST(Autograd, ADiamondAddsBothPathsBeforeGoingOn) {
    const Tensor x = leaf({3});
    const Tensor h = x * x;          // 9
    backward(sum(h * 2.0 + h * h));  // d/dh = 2 + 2 h = 20, d/dx = 20 * 2 x
    EXPECT_EQ(x.grad().item(), 120);
}

TEST(Autograd, SeveralResultsGoBackAtOnceThroughWhatTheyShare) {
    const Tensor x = leaf({3});
    const Tensor h = x * x;
    int runs = 0;
    register_hook(h, [&](const Tensor&) {
        ++runs;
        return Tensor();
    });
    const Tensor a = h * 2.0, b = sum(h);
    backward(Tensors{a, b}, Tensors{full({1}, 10, Dtype::f64), {}});  // d/dh = 20 + 1
    EXPECT_EQ(x.grad().item(), 126);
    EXPECT_EQ(runs, 1);
    EXPECT_ERROR(backward(Tensors{a, b}, Tensors{a}), Error, "1 gradients for 2 results");
}

TEST(Autograd, ALeafUsedTwiceAndTwoBackwardsAccumulate) {
    const Tensor x = leaf({3});
    backward(sum(x * x));
    EXPECT_EQ(x.grad().item(), 6);
    backward(sum(x * x + x));
    EXPECT_EQ(x.grad().item(), 13);
}

TEST(Autograd, WeightGradientsAccumulateStraightIntoTheLeaf) {
    const Tensor w = ones({1, 2}).set_requires_grad(), b = zeros({1}).set_requires_grad();
    const Tensor k = ones({1, 1, 1, 2}).set_requires_grad(), table = ones({2, 2}).set_requires_grad();
    for (const Tensor& t : {w, b, k, table}) t.set_grad(full_like(t, 10));
    const Tensor held = w.grad();
    backward(sum(linear(ones({3, 2}), w, b)));
    backward(sum(conv2d(ones({1, 3, 1, 2}), k, b)));
    backward(sum(embedding(Tensor::from(std::vector<std::int64_t>{1, 1}, {2}), table)));
    EXPECT_TRUE(w.grad().same_as(held));
    EXPECT_EQ(w.grad().to_vector<double>(), (std::vector<double>{13, 13}));
    EXPECT_EQ(b.grad().item(), 16);
    EXPECT_EQ(k.grad().to_vector<double>(), (std::vector<double>{13, 13}));
    EXPECT_EQ(table.grad().to_vector<double>(), (std::vector<double>{10, 10, 12, 12}));
}

TEST(Autograd, OneFreshAndOneHeldGradientInOneConvolution) {
    const Tensor k = ones({1, 1, 1, 1}).set_requires_grad(), b = zeros({1}).set_requires_grad();
    b.set_grad(full({1}, 5));
    backward(sum(conv2d(full({1, 2, 1, 1}, 3), k, b)));
    EXPECT_EQ(k.grad().item(), 6);
    EXPECT_EQ(b.grad().item(), 7);
}

TEST(Autograd, ABiasLearnsBesideAFrozenWeight) {
    const Tensor k = ones({1, 1, 1, 1}), b = zeros({1}).set_requires_grad();
    backward(sum(conv2d(ones({1, 2, 2, 1}), k, b)));
    EXPECT_EQ(b.grad().item(), 4);
}

struct SecondOnly {
    static constexpr const char* kName = "test_second_only";
    static constexpr CastClass kCast = CastClass::low;
    Tensor forward(Context&, const Tensors& in) { return in[1].detach(); }
    Tensors backward(Context&, const Tensor& g) { return {Tensor{}, g}; }
};

TEST(Autograd, AnUndefinedFirstInputIsNoCrash) {
    const Tensor x = leaf({1, 2});
    backward(sum(apply(SecondOnly{}, {Tensor{}, x})));
    EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{1, 1}));
}

TEST(Autograd, AChainOfAHundredThousandOpsDoesNotOverflowTheStack) {
    const Tensor x = leaf({1});
    {
        Tensor y = x;
        for (int i = 0; i < 100000; ++i) y = y + 0.0;
        backward(y);
    }
    EXPECT_EQ(x.grad().item(), 1);
    Tensor dropped = x;
    for (int i = 0; i < 100000; ++i) dropped = exp(dropped * 0.0);  // each saves its own result, and is never run
}

TEST(Autograd, AGraphThatIsDroppedLeavesNoMemoryBehind) {
    const std::int64_t before = live_activations();
    {
        const Tensor x = leaf({1, 2, 3});
        Tensor y = x;
        for (int i = 0; i < 10; ++i) y = softmax(relu(tanh(exp(y * 0.1))));
    }
    EXPECT_EQ(live_activations(), before);
}

// Notes how much memory was live when backward came by.
struct Probe {
    static constexpr const char* kName = "test_probe";
    static constexpr CastClass kCast = CastClass::keep;
    std::vector<std::int64_t>* seen;
    Tensor forward(Context&, const Tensors& in) { return in[0].detach(); }
    Tensors backward(Context&, const Tensor& g) {
        seen->push_back(live_activations());
        return {g};
    }
};

TEST(Autograd, SavedTensorsAreFreedAsBackwardGoes) {
    std::vector<std::int64_t> seen;
    const Tensor x = ones({1000}).set_requires_grad();
    Tensor y = x;
    for (int i = 0; i < 8; ++i) y = exp(apply(Probe{&seen}, {y}) * 0.01);
    const Tensor loss = sum(y);
    y = {};
    backward(loss);
    ASSERT_EQ(seen.size(), 8u);
    for (std::size_t i = 1; i < seen.size(); ++i) EXPECT_LT(seen[i], seen[i - 1]);
}

TEST(Autograd, AGraphBegunOnOneThreadContinuesOnAnother) {
    const Tensor x = leaf({2});
    Tensor h;
    for (int i = 0; i < 50; ++i) h = x * x;  // so that this thread is ahead
    Tensor y;
    std::thread([&] { y = sum(h * h + h); }).join();
    backward(y);
    EXPECT_EQ(x.grad().item(), 36);  // (2 h + 1) 2 x at h = 4
}

TEST(Autograd, ViewsShareMemory) {
    const Tensor x = ones({2, 3, 4});
    for (const Tensor& view :
         {reshape(x, {6, 4}), permute(x, {2, 1, 0}), slice(x, 1, 1, 3), expand(unsqueeze(x, 0), {5, 2, 3, 4})})
        EXPECT_EQ(view.storage(), x.storage());
    EXPECT_NE(reshape(transpose(x, 0, 2), {24}).storage(), x.storage());
}

}  // namespace
}  // namespace invar::testing
