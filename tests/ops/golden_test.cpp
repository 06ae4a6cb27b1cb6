// Values that PyTorch 1.13 gives for the same inputs, in f64.
#include <gtest/gtest.h>

#include <cmath>

#include "invar/autograd/node.h"
#include "invar/ops/ops.h"

namespace invar::testing {
namespace {

using namespace invar::ops;

// Inputs that any language makes again: ((i * a) mod m - m / 2) / 8.
Tensor sequence(const Shape& shape, int a = 37, int m = 17) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < shape.numel(); ++i) values.push_back(double(i * a % m - m / 2) / 8);
    return Tensor::from(values, shape).set_requires_grad();
}

Tensor vector(const std::vector<double>& values) {
    return Tensor::from(values, {std::int64_t(values.size())});
}

void expect_near(const Tensor& got, const std::vector<double>& expected) {
    const std::vector<double> values = got.to_vector<double>();
    ASSERT_EQ(values.size(), expected.size());
    for (std::size_t i = 0; i < values.size(); ++i)
        EXPECT_NEAR(values[i], expected[i], 5e-9 * (1 + std::fabs(expected[i]))) << i;
}

TEST(Golden, Conv2dWithStridePaddingDilationAndGroups) {
    const Tensor x = sequence({1, 5, 4, 4}), w = sequence({4, 3, 2, 2}, 23, 13), b = sequence({4}, 5, 7);
    const Tensor y = conv2d(x, w, b, {{2, 1}, {1, 2}, {1, 3}, 2});
    ASSERT_EQ(y.shape(), (Shape{1, 3, 5, 4}));
    expect_near(
        y, {-0.3125,   1.0625,   -0.859375, 0.609375,  -0.625,    -0.1875,   0.578125,  -1.375,   -1.03125,  1.203125,
            0.234375,  -1,       0.171875,  -0.6875,   0.34375,   -0.421875, 0.015625,  0.25,     -0.1875,   0.5,
            -0.796875, -0.3125,  -0.546875, -0.859375, -0.234375, -0.359375, 0.515625,  -0.8125,  -0.484375, 1.4375,
            -0.109375, -0.03125, 0.140625,  0.015625,  0.140625,  0.640625,  -0.921875, 1.390625, -0.421875, -0.53125,
            -0.5625,   -0.875,   0.390625,  -0.6875,   -0.03125,  1.109375,  0.546875,  0.5625,   -0.140625, 0.25,
            -0.65625,  -0.28125, 0.203125,  1.3125,    -0.25,     -0.3125,   -1.234375, -0.09375, 0.0625,    -0.9375});
    backward(y, sequence(y.shape(), 7, 11).detach());
    expect_near(sum(x.grad(), {0, 1, 2}), {-0.46875, 1.828125, -0.171875, -2.703125});
    expect_near(sum(w.grad(), {1, 2}), {1.3125, 1.453125, 0.40625, -2.78125, 1.453125, 1.3125, -1.015625, -3.96875});
    expect_near(b.grad(), {-0.75, 0, 0.75, 0.125});
}

TEST(Golden, ConvTranspose2dWithOutputPaddingAndGroups) {
    const Tensor x = sequence({1, 2, 3, 4}), w = sequence({4, 3, 3, 1}, 23, 13), b = sequence({2}, 5, 7);
    const Tensor y = conv_transpose2d(x, w, b, {{2, 2}, {1, 1}, {1, 1}, 2, {1, 1}});
    ASSERT_EQ(y.shape(), (Shape{1, 4, 6, 2}));
    expect_near(
        y, {0.71875,   0.140625, -1.765625, 0.9375,   -1.34375,  -0.71875,  0.3125,   -1.140625, -0.484375, 1.34375,
            -0.328125, 0.734375, -0.609375, 0.328125, -0.65625,  -0.015625, -0.65625, 0.640625,  -0.796875, 0.65625,
            -0.171875, -0.375,   -0.453125, 0.640625, 0.375,     0.484375,  -0.84375, 0.8125,    -0.09375,  -0.375,
            -0.625,    0.0625,   -0.828125, 0.359375, -0.046875, 0.359375,  -0.1875,  0.0625,    0.296875,  0.5625,
            -0.21875,  0.609375, -0.03125,  0.640625, -0.515625, 0.359375,  -0.75,    -1.0625});
}

