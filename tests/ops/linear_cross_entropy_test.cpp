#include "invar/ops/linear_cross_entropy.h"

#include <gtest/gtest.h>

#include "invar/amp/autocast.h"
#include "invar/autograd/node.h"
#include "invar/ops/ops.h"
#include "tests/core/expect_error.h"
#include "tests/ops/gradcheck.h"

namespace invar {
namespace {

using testing::random_values;

struct Head {
    Tensor x, w, target;
    Head(std::int64_t rows, std::int64_t width, std::int64_t classes, Dtype dtype)
        : x(Tensor::from(random_values(rows * width, -1, 1, 1), {rows, width}, dtype).set_requires_grad()),
          w(Tensor::from(random_values(classes * width, -1, 1, 2), {classes, width}, dtype).set_requires_grad()) {
        std::vector<std::int64_t> labels;
        for (std::int64_t i = 0; i < rows; ++i) labels.push_back(i % 7 == 3 ? -100 : i * 131 % classes);
        target = Tensor::from(labels, {rows});
    }
};

double distance(const Tensor& a, const Tensor& b) {
    const std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
    double off = 0, all = 0;
    for (std::size_t i = 0; i < x.size(); ++i) off += (x[i] - y[i]) * (x[i] - y[i]), all += y[i] * y[i];
    return std::sqrt(off / all);
}

// 8192 classes of FP32 are more than one chunk for 300 rows.
void expect_the_whole(const Tensor& weight) {
    for (const Dtype dtype : {Dtype::f64, Dtype::f32})
        for (const ops::Reduction reduction : {ops::Reduction::mean, ops::Reduction::sum}) {
            const Head head(300, 16, 8192, dtype);
            const ops::ClassLossOptions options{.reduction = reduction, .label_smoothing = 0.05, .weight = weight};
            const Tensor loss = ops::linear_cross_entropy(head.x, head.w, head.target, options);
            backward(loss * 3.0);
            const Head other(300, 16, 8192, dtype);
            const Tensor whole = ops::cross_entropy(ops::linear(other.x, other.w), other.target, options);
            backward(whole * 3.0);
            const double tolerance = dtype == Dtype::f64 ? 1e-13 : 2e-6;
            EXPECT_NEAR(loss.item(), whole.item(), tolerance * std::fabs(whole.item()));
            EXPECT_LE(distance(head.x.grad(), other.x.grad()), tolerance);
            EXPECT_LE(distance(head.w.grad(), other.w.grad()), tolerance);
        }
}

TEST(LinearCrossEntropy, InChunksIsTheWhole) {
    expect_the_whole({});
}

TEST(LinearCrossEntropy, WeighsClasses) {
    expect_the_whole(Tensor::from(random_values(8192, 0.1, 3, 5), {8192}));
}

TEST(LinearCrossEntropy, GivesNoGradientWhereNoRowCounts) {
    const Head head(20, 8, 50, Dtype::f32);
    const Tensor loss = ops::linear_cross_entropy(head.x, head.w, ops::full({20}, -100, Dtype::i64));
    EXPECT_TRUE(std::isnan(loss.item()));
    backward(loss);
    for (const Tensor& gradient : {head.x.grad(), head.w.grad()})
        for (const double value : gradient.to_vector<double>()) EXPECT_EQ(value, 0);
}

// Gradients of 16-bit logits are rounded while they are unscaled: what the loss is multiplied by changes nothing.
TEST(LinearCrossEntropy, LosesNothingToASmallScale) {
    const Head head(40, 8, 50, Dtype::f32);
    const auto gradient = [&](double scale) {
        head.x.set_grad({}), head.w.set_grad({});
        const Autocast cast(Dtype::f16);
        backward(ops::linear_cross_entropy(head.x, head.w, head.target) * scale);
        return head.w.grad();
    };
    const Tensor plain = gradient(1.0), tiny = gradient(0x1p-20);
    const std::vector<double> a = plain.to_vector<double>(), b = tiny.to_vector<double>();
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i], b[i] * 0x1p20) << i;
}

TEST(LinearCrossEntropy, AddsToAWeightThatHasAGradient) {
    const Head head(20, 8, 50, Dtype::f32);
    backward(ops::linear_cross_entropy(head.x, head.w, head.target));
    const std::vector<double> once = head.w.grad().to_vector<double>();
    backward(ops::linear_cross_entropy(head.x, head.w, head.target));
    const std::vector<double> twice = head.w.grad().to_vector<double>();
    for (std::size_t i = 0; i < once.size(); ++i) EXPECT_EQ(twice[i], 2 * once[i]);
}

TEST(LinearCrossEntropy, RefusesWhatDoesNotGoTogether) {
    const Head head(20, 8, 50, Dtype::f32);
    EXPECT_ERROR(ops::linear_cross_entropy(head.x, ops::zeros({50, 9}), head.target), Error, "[classes, width]");
    EXPECT_ERROR(ops::linear_cross_entropy(head.x, head.w, ops::zeros({19}, Dtype::i64)), Error, "it must be [20]");
    EXPECT_ERROR(ops::linear_cross_entropy(head.x, head.w, head.target, {.reduction = ops::Reduction::none}),
                 UsageError, "a mean or a sum");
    EXPECT_THROW(ops::linear_cross_entropy(head.x, head.w, ops::full({20}, 50, Dtype::i64)), Error);
}

}  // namespace
}  // namespace invar
