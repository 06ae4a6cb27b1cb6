#include "invar/nn/layers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "invar/core/error.h"
#include "invar/core/rng.h"
#include "invar/ops/ops.h"
#include "tests/core/expect_error.h"

namespace invar {
namespace {

struct Moments {
    double mean = 0, deviation = 0, low = 0, high = 0;
};

Moments moments_of(const Tensor& tensor) {
    Moments m;
    const std::vector<float> values = tensor.to_vector<float>();
    double squares = 0;
    for (const double v : values) {
        m.mean += v, squares += v * v;
        m.low = std::min(m.low, v), m.high = std::max(m.high, v);
    }
    m.mean /= double(values.size());
    m.deviation = std::sqrt(squares / double(values.size()) - m.mean * m.mean);
    return m;
}

// Uniform within +-bound: mean 0, deviation bound / sqrt(3), each within five standard errors.
void expect_uniform(const Tensor& tensor, double bound) {
    const Moments m = moments_of(tensor);
    const double n = double(tensor.numel());
    EXPECT_GE(m.low, -bound);
    EXPECT_LE(m.high, bound);
    EXPECT_NEAR(m.mean, 0, 5 * bound / std::sqrt(3 * n));
    EXPECT_NEAR(m.deviation, bound / std::sqrt(3), 5 * bound / std::sqrt(n));
    EXPECT_LT(m.low, -0.8 * bound);
    EXPECT_GT(m.high, 0.8 * bound);
}

TEST(Layers, StartFromPyTorchsDistributions) {
    default_generator().set_state({3, 0});
    const Linear linear(100, 300);
    expect_uniform(linear.weight.value, 0.1);
    expect_uniform(linear.bias->value, 0.1);
    const Conv2d conv(16, 64, 5);
    expect_uniform(conv.weight.value, 1 / std::sqrt(16.0 * 25));
    expect_uniform(conv.bias->value, 1 / std::sqrt(16.0 * 25));
    const Conv2d grouped(16, 64, 3, {.groups = 4});
    expect_uniform(grouped.weight.value, 1 / std::sqrt(4.0 * 9));
    // PyTorch takes the second dimension of the file's weight as the fan-in, of a transposed convolution too.
    const ConvTranspose2d transposed(8, 32, 3);
    expect_uniform(transposed.weight.value, 1 / std::sqrt(32.0 * 9));
    const Moments embedding = moments_of(Embedding(200, 50).weight.value);
    EXPECT_NEAR(embedding.mean, 0, 0.05);
    EXPECT_NEAR(embedding.deviation, 1, 0.04);
    const LayerNorm norm(7);
    EXPECT_EQ(norm.weight->value.to_vector<float>(), std::vector<float>(7, 1.0f));
    EXPECT_EQ(norm.bias->value.to_vector<float>(), std::vector<float>(7, 0.0f));
}

TEST(Layers, StartTheSameFromTheSameSeedAndOtherwiseNot) {
    const auto weights = [](std::uint64_t seed) {
        default_generator().set_state({seed, 0});
        return Linear(5, 5).weight.value.to_vector<float>();
    };
    EXPECT_EQ(weights(1), weights(1));
    EXPECT_NE(weights(1), weights(2));
}

TEST(Layers, GiveTheShapesOfPyTorch) {
    const Tensor image = ops::ones({2, 9, 9, 4});
    EXPECT_EQ(Conv2d(4, 6, 3, {.stride = {2, 2}, .padding = {1, 1}})(image).shape(), (Shape{2, 5, 5, 6}));
    EXPECT_EQ(ConvTranspose2d(4, 6, 2, {.stride = {2, 2}})(image).shape(), (Shape{2, 18, 18, 6}));
    EXPECT_EQ(MaxPool2d(2)(image).shape(), (Shape{2, 4, 4, 4}));
    EXPECT_EQ(Conv2d(4, 6, 3, {.stride = 2, .padding = 1})(image).shape(), (Shape{2, 5, 5, 6}));
    EXPECT_EQ(Conv2d(4, 6, {3, 1})(image).shape(), (Shape{2, 7, 9, 6}));
    EXPECT_EQ(ConvTranspose2d(4, 6, {3, 1}, {.stride = 2, .output_padding = 1})(image).shape(), (Shape{2, 20, 18, 6}));
    EXPECT_EQ(MaxPool2d({3, 1})(image).shape(), (Shape{2, 3, 9, 4}));
    EXPECT_EQ(Conv2d(4, 6, {4, 2}, {.padding = "same"})(image).shape(), (Shape{2, 9, 9, 6}));
    EXPECT_EQ(Conv1d(4, 6, 3, {.stride = 2, .padding = 1})(ops::ones({2, 9, 4})).shape(), (Shape{2, 5, 6}));
    EXPECT_EQ(MaxPool2d(2, {.ceil_mode = true})(image).shape(), (Shape{2, 5, 5, 4}));
    EXPECT_EQ(AvgPool2d({2, 3}, {.stride = 2, .padding = {0, 1}})(image).shape(), (Shape{2, 4, 5, 4}));
    EXPECT_EQ(AdaptiveAvgPool2d(1)(image).shape(), (Shape{2, 1, 1, 4}));
    EXPECT_EQ(Flatten()(image).shape(), (Shape{2, 324}));
    EXPECT_EQ(GroupNorm(2, 4)(image).shape(), image.shape());
    EXPECT_EQ(Linear(4, 3, false)(image).shape(), (Shape{2, 9, 9, 3}));
    EXPECT_EQ(Embedding(10, 3)(Tensor::from<std::int64_t>({1, 9}, {2})).shape(), (Shape{2, 3}));
}

TEST(Layers, RefuseSizesThatCannotBe) {
    EXPECT_ERROR(Conv2d(4, 6, 3, {.groups = 0}), UsageError, "groups");
    EXPECT_ERROR(Conv2d(4, 6, 3, {.groups = 3}), UsageError, "groups");
    EXPECT_ERROR(Conv2d(0, 6, 3), UsageError, "0 inputs, 6 outputs");
    EXPECT_ERROR(ConvTranspose2d(4, 6, {3, 0}), UsageError, "kernel of (3, 0)");
    EXPECT_ERROR(ConvTranspose2d(4, 6, 3, {.groups = 4}), UsageError, "groups");
    EXPECT_ERROR(Linear(10, 2, true, ImageShape{2, 2, 2}), UsageError, "2x2x2");
    EXPECT_ERROR(Linear(-1, 2), Error, "-1");
    EXPECT_ERROR(Dropout(1.5)(ops::ones({2})), UsageError, "1.5");
}

TEST(BatchNorm, TracksItsStatisticsAsPyTorchDoes) {
    BatchNorm norm(1, 1e-5, 0.1);
    norm(Tensor::from<float>({1, 2, 3, 6}, {4, 1}));
    EXPECT_FLOAT_EQ(float(norm.running_mean.item()), 0.3f);                       // 0.1 * 3
    EXPECT_FLOAT_EQ(float(norm.running_var.item()), 0.9f + 0.1f * 14.0f / 3.0f);  // unbiased
    EXPECT_EQ(norm.batches.item(), 1);
}

// One after the other: with the weights that they start from, both kinds of each norm do the same.
TEST(Norms, ThatAreNotAffineHaveNoParametersAndNormaliseAlike) {
    const Tensor x = ops::normal({3, 5, 4}, 1, 2);
    const auto expect_alike = [&](Module& affine, Module& plain) {
        EXPECT_EQ(affine.parameters().size(), 2u);
        EXPECT_EQ(plain.parameters().size(), 0u);
        EXPECT_EQ(affine(x).to_vector<float>(), plain(x).to_vector<float>());
        EXPECT_EQ(plain.clone()->parameters().size(), 0u);
    };
    BatchNorm batch(4), plain_batch(4, 1e-5, 0.1, false);
    expect_alike(batch, plain_batch);
    EXPECT_EQ(batch.running_var.to_vector<float>(), plain_batch.running_var.to_vector<float>());
    LayerNorm layer(4), plain_layer(4, 1e-5, false);
    expect_alike(layer, plain_layer);
    GroupNorm group(2, 4), plain_group(2, 4, 1e-5, false);
    expect_alike(group, plain_group);
    EXPECT_ERROR(plain_group(ops::ones({3, 6})), Error, "must be 4 channels");
    EXPECT_ERROR(plain_layer(ops::ones({3, 6})), Error, "[4]");
}

TEST(Conv1d, IsTheOpWithPyTorchsLayoutInFiles) {
    Conv1d conv(4, 6, 3, {.padding = "same", .groups = 2});
    const Tensor x = ops::normal({2, 5, 4}, 0, 1);
    const Tensor w = ops::reshape(conv.weight.value.detach(), {6, 3, 2});
    EXPECT_EQ(conv(x).to_vector<float>(),
              ops::conv1d(x, w, conv.bias->value, {.padding = "same", .groups = 2}).to_vector<float>());
    EXPECT_EQ(conv.weight.to_file().shape(), (Shape{6, 2, 3}));
    EXPECT_EQ(conv.clone()->parameters().size(), 2u);
    EXPECT_ERROR(conv(ops::ones({2, 5, 1, 4})), Error, "[batch, length, channels]");
    EXPECT_ERROR(Conv1d(4, 6, 0), UsageError, "kernel of (0, 0)");
}

TEST(Activations, OfLayersAreThoseOfTheOps) {
    const Tensor x = ops::normal({40}, 0, 3);
    EXPECT_EQ(LeakyRelu(0.2)(x).to_vector<float>(), ops::leaky_relu(x, 0.2).to_vector<float>());
    EXPECT_EQ(Elu(0.5)(x).to_vector<float>(), ops::elu(x, 0.5).to_vector<float>());
    EXPECT_EQ(Silu()(x).to_vector<float>(), ops::silu(x).to_vector<float>());
    EXPECT_EQ(Hardswish()(x).to_vector<float>(), ops::hardswish(x).to_vector<float>());
}

TEST(Dropout, KeepsTheMeanInTrainingAndDoesNothingInEvaluation) {
    default_generator().set_state({5, 0});
    Dropout dropout(0.25);
    const Tensor x = ops::ones({20000});
    const std::vector<float> y = dropout(x).to_vector<float>();
    double sum = 0;
    for (const float v : y) {
        EXPECT_TRUE(v == 0.0f || std::fabs(v - 1 / 0.75f) < 1e-6f) << v;
        sum += v;
    }
    EXPECT_NEAR(sum / 20000, 1.0, 5 * std::sqrt(0.25 / 0.75 / 20000));
    dropout.eval();
    EXPECT_EQ(dropout(x).to_vector<float>(), x.to_vector<float>());
}

}  // namespace
}  // namespace invar
