// Batch norm with a residual sum and a ReLU in its pass, held against the ops that it stands for.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "invar/autograd/node.h"
#include "invar/core/error.h"
#include "invar/core/rng.h"
#include "invar/ops/ops.h"
#include "tests/core/expect_error.h"

namespace invar {
namespace {

using namespace invar::ops;

struct Leaves {
    Tensor x, gamma, beta, residual, mean, variance;
    explicit Leaves(Dtype dtype) {
        default_generator().set_state({7, 0});
        const Dtype wide = dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32;
        x = uniform({6, 5, 7, 24}, -2, 3, dtype), residual = uniform(x.shape(), -1, 1, dtype);
        gamma = uniform({24}, -1, 2, wide), beta = uniform({24}, -1, 1, wide);
        mean = zeros({24}, wide), variance = ones({24}, wide);
        for (Tensor* leaf : {&x, &gamma, &beta, &residual}) leaf->set_requires_grad();
    }
    std::vector<std::vector<double>> all(const Tensor& y, bool with_residual) const {
        backward(sum(cast(y, Dtype::f64) * cast(uniform(y.shape(), -1, 1, Dtype::f64), Dtype::f64)));
        std::vector<std::vector<double>> values{y.to_vector<double>(), mean.to_vector<double>(),
                                                variance.to_vector<double>()};
        for (const Tensor& leaf : {x, gamma, beta}) values.push_back(leaf.grad().to_vector<double>());
        if (with_residual) values.push_back(residual.grad().to_vector<double>());
        return values;
    }
};

void expect_parts(Dtype dtype, bool training, bool relu_behind, bool with_residual, double tolerance) {
    const Leaves one(dtype), two(dtype);
    const auto norm = [&](const Leaves& l, const BatchNormEnd& end) {
        return batch_norm(l.x, l.gamma, l.beta, l.mean, l.variance, training, 0.1, 1e-5, end);
    };
    const Tensor fused =
        norm(one, {relu_behind ? Activation::relu : Activation::none, with_residual ? one.residual : Tensor()});
    Tensor parts = norm(two, {});
    if (with_residual) parts = parts + two.residual;
    if (relu_behind) parts = relu(parts);
    default_generator().set_state({8, 0});
    const auto ours = one.all(fused, with_residual);
    default_generator().set_state({8, 0});
    const auto theirs = two.all(parts, with_residual);
    for (std::size_t i = 0; i < ours.size(); ++i) {
        ASSERT_EQ(ours[i].size(), theirs[i].size());
        for (std::size_t k = 0; k < ours[i].size(); ++k)
            ASSERT_NEAR(ours[i][k], theirs[i][k], tolerance * (1 + std::abs(theirs[i][k]))) << i << ", " << k;
    }
}

TEST(BatchNorm, KeepsItsRunningStatisticsFromABatchThatIsNotFinite) {
    const Tensor mean = full({2}, 5), variance = full({2}, 7);
    const Tensor x = Tensor::from(std::vector<double>{1, 1, std::numeric_limits<double>::infinity(), 3, 1, 1, 1, 3},
                                  {4, 2}, Dtype::f32);
    const Tensor y = batch_norm(x, {}, {}, mean, variance, true, 0.5, 1e-5, {});
    EXPECT_TRUE(std::isnan(y.to_vector<double>()[2]));  // it is seen in the result
    EXPECT_EQ(mean.to_vector<double>(), (std::vector<double>{5, 3.5}));
    EXPECT_EQ(variance.to_vector<double>()[0], 7);
    EXPECT_NEAR(variance.to_vector<double>()[1], (7 + 4.0 / 3) / 2, 1e-6);
}

TEST(BatchNormEnd, IsTheNormThenTheSumThenTheRelu) {
    for (const bool training : {true, false})
        for (const bool relu_behind : {true, false})
            for (const bool with_residual : {true, false}) {
                expect_parts(Dtype::f64, training, relu_behind, with_residual, 1e-12);
                expect_parts(Dtype::f32, training, relu_behind, with_residual, 2e-6);
            }
}

// Without a sum nothing is rounded in between: the same bits.
TEST(BatchNormEnd, HasTheBitsOfItsPartsWithoutASum) {
    for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16})
        for (const bool training : {true, false}) expect_parts(dtype, training, true, false, 0);
}

// 256 + 1 would be rounded to 256 in BF16, and that + 1 again.
TEST(BatchNormEnd, RoundsTheSumOnce) {
    const Tensor x = full({2, 1}, 256, Dtype::bf16), r = full({2, 1}, 1, Dtype::bf16);
    const Tensor zero = zeros({1}), one = full({1}, 1 - 1e-5);  // the norm is x itself
    const Tensor y = batch_norm(x, {}, ones({1}), zero, one, false, 0.1, 1e-5, {Activation::none, r});
    EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{258, 258}));
}

TEST(BatchNormEnd, LetsNanAndInfinitiesThrough) {
    const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
    const Tensor x = Tensor::from(std::vector<float>{nan, inf, -inf, 1}, {4, 1});
    const Tensor y = batch_norm(x, {}, {}, zeros({1}), ones({1}), false, 0.1, 1e-5, {Activation::relu, {}});
    const auto values = y.to_vector<float>();
    EXPECT_TRUE(std::isnan(values[0]));
    EXPECT_EQ(values[1], inf);
    EXPECT_EQ(values[2], 0);
}

TEST(BatchNormEnd, RefusesWhatDoesNotFit) {
    const Tensor x = ones({4, 3}), m = zeros({3}), v = ones({3});
    EXPECT_ERROR(batch_norm(x, {}, {}, m, v, true, 0.1, 1e-5, {Activation::relu, ones({4, 2})}), Error, "one shape");
    EXPECT_ERROR(batch_norm(x, {}, {}, m, v, true, 0.1, 1e-5, {Activation::gelu, {}}), Error, "only ReLU");
}

}  // namespace
}  // namespace invar
