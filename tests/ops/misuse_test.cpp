// Calls that cannot be right: one line that names the op, both shapes, and what was expected.
#include <gtest/gtest.h>

#include <limits>

#include "invar/core/error.h"
#include "invar/ops/ops.h"
#include "tests/core/expect_error.h"

namespace invar::testing {
namespace {

using namespace invar::ops;

Tensor ids(const std::vector<std::int64_t>& values) {
    return Tensor::from(values, {std::int64_t(values.size())});
}

TEST(Misuse, OfShapes) {
    const Tensor x = ones({2, 3});
    EXPECT_ERROR(reshape(x, {4, 2}), Error, "[4, 2]");
    EXPECT_ERROR(reshape(x, {-1, -1}), Error, "more than one");
    EXPECT_ERROR(reshape(x, {-1, 4}), Error, "f32[2, 3]");
    EXPECT_ERROR(reshape(x, {-2, -3}), Error, "negative");
    EXPECT_ERROR(reshape(x, {-1, -6}), Error, "negative");
    EXPECT_ERROR(reshape(zeros({2, 0}), {-1, 0}), Error, "any size would do for the -1 of [-1, 0]");
    EXPECT_ERROR(reshape(x, {-1, 0}), Error, "f32[2, 3]");
    EXPECT_ERROR(reshape(x, {-1, std::int64_t(1) << 40, std::int64_t(1) << 40}), Error, "63 bits");
    EXPECT_ERROR(permute(x, {0, 0}), Error, "(0, 0)");
    EXPECT_ERROR(permute(x, {0}), Error, "each dimension");
    EXPECT_ERROR(transpose(x, 0, 2), Error, "dimension 2");
    EXPECT_ERROR(squeeze(x, 0), Error, "is not 1");
    EXPECT_ERROR(unsqueeze(x, 5), Error, "unsqueeze");
    EXPECT_ERROR(slice(x, 0, 0, 1, 0), Error, "step");
    EXPECT_ERROR(expand(x, {3, 3}), Error, "expand");
    EXPECT_ERROR(expand(x, {3}), Error, "does not expand");
    EXPECT_ERROR(cat({}, 0), Error, "no tensors");
    EXPECT_ERROR(cat({x, ones({3, 2})}, 0), Error, "[3, 2]");
    EXPECT_ERROR(stack({x, ones({3, 2})}), Error, "stack: shapes [2, 3] and [3, 2]");
    EXPECT_ERROR(cat({x, zeros({2, 3}, Dtype::i64)}), Error, "i64");
    EXPECT_ERROR(x + ones({2, 2}), Error, "add: shapes [2, 3] and [2, 2]");
}

TEST(Misuse, OfProducts) {
    const Tensor x = ones({2, 3});
    EXPECT_ERROR(matmul(x, x), Error, "[2, 3] and [2, 3]");
    EXPECT_ERROR(matmul(x, ones({})), Error, "matmul");
    EXPECT_ERROR(matmul(ones({2, 2, 3}), ones({3, 3, 4})), Error, "do not broadcast");
    EXPECT_ERROR(matmul(x, ones({3, 2}, Dtype::f16)), Error, "one dtype");
    EXPECT_ERROR(linear(x, ones({4, 2})), Error, "its last size must be 2");
    EXPECT_ERROR(linear(x, ones({4, 3}), ones({3})), Error, "it must be [4]");
    EXPECT_ERROR(linear(x, ones({4})), Error, "[out, in]");
    const Tensor image = ones({1, 4, 4, 3});
    EXPECT_ERROR(conv2d(x, ones({1, 1, 1, 3})), Error, "[batch, height, width, channels], not [2, 3]");
    EXPECT_ERROR(conv2d(image, ones({2, 3, 3, 4})), Error, "its channels must be 4");
    EXPECT_ERROR(conv2d(image, ones({2, 3, 3, 1}), {}, {{1, 1}, {0, 0}, {1, 1}, 3}), Error, "3 groups");
    EXPECT_ERROR(conv2d(image, ones({2, 5, 5, 3})), Error, "larger than the input");
    EXPECT_ERROR(conv2d(image, ones({2, 3, 3, 3}), {}, {{0, 1}}), Error, "stride (0, 1)");
    EXPECT_ERROR(conv2d(image, ones({2, 3, 3, 3}), ones({3})), Error, "it must be [2]");
    EXPECT_ERROR(conv2d(image, ones({2, 3, 3, 3}, Dtype::f16)), Error, "f16[2, 3, 3, 3]");
    EXPECT_ERROR(conv_transpose2d(image, ones({2, 3, 3, 3})), Error, "its channels must be 2");
    EXPECT_ERROR(conv_transpose2d(image, ones({3, 3, 3, 3}), {}, {{1, 1}, {0, 0}, {1, 1}, 1, {1, 0}}), Error,
                 "output padding");
}

TEST(Misuse, OfWindowsAndNorms) {
    const Tensor image = ones({1, 4, 4, 3});
    EXPECT_ERROR(max_pool2d(image, {{5, 5}}), Error, "larger than the input [1, 4, 4, 3]");
    EXPECT_ERROR(max_pool2d(image, {{2, 2}, {2, 2}, {2, 2}}), Error, "half of kernel");
    EXPECT_ERROR(avg_pool2d(ones({2, 2}), {}), Error, "avg_pool2d");
    EXPECT_ERROR(adaptive_avg_pool2d(image, {0, 1}), Error, "(0, 1)");
    EXPECT_ERROR(upsample(image, -1.0), Error, "factor");
    EXPECT_ERROR(upsample(image, std::numeric_limits<double>::quiet_NaN()), Error, "factor");
    EXPECT_ERROR(upsample(image, 2.0, Interpolation::nearest, true), UsageError, "align_corners");
    EXPECT_ERROR(batch_norm(image, ones({4}), {}, {}, {}, true), Error,
                 "gamma [4] for an input [1, 4, 4, 3]; it must be [3]");
    EXPECT_ERROR(batch_norm(ones({1, 3}), {}, {}, {}, {}, true), Error, "larger batch");
    EXPECT_ERROR(batch_norm(image, {}, {}, {}, {}, false), Error, "running mean and variance");
    EXPECT_ERROR(layer_norm(image, {4}), Error, "must be [4]");
    EXPECT_ERROR(group_norm(image, 2), Error, "2 groups");
}

TEST(Misuse, OfReductionsAndIndices) {
    const Tensor x = ones({2, 3});
    EXPECT_ERROR(sum(x, {0, -2}), Error, "named twice");
    EXPECT_ERROR(mean(x, {2}), Error, "dimension 2");
    EXPECT_ERROR(mean(ids({1})), Error, "mean: needs a floating tensor, not i64[1] on cpu; cast it first");
    EXPECT_ERROR(var(ids({1})), Error, "var: needs a floating tensor");
    EXPECT_ERROR(any(x, {0, 0}), Error, "any: dimension 0 of [2, 3] is named twice");
    EXPECT_ERROR(argmax(zeros({3, 0})), Error, "argmax: nothing to choose from");
    EXPECT_ERROR(min(zeros({0})), Error, "min: nothing to choose from");
    EXPECT_ERROR(topk(x, 4), Error, "topk: 4 of dimension 1 of f32[2, 3]");
    EXPECT_ERROR(topk(x, -1), Error, "topk: -1");
    EXPECT_ERROR(sort(x, 2), Error, "dimension 2");
    EXPECT_ERROR(cumsum(x, 2), Error, "dimension 2");
    EXPECT_ERROR(embedding(ids({0}), x, 2), UsageError, "padding_idx 2 is outside 2 rows");
    EXPECT_ERROR(dropout(x, 1.5, true), UsageError, "[0, 1], not 1.5");
    EXPECT_ERROR(dropout(x, std::numeric_limits<double>::quiet_NaN(), false), UsageError, "[0, 1]");
    EXPECT_ERROR(embedding(ids({0, 2}), x), Error, "index 2 at position 1 is outside [0, 2)");
    EXPECT_ERROR(embedding(ids({-1}), x), Error, "index -1");
    EXPECT_ERROR(embedding(x, x), Error, "i64");
    EXPECT_ERROR(gather(x, 1, ids({0})), Error, "gather");
    EXPECT_ERROR(gather(x, 1, Tensor::from(std::vector<std::int64_t>{0, 3}, {2, 1})), Error, "index 3 at position 1");
}

TEST(Misuse, OfLosses) {
    const Tensor x = ones({2, 3});
    EXPECT_ERROR(cross_entropy(x, ids({0, 3})), Error, "index 3 at position 1 is outside [0, 3)");
    EXPECT_ERROR(cross_entropy(x, ids({0, -1})), Error, "index -1");
    EXPECT_NO_THROW(cross_entropy(x, ids({0, 255}), {Reduction::mean, 255}));
    EXPECT_ERROR(cross_entropy(x, ids({0, -100}), {Reduction::mean, 255}), Error, "index -100");
    EXPECT_ERROR(squared_error(ids({0}), ids({1})), Error, "mse: needs a floating operand");
    EXPECT_ERROR(cross_entropy(x, ids({0})), Error, "target [1] for an input [2, 3]; it must be [2]");
    EXPECT_ERROR(cross_entropy(x, ones({2})), Error, "i64");
    EXPECT_ERROR(cross_entropy(x, ids({0, 1}), {Reduction::mean, -100, 2}), UsageError, "smoothing");
    EXPECT_ERROR(cross_entropy(x, ids({0, 1}), {.weight = ones({2})}), Error,
                 "cross_entropy: weight f32[2] on cpu for an input [2, 3]; it must be a floating [3]");
    EXPECT_ERROR(nll_loss(x, ids({0, 1}), {.weight = ones({3}, Dtype::i64)}), Error, "a floating [3]");
    EXPECT_ERROR(cross_entropy(x, x, {.weight = ones({3, 1})}), Error, "a floating [3]");
    EXPECT_ERROR(cross_entropy(x, x, {.ignore_index = 0}), UsageError, "ignore_index 0 for a target of probabilities");
    EXPECT_ERROR(cross_entropy(x, x, {.label_smoothing = -1}), UsageError, "smoothing");
    EXPECT_ERROR(mse_loss(x, ones({3})), Error, "[2, 3] against target [3]");
    EXPECT_ERROR(smooth_l1_loss(x, x, -1), UsageError, "beta");
}

TEST(Dropout, KeepsTheExpectedShareScaledAndIsTheIdentityOutsideTraining) {
    default_generator().set_state({1, 0});
    const Tensor x = ones({10000});
    const std::vector<double> y = dropout(x, 0.25, true).to_vector<double>();
    std::size_t kept = 0;
    for (const double v : y) {
        EXPECT_TRUE(v == 0 || std::abs(v - 1 / 0.75) < 1e-6);
        kept += v != 0;
    }
    EXPECT_NEAR(double(kept), 7500, 5 * 43.3);             // five standard deviations of the binomial
    EXPECT_EQ(default_generator().state().offset, 1250u);  // a counter serves eight
    std::size_t pairs = 0;                                 // neighbours decide apart, also within one counter
    for (std::size_t i = 0; i + 1 < y.size(); i += 2) pairs += y[i] == 0 && y[i + 1] == 0;
    EXPECT_NEAR(double(pairs), 312.5, 5 * 17.1);
    const DropRule rule(0.1);
    EXPECT_NEAR(rule.keep * (1.0 - rule.limit / 65536.0), 1.0, 1e-7);  // scaled by what really stays
    EXPECT_EQ(DropRule(0.999999).keep, 0.0f);
    EXPECT_TRUE(dropout(x, 0.25, false).same_as(x));
    EXPECT_NE(dropout(x, 0.25, true).to_vector<double>(), y);
}

TEST(Creation, MakesWhatItSays) {
    EXPECT_EQ(arange(4).to_vector<std::int64_t>(), (std::vector<std::int64_t>{0, 1, 2, 3}));
    EXPECT_EQ(full({2}, 1.5, Dtype::bf16).to_vector<double>(), (std::vector<double>{1.5, 1.5}));
    EXPECT_EQ(zeros_like(ones({2}, Dtype::i64)).to_vector<double>(), (std::vector<double>{0, 0}));
    Generator a(5), b(5);
    const Tensor first = uniform({100}, -2, 3, Dtype::f32, {}, a);
    EXPECT_EQ(first.to_vector<float>(), uniform({100}, -2, 3, Dtype::f32, {}, b).to_vector<float>());
    EXPECT_NE(first.to_vector<float>(), uniform({100}, -2, 3, Dtype::f32, {}, a).to_vector<float>());
    for (const float v : first.to_vector<float>()) EXPECT_TRUE(v >= -2 && v < 3);
    EXPECT_ERROR(arange(-1), UsageError, "arange");
    EXPECT_ERROR(normal({2}, 0, 1, Dtype::i32), UsageError, "floating");
}

TEST(Reduce, MaxGivesTheIndicesOfTheWinners) {
    const Tensor x = Tensor::from(std::vector<float>{1, 5, 2, 7, 0, 3}, {2, 3});
    const MaxResult rows = max(x, 1);
    EXPECT_EQ(rows.values.to_vector<float>(), (std::vector<float>{5, 7}));
    EXPECT_EQ(rows.indices.to_vector<std::int64_t>(), (std::vector<std::int64_t>{1, 0}));
    EXPECT_EQ(argmax(x, 0).to_vector<std::int64_t>(), (std::vector<std::int64_t>{1, 0, 1}));
    EXPECT_EQ(max(x).item(), 7);
}

}  // namespace
}  // namespace invar::testing