TEST(Golden, BatchNormAndItsRunningStatistics) {
    const Tensor mean = zeros({3}, Dtype::f64), variance = ones({3}, Dtype::f64);
    const Tensor y = batch_norm(sequence({6, 3}), vector({1, 2, 0.5}), vector({0, 0.25, -1}), mean, variance, true);
    expect_near(y, {-1.20256846, -2.15513691, -1.24388169, 0.765270835, 1.78054167, -0.420780978, -0.983919645,
                    -1.71783929, -1.15242606, 0.983919645, 2.21783929, -0.329325343, -0.765270835, -1.28054167,
                    -1.06097042, 1.20256846, 2.65513691, -1.7926155});
    expect_near(mean, {-0.03125, 0.00625, 0.00833333333});
    expect_near(variance, {0.93921875, 0.93921875, 0.956041667});
}

TEST(Golden, GroupNorm) {
    const Tensor y = group_norm(sequence({2, 4, 4}), 2, vector({1, 2, 0.5, -1}), vector({0, 0.25, -1, 0.5}));
    expect_near(y, {-1.37961711, -1.2829079,    -1.27440642, 0.390237433,  1.07303553,   3.62239738,   -1.82321925,
                    1.48786311,  0.05109693,    1.57852018,  -0.506068447, -1.14643851,  -0.970841669, -0.465357019,
                    -1.05488128, -0.0488128364, 1.10938826,  -2.70836868,  -1.51093258,  0.859033706,  0.184898043,
                    1.72918434,  -0.185269667,  1.9637528,   -0.73959217,  -0.119796085, -0.737629215, -0.687573028,
                    1.47918434,  -1.96877651,   -1.28998876, 0.417146068});
}

TEST(Golden, BilinearWithAndWithoutAlignedCorners) {
    const Tensor x = sequence({1, 2, 3, 1});
    expect_near(upsample(x, Pair{4, 5}, Interpolation::bilinear),
                {-1,       -0.85,    -0.625,  -0.4,    -0.25,   -0.71875, -0.56875, -0.34375, -0.11875, 0.03125,
                 -0.15625, -0.00625, 0.21875, 0.44375, 0.59375, 0.125,    0.275,    0.5,      0.725,    0.875});
    expect_near(upsample(x, Pair{4, 5}, Interpolation::bilinear, true),
                {-1,    -0.8125, -0.625, -0.4375, -0.25, -0.625, -0.4375, -0.25, -0.0625, 0.125,
                 -0.25, -0.0625, 0.125,  0.3125,  0.5,   0.125,  0.3125,  0.5,   0.6875,  0.875});
}

TEST(Golden, CrossEntropyWithSmoothingAndAnIgnoredRow) {
    const Tensor x = sequence({4, 3}), target = Tensor::from(std::vector<std::int64_t>{2, -100, 0, 1}, {4});
    const Tensor loss = cross_entropy(x, target, {Reduction::mean, -100, 0.1});
    expect_near(loss, {1.14494887});
    backward(loss);
    expect_near(x.grad(), {0.0617965788, 0.0949689517, -0.15676553, 0, 0, 0, -0.238203421, 0.0949689517, 0.14323447,
                           0.0617965788, -0.205031048, 0.14323447});
}

TEST(Golden, Gelu) {
    expect_near(gelu(sequence({5})), {-0.158655254, -0.166240956, -0.100323419, 0.0687172781, 0.345731231});
}

}  // namespace
}  // namespace invar::testing
