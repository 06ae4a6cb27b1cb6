// Values that PyTorch 1.13 gives for the forms that vision models use, and what those forms refuse.
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

// Inputs that any language makes again: ((i * 37) mod 17 - 8) / 8.
Tensor sequence(const Shape& shape) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < shape.numel(); ++i) values.push_back(double(i * 37 % 17 - 8) / 8);
    return Tensor::from(values, shape).set_requires_grad();
}

void expect_near(const Tensor& got, const std::vector<double>& expected) {
    const std::vector<double> values = got.to_vector<double>();
    ASSERT_EQ(values.size(), expected.size());
    for (std::size_t i = 0; i < values.size(); ++i)
        EXPECT_NEAR(values[i], expected[i], 5e-9 * (1 + std::fabs(expected[i]))) << i;
}

// The sum's gradient waits at the input that both read when the convolution's comes, which adds it on the way.
TEST(Conv2d, AddsTheGradientThatIsPending) {
    for (const std::int64_t side : {1, 3}) {
        const Tensor start = sequence({2, 3, 4, 8}), w = sequence({8, side, side, 8}), apart = sequence({2, 3, 4, 8});
        const Conv2dOptions options{.padding = {side / 2, side / 2}};
        const Tensor both = tanh(start), weights = w.detach();
        const auto squares = [](const Tensor& y) { return sum(y * y); };
        backward(squares(conv2d(both, w, {}, options) + both));
        const Tensor one = tanh(apart), alone = one.detach().set_requires_grad();
        backward(squares(conv2d(alone, weights, {}, options) + one.detach()));
        const Tensor other = one.detach().set_requires_grad();
        backward(squares(conv2d(alone.detach(), weights, {}, options) + other));
        backward(one, alone.grad() + other.grad());
        expect_near(start.grad(), apart.grad().to_vector<double>());
    }
}

TEST(Golden, BicubicWithAndWithoutAlignedCorners) {
    const Tensor x = sequence({1, 3, 4, 1});
    const Tensor y = upsample(x, Pair{4, 5}, Interpolation::bicubic);
    expect_near(y, {-1.13044727,    -0.895450851, -0.468902588, -0.0423543243, 0.19264209,  0.00535595703, 0.432764999,
                    -0.205718994,   -0.844202988, -0.416793945, 0.416793945,   0.844202988, 0.205718994,   -0.432764999,
                    -0.00535595703, -0.19264209,  0.0423543243, 0.468902588,   0.895450851, 1.13044727});
    expect_near(upsample(x, Pair{2, 6}, Interpolation::bicubic, true),
                {-1, -0.811, -0.532, -0.343, -0.064, 0.125, -0.125, 0.064, 0.343, 0.532, 0.811, 1});
    expect_near(upsample(x, 0.7, 1.3, Interpolation::bicubic),
                {-0.723133317, -0.436389253, -0.348062881, -0.354492086, -0.0457995598, 0.1548163, 0.485181046,
                 0.367300052, 0.0934614791, 0.438714208});
    backward(sum(y));
    expect_near(x.grad(), {1.64754297, 1.65812109, 1.65812109, 1.64754297, 1.68891406, 1.69975781, 1.69975781,
                           1.68891406, 1.64754297, 1.65812109, 1.65812109, 1.64754297});
}

TEST(Golden, PaddingByTheImageItself) {
    const Tensor x = sequence({1, 3, 2, 2});
    expect_near(pad(x, {1, 1, 2, 1}, PadMode::reflect),
                {0.625,  1,    -0.125, 0.25,  0.625,  1,     -0.125, 0.25,   -0.875, -0.5,  0.5,    0.875,
                 -0.875, -0.5, 0.5,    0.875, -0.25,  0.125, -1,     -0.625, -0.25,  0.125, -1,     -0.625,
                 -0.875, -0.5, 0.5,    0.875, -0.875, -0.5,  0.5,    0.875,  0.625,  1,     -0.125, 0.25,
                 0.625,  1,    -0.125, 0.25,  -0.875, -0.5,  0.5,    0.875,  -0.875, -0.5,  0.5,    0.875});
    expect_near(
        pad(x, {0, 3, 1, 0}, PadMode::replicate),
        {-1,     -0.625, -0.25,  0.125, -0.25, 0.125, -0.25, 0.125, -0.25,  0.125, -1,     -0.625, -0.25,  0.125,
         -0.25,  0.125,  -0.25,  0.125, -0.25, 0.125, 0.5,   0.875, -0.875, -0.5,  -0.875, -0.5,   -0.875, -0.5,
         -0.875, -0.5,   -0.125, 0.25,  0.625, 1,     0.625, 1,     0.625,  1,     0.625,  1});
    expect_near(
        pad(x, {2, 0, 1, 3}, PadMode::circular),
        {-0.125, 0.25,  0.625, 1,     -0.125, 0.25,   0.625,  1,     -1,     -0.625, -0.25,  0.125, -1,    -0.625,
         -0.25,  0.125, 0.5,   0.875, -0.875, -0.5,   0.5,    0.875, -0.875, -0.5,   -0.125, 0.25,  0.625, 1,
         -0.125, 0.25,  0.625, 1,     -1,     -0.625, -0.25,  0.125, -1,     -0.625, -0.25,  0.125, 0.5,   0.875,
         -0.875, -0.5,  0.5,   0.875, -0.875, -0.5,   -0.125, 0.25,  0.625,  1,      -0.125, 0.25,  0.625, 1});
}

