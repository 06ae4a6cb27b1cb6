// Gradients of results between leaves and loss: looked at, kept and changed.
#include <gtest/gtest.h>

#include "invar/autograd/node.h"
#include "invar/core/error.h"
#include "invar/ops/ops.h"
#include "tests/core/expect_error.h"

namespace invar {
namespace {

Tensor leaf(const std::vector<float>& values) {
    Tensor x = Tensor::from(values, {std::int64_t(values.size())});
    x.set_requires_grad();
    return x;
}

TEST(GradientHooks, SeeTheWholeGradientOnce) {
    const Tensor x = leaf({1, 2, 3});
    const Tensor y = x * 2.0;
    int calls = 0;
    std::vector<float> seen;
    register_hook(y, [&](const Tensor& gradient) {
        ++calls;
        seen = gradient.to_vector<float>();
        return Tensor();
    });
    backward(ops::sum(y * y + y));  // y is used three times
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(seen, (std::vector<float>{5, 9, 13})) << "2y + 1";
    EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{10, 18, 26}));
}

TEST(GradientHooks, MayChangeTheGradientOneAfterTheOther) {
    const Tensor x = leaf({1, 2});
    const Tensor y = x * 3.0;
    register_hook(y, [](const Tensor& gradient) { return gradient * 10.0; });
    register_hook(y, [](const Tensor& gradient) { return gradient + 1.0; });
    backward(ops::sum(y));
    EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{33, 33}));
}

TEST(GradientHooks, RefuseAGradientOfAnotherShape) {
    const Tensor x = leaf({1, 2});
    const Tensor y = x * 3.0;
    register_hook(y, [](const Tensor&) { return Tensor::scalar(1); });
    EXPECT_ERROR(backward(ops::sum(y)), Error, "a gradient hook returned");
}

TEST(GradientHooks, BelongToRecordedResults) {
    const GradientHook none = [](const Tensor&) { return Tensor(); };
    EXPECT_ERROR(register_hook(leaf({1}), none), Error, "not to leaves");
    EXPECT_ERROR(register_hook(Tensor::scalar(1), none), Error, "not to tensors without gradients");
    EXPECT_ERROR(register_hook(Tensor(), none), Error, "not to an undefined tensor");
}

TEST(KeptGradient, IsThatOfAnIntermediateResult) {
    const Tensor x = leaf({1, 2});
    const Tensor y = x * 3.0;
    const std::shared_ptr<const Tensor> kept = retain_grad(y);
    EXPECT_FALSE(*kept);
    backward(ops::sum(y * y));
    EXPECT_EQ(kept->to_vector<float>(), (std::vector<float>{6, 12}));
}

TEST(KeptGradient, DoesNotKeepTheGraphAlive) {
    std::weak_ptr<Node> node;
    {
        const Tensor y = leaf({1}) * 3.0;
        retain_grad(y);
        node = y.node();
    }
    EXPECT_TRUE(node.expired());
}

}  // namespace
}  // namespace invar
