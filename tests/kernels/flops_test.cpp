// What products and convolutions count, where they are made.
#include "invar/kernels/flops.h"

#include <gtest/gtest.h>

#include "invar/autograd/node.h"
#include "invar/ops/ops.h"

namespace invar {
namespace {

Tensor leaf(const Shape& shape) {
    return ops::uniform(shape, -1, 1).set_requires_grad();
}

// What f counts forward, and with its gradients.
template <class F>
std::pair<double, double> flops_of(const F& f) {
    const FlopCount all;
    double forward = 0;
    Tensor y;
    {
        const FlopCount inner;
        y = f();
        forward = inner.count();
    }
    backward(y, ops::ones_like(y));
    return {forward, all.count()};
}

TEST(FlopCount, OfAProductIsTwiceItsThreeSizes) {
    const Tensor a = leaf({5, 3, 4}), b = leaf({5, 4, 7});
    const double product = 2.0 * 5 * 3 * 4 * 7;
    EXPECT_EQ(flops_of([&] { return ops::matmul(a, b); }), std::pair(product, 3 * product));
}

TEST(FlopCount, LeavesOutTheGradientsThatNobodyWants) {
    const Tensor x = ops::uniform({6, 4}, -1, 1), w = leaf({5, 4}), b = leaf({5});
    const double product = 2.0 * 6 * 4 * 5;
    EXPECT_EQ(flops_of([&] { return ops::linear(x, w, b); }), std::pair(product, 2 * product));
}

TEST(FlopCount, OfAConvolutionKnowsItsGroups) {
    const Tensor x = leaf({2, 5, 6, 4}), w = leaf({8, 3, 3, 2});
    const double product = 2.0 * (2 * 3 * 4 * 8) * (3 * 3 * 2);
    EXPECT_EQ(flops_of([&] { return ops::conv2d(x, w, {}, {.groups = 2}); }), std::pair(product, 3 * product));
}

TEST(FlopCount, OfATransposedConvolutionIsThatOfTheOneItReverses) {
    const Tensor x = leaf({1, 3, 3, 2}), w = leaf({2, 2, 2, 5});
    const double product = 2.0 * (3 * 3 * 2) * (2 * 2 * 5);
    EXPECT_EQ(flops_of([&] { return ops::conv_transpose2d(x, w, {}, {}); }), std::pair(product, 3 * product));
}

TEST(FlopCount, EndsWithItsScope) {
    const FlopCount count;
    ops::matmul(leaf({2, 2}), leaf({2, 2}));
    const double before = count.count();
    { const FlopCount other; }
    EXPECT_EQ(count.count(), before);
    EXPECT_EQ(FlopCount().count(), 0);
}

}  // namespace
}  // namespace invar