TEST(Golden, DeviationsNormsAndProducts) {
    const Tensor x = sequence({2, 3, 4});
    expect_near(std(x, {0, 2}), {0.467707173, 0.745335195, 0.604807747});
    expect_near(norm(x, 2, {1}),
                {1.125, 1.10397011, 1.10397011, 1.125, 1.06800047, 1.17924764, 1.07529066, 0.984250984});
    expect_near(prod(x, 2), {-0.01953125, 0.19140625, -0.01953125, 0, -0.1171875, -0.0478515625});
    backward(sum(std(x, {0, 2})) + sum(norm(x, 2, {1})) + sum(prod(x, 2)));
    expect_near(x.grad(), {-1.07934861,  -0.630338961, -0.129240318,  0.0884917321, 0.95004446,  1.20600706,
                           -1.15210034,  -0.896137746, -0.0545090694, 0.137258411,  0.612392485, 1.03543757,
                           -0.835877504, -0.337089453, 0.200919194,   0.590991357,  0.716701478, -0.895525764,
                           -0.486577535, 0.193786024,  -0.306368669,  0.376274674,  0.895600581, -1.11111327});
}

TEST(Golden, ConvolutionOfSizeSameUnderAnEvenKernel) {
    const Tensor x = sequence({1, 3, 4, 2}), w = sequence({2, 2, 4, 2});
    const Tensor y = conv2d(x, w, {}, {.padding = "same"});
    expect_near(y, {-1.53125,  0.765625, 5.8125,    0.515625,  -1.53125,  -2.34375, -0.515625, 0.828125,
                    2.3125,    -0.65625, -2.546875, -2.734375, -0.515625, 2.4375,   0.8125,    -0.734375,
                    -1.203125, -0.75,    0.171875,  3.8125,    0.484375,  -0.75,    -0.765625, -0.734375});
    backward(sum(y));
    expect_near(w.grad(), {-0.75,  0.5,  -0.75, -0.5,  -0.375, 0.875,  -0.125, 0,     0,    0.125,  0.875,
                           -0.375, 0.25, 0.375, 0.25,  -0.375, -0.75,  0.5,    -0.75, -0.5, -0.375, 0.875,
                           -0.125, 0,    0,     0.125, 0.875,  -0.375, 0.25,   0.375, 0.25, -0.375});
}

TEST(Golden, PoolingWithRoundedUpSizes) {
    const Tensor x = sequence({1, 5, 4, 1});
    expect_near(max_pool2d(x, {.kernel = {2, 3}, .stride = 2, .padding = {0, 1}, .ceil_mode = true}),
                {0.875, 0.875, 0.125, 0.25, 1, 1, 0.75, -0.25, -0.25});
    expect_near(avg_pool2d(x, {.kernel = 3, .stride = 2, .padding = 1, .ceil_mode = true}),
                {-0.0277777778, -0.138888889, -0.0625, 0.0416666667, 0.152777778, 0.145833333, -0.152777778,
                 -0.208333333, 0.0208333333});
    expect_near(
        avg_pool2d(
            x, {.kernel = {2, 3}, .stride = {2, 3}, .padding = {0, 1}, .ceil_mode = true, .count_include_pad = false}),
        {-0.0625, -0.375, -0.25, 0.5, -0.125, -0.4375});
}

TEST(Convolution, OfSizeSameKeepsTheSize) {
    const Tensor x = ones({1, 7, 6, 2});
    for (const std::int64_t k : {1, 2, 3, 4, 5})
        for (const std::int64_t dilation : {1, 2, 3})
            EXPECT_EQ(conv2d(x, ones({3, k, 3, 2}), {}, {.padding = "same", .dilation = {dilation, 1}}).shape(),
                      (Shape{1, 7, 6, 3}))
                << k << ", " << dilation;
    EXPECT_EQ(conv1d(ones({0, 5, 2}), ones({3, 4, 2}), {}, {.padding = "same"}).shape(), (Shape{0, 5, 3}));
}

TEST(Convolution, RefusesPaddingThatItDoesNotKnow) {
    const Tensor x = ones({1, 5, 5, 2}), w = ones({3, 3, 3, 2});
    EXPECT_ERROR(conv2d(x, w, {}, {.padding = "full"}), UsageError,
                 "\"full\"; it may be a number, \"same\" or \"valid\"");
    EXPECT_ERROR(conv2d(x, w, {}, {.stride = 2, .padding = "same"}), UsageError, "stride (2, 2)");
    EXPECT_ERROR(conv_transpose2d(x, ones({2, 2, 2, 3}), {}, {.padding = "same"}), UsageError, "\"same\"");
    EXPECT_ERROR(conv1d(ones({1, 5, 2}), ones({3, 3, 2}), {}, {.padding = {0, 1}}), UsageError, "takes one number");
    EXPECT_ERROR(conv1d(x, w), Error, "[batch, length, channels], not [1, 5, 5, 2]");
    EXPECT_ERROR(conv1d(ones({1, 5, 2}), w), Error, "3 dimensions");
}

