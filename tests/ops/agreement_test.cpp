// What PyTorch does at the edges: bounds that cross, targets that are all ignored, whole numbers, factors.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "invar/autograd/node.h"
#include "invar/core/error.h"
#include "invar/ops/ops.h"
#include "tests/core/expect_error.h"

namespace invar::testing {
namespace {

using namespace invar::ops;

constexpr double kInf = std::numeric_limits<double>::infinity();

Tensor vector(const std::vector<double>& values, Dtype dtype = Dtype::f32) {
    return Tensor::from(values, {std::int64_t(values.size())}, dtype);
}
Tensor ids(const std::vector<std::int64_t>& values) {
    return Tensor::from(values, {std::int64_t(values.size())});
}

TEST(ClassLosses, GiveIgnoredRowsAZeroGradientEvenWhereAllAreIgnored) {
    for (const bool fused : {true, false}) {
        const Tensor x = full({3, 4}, -1).set_requires_grad();
        const Tensor target = ids({-100, -100, -100});
        const Tensor loss = fused ? cross_entropy(x, target) : nll_loss(x, target);
        EXPECT_TRUE(std::isnan(loss.item()));  // a mean of nothing
        backward(loss);
        EXPECT_EQ(x.grad().to_vector<double>(), std::vector<double>(12, 0.0)) << fused;
    }
}

TEST(ClassLosses, NeverReadIgnoredRows) {
    for (const bool fused : {true, false}) {
        const Tensor x =
            Tensor::from(std::vector<double>{-kInf, -kInf, -1, -2}, {2, 2}, Dtype::f32).set_requires_grad();
        const Tensor loss = fused ? cross_entropy(x, ids({255, 0}), {Reduction::mean, 255})
                                  : nll_loss(x, ids({255, 0}), {Reduction::mean, 255});
        EXPECT_NEAR(loss.item(), fused ? std::log1p(std::exp(-1.0)) : 1, 1e-6);
        backward(loss);
        EXPECT_EQ(x.grad().to_vector<double>()[0], 0) << fused;
    }
    // An ignored index beside a class that FP32 cannot tell from it.
    const std::int64_t many = (1 << 24) + 2;
    const Tensor x = full({1, many}, -3);
    EXPECT_EQ(nll_loss(x, ids({1 << 24}), {Reduction::sum, (1 << 24) + 1}).item(), 3);
}

TEST(Clamp, TakesTheUpperBoundWhereBoundsCross) {
    const Tensor x = vector({0, 1.5, 3}).set_requires_grad();
    const Tensor y = clamp(x, 2, 1);
    EXPECT_EQ(y.to_vector<double>(), (std::vector<double>{1, 1, 1}));
    backward(sum(y));
    EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{0, 0, 0}));
    EXPECT_ERROR(clamp(x, std::nan(""), 1), UsageError, "clamp: bounds nan and 1");
}

// The slope is 0, whatever the gradient times the exponent would be.
TEST(Pow, MultipliesTheGradientLast) {
    const Tensor x = vector({0.5}).set_requires_grad();
    backward(pow(x, 1000.0), full({1}, 1e36));
    EXPECT_EQ(x.grad().item(), 0);
    const Tensor a = vector({2}).set_requires_grad(), b = vector({-3e38}).set_requires_grad();
    backward(pow(a, b), full({1}, 1.8));
    EXPECT_EQ(a.grad().item(), 0);
    EXPECT_EQ(b.grad().item(), 0);
}

TEST(Division, OfWholeNumbersIsTrueDivision) {
    const Tensor y = ids({7, 1, -3}) / ids({2, 0, 2});
    EXPECT_EQ(y.dtype(), Dtype::f32);
    EXPECT_EQ(y.to_vector<double>(), (std::vector<double>{3.5, kInf, -1.5}));
    const Tensor bytes = vector({7}, Dtype::u8) / vector({2}, Dtype::u8);
    EXPECT_EQ(bytes.dtype(), Dtype::f32);
    EXPECT_EQ(bytes.item(), 3.5);
    EXPECT_EQ((ids({7}) / vector({2})).item(), 3.5);
    EXPECT_ERROR(pow(ids({2}), ids({-1})), Error, "pow: needs a floating");
    EXPECT_ERROR(mse_loss(ids({2}), ids({1})), Error, "mse_loss: needs a floating");
}

TEST(Bce, IsNaNForWhatIsNoProbability) {
    for (const double target : {0.0, 0.5, 1.0}) {
        const Tensor x = vector({1.5, -0.25, 0.5}).set_requires_grad();
        const Tensor y = bce(x, full({3}, target), Reduction::none);
        backward(y, ones({3}));
        const std::vector<double> values = y.to_vector<double>(), slopes = x.grad().to_vector<double>();
        for (const int i : {0, 1}) {
            EXPECT_TRUE(std::isnan(values[std::size_t(i)])) << target;
            EXPECT_TRUE(std::isnan(slopes[std::size_t(i)])) << target;
        }
        EXPECT_FALSE(std::isnan(values[2]) || std::isnan(slopes[2]));
    }
    const Tensor ends = vector({0, 1}).set_requires_grad();
    const Tensor y = bce(ends, vector({1, 0}), Reduction::none);
    EXPECT_EQ(y.to_vector<double>(), (std::vector<double>{100, 100}));
    backward(y, ones({2}));
    for (const double v : ends.grad().to_vector<double>()) EXPECT_NEAR(std::fabs(v), 1e12, 1e6);
}

// Where the size is cut off, positions follow the factor and not the sizes.
TEST(Upsample, ByAFactorReadsWherePyTorchReads) {
    const Tensor x = Tensor::from(std::vector<double>{0, 1, 2, 3, 4}, {1, 1, 5, 1});
    const auto near = [](const Tensor& got, const std::vector<double>& expected) {
        const std::vector<double> values = got.to_vector<double>();
        ASSERT_GE(values.size(), expected.size());
        for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(values[i], expected[i], 1e-12) << i;
    };
    const Tensor nearest = upsample(x, 1.5), bilinear = upsample(x, 1.5, Interpolation::bilinear);
    EXPECT_EQ(nearest.shape(), (Shape{1, 1, 7, 1}));
    near(nearest, {0, 0, 1, 2, 2, 3, 4});
    near(bilinear, {0, 0.5, 7.0 / 6, 11.0 / 6, 2.5, 19.0 / 6, 23.0 / 6});
    // To the size alone: positions by 5 / 7.
    near(upsample(x, Pair{1, 7}, Interpolation::bilinear), {0, 4.0 / 7, 9.0 / 7, 2, 19.0 / 7, 24.0 / 7, 4});
    near(upsample(x, 1.5, Interpolation::bilinear, true), {0, 2.0 / 3, 4.0 / 3, 2, 8.0 / 3, 10.0 / 3, 4});
}

}  // namespace
}  // namespace invar::testing