TEST(Padding, RefusesWhatItCannotMean) {
    const Tensor x = ones({1, 3, 4, 2});
    EXPECT_ERROR(pad(x, {1}), Error, "1 amounts");
    EXPECT_ERROR(pad(ones({4, 2}), {1, 1, 1, 1}), Error, "4 amounts for f32[4, 2]");
    EXPECT_ERROR(pad(x, {-2, -3}), Error, "nothing is left of 4 pixels");
    EXPECT_ERROR(pad(x, {4, 0}, PadMode::reflect), Error, "reflect of 4 needs more than 4 pixels");
    EXPECT_ERROR(pad(x, {5, 0}, PadMode::circular), Error, "circular of 5 needs more than 4 pixels");
    EXPECT_ERROR(pad(x, {-1, 0}, PadMode::replicate), Error, "takes no -1");
    EXPECT_ERROR(pad(ones({1, 3, 2}, Dtype::i64), {1, 1}, PadMode::reflect), Error, "needs a floating tensor");
    EXPECT_ERROR(pad(ones({1, 3, 2}, Dtype::u8), {1, 1}, PadMode::constant, 300), UsageError, "300 does not fit in u8");
    EXPECT_EQ(pad(ones({0, 3, 2}), {1, 1}, PadMode::replicate).shape(), (Shape{0, 5, 2}));
    EXPECT_EQ(pad(ones({2, 3, 2}), {-3, 0}).shape(), (Shape{2, 0, 2}));
}

TEST(Reductions, RefuseWhatTheyCannotMean) {
    const Tensor x = ones({2, 3});
    EXPECT_ERROR(norm(x, 3), UsageError, "norm: p may be 1, 2 or infinity, not 3");
    EXPECT_ERROR(norm(ones({2}, Dtype::i64)), Error, "norm: needs a floating tensor");
    EXPECT_ERROR(norm(zeros({0}), std::numeric_limits<double>::infinity()), Error, "nothing to choose from");
    EXPECT_ERROR(amax(zeros({2, 0}), {1}), Error, "amax: nothing to choose from");
    EXPECT_ERROR(amin(x, {0, 0}), Error, "named twice");
    EXPECT_ERROR(std(ones({2}, Dtype::i64)), Error, "std: needs a floating tensor");
    EXPECT_EQ(norm(zeros({0})).item(), 0);
    EXPECT_EQ(prod(zeros({0})).item(), 1);
    EXPECT_EQ(amax(zeros({0, 3}), {1}).shape(), (Shape{0}));
    EXPECT_TRUE(std::isnan(ops::std(ones({1})).item()));
}

// In three pixels and their padding a third window of two would begin behind the last pixel.
TEST(Pooling, HasNoWindowThatBeginsInThePaddingBehind) {
    const Tensor x = ones({1, 3, 4, 1});
    EXPECT_EQ(max_pool2d(x, {.kernel = 2, .padding = 1, .ceil_mode = true}).shape(), (Shape{1, 2, 3, 1}));
    EXPECT_EQ(avg_pool2d(x, {.kernel = 2, .padding = 1, .ceil_mode = true}).shape(), (Shape{1, 2, 3, 1}));
}

TEST(Pooling, RefusesWhatBelongsToAverages) {
    EXPECT_ERROR(max_pool2d(ones({1, 4, 4, 1}), {.count_include_pad = false}), UsageError, "avg_pool2d");
}

// A weight below 1 takes no digits away: the two terms of the loss have one sign.
TEST(BceWithLogits, KeepsItsDigitsWithASmallPositiveWeight) {
    const std::vector<double> logits{-30, -5, -0.01, 0.5, 4, 12, 30};
    const Shape shape{std::int64_t(logits.size())};
    const Tensor x = Tensor::from(logits, shape, Dtype::f32).set_requires_grad();
    const Tensor y = bce_with_logits(x, ones(shape), Reduction::none, full({}, 1e-3));
    backward(sum(y));
    const std::vector<double> loss = y.to_vector<double>(), gradient = x.grad().to_vector<double>();
    for (std::size_t i = 0; i < logits.size(); ++i) {
        const double v = double(float(logits[i])), weight = double(1e-3f);
        const double exact = weight * (v > 0 ? std::log1p(std::exp(-v)) : std::log1p(std::exp(v)) - v);
        EXPECT_NEAR(loss[i], exact, 4 * 0x1p-24 * exact);
        EXPECT_NEAR(gradient[i], -weight / (1 + std::exp(v)), 4 * 0x1p-24 * weight / (1 + std::exp(v)));
    }
    EXPECT_ERROR(bce_with_logits(x, ones(shape), Reduction::mean, ones({2})), Error, "pos_weight");
    EXPECT_ERROR(bce_with_logits(x, ones(shape), Reduction::mean, ones({2, 7})), Error, "pos_weight");
}

}  // namespace
}  // namespace invar::testing
