// DBNet's loss: against PyTorch's (golden_vision.py, in f64), by hand, against differences, and where there is no text.
#include "invar/tasks/db_loss.h"

#include <gtest/gtest.h>

#include "invar/amp/autocast.h"
#include "invar/core/error.h"
#include "invar/models/dbnet.h"
#include "tests/core/expect_error.h"
#include "tests/models/golden_vision.h"
#include "tests/ops/gradcheck.h"

namespace invar {
namespace {

Batch labels(const Tensor& shrink, const Tensor& mask, const Tensor& threshold, const Tensor& near) {
    return Batch({{"shrink", shrink}, {"shrink_mask", mask}, {"threshold", threshold}, {"threshold_mask", near}},
                 shrink.size(0));
}

// The maps of golden_vision.py.
Batch formula_labels_of_maps(std::int64_t n, std::int64_t height, std::int64_t width) {
    std::vector<float> shrink, mask, threshold, near;
    for (std::int64_t i = 0; i < n * height * width; ++i) {
        const std::int64_t y = i / width % height, x = i % width;
        shrink.push_back((y / 8 + x / 16) % 5 == 0);
        mask.push_back((y / 4 + 3 * (x / 8)) % 7 != 0);
        threshold.push_back(float(0.3 + 0.1 * double((x + y) % 5)));
        near.push_back((y / 8 + x / 8) % 3 == 0);
    }
    const auto map = [&](const std::vector<float>& values) { return Tensor::from(values, {n, height, width}); };
    return labels(map(shrink), map(mask), map(threshold), map(near));
}

TEST(DbLoss, IsPyTorchsWithItsGradients) {
    set_threads(1);  // small work: more threads only wait for each other on a busy machine
    const auto model = make_dbnet({.layers = 18, .width = 8, .inner = 16}, {{64, 96, 3}, 1});
    fill_about_half(*model);
    const Tensors maps = (*model)(Tensors{formula_images(2, 0, 64, 96, 3)});
    const DbLoss loss = db_loss(maps[0], maps[1], formula_labels_of_maps(2, 64, 96));
    EXPECT_NEAR(loss.probability.item(), 0.840621618148, 1e-6);
    EXPECT_NEAR(loss.total.item(), 7.02234914829, 1e-5);
    EXPECT_NEAR(5 * loss.probability.item() + loss.binary.item() + 10 * loss.threshold.item(), loss.total.item(), 1e-5);
    backward(loss.total);
    expect_gradients(*model, 2.88503849,
                     {{"backbone.conv1.weight", 0.391439369, 1.3443927e-06},
                      {"backbone.layer4.1.bn2.bias", 0.00624212526, 0.00216768257},
                      {"decoder.in5.weight", 0.160157013, 0.0190335567},
                      {"decoder.in2.weight", 0.0253916887, 0.0104722325},
                      {"decoder.out5.0.weight", 0.229078399, 0.136248063},
                      {"decoder.out2.weight", 0.22014479, -0.445549319},
                      {"decoder.binarize.0.weight", 0.273886015, -0.0363466866},
                      {"decoder.binarize.1.bias", 0.0248797696, -0.0150643335},
                      {"decoder.binarize.3.weight", 0.240971516, 0.058940887},
                      {"decoder.binarize.6.weight", 0.7958797, 0.0389085292},
                      {"decoder.binarize.6.bias", 1.41965227, 0},
                      {"decoder.thresh.3.weight", 0.161543498, 0.0192607505},
                      {"decoder.thresh.6.weight", 0.96446548, -0.675416794}},
                     1e-4);
}

double softplus(double x) {
    return std::log1p(std::exp(x));
}
double sigmoid(double x) {
    return 1 / (1 + std::exp(-x));
}

struct Pixels {
    std::vector<float> logits, target, mask;
};
struct Outcome {
    double loss;
    std::vector<double> gradient;
};
Outcome bce_of(const Pixels& pixels) {
    const Shape shape{1, 1, std::int64_t(pixels.logits.size())};
    const Tensor logits = Tensor::from(pixels.logits, shape).set_requires_grad();
    const Tensor loss = hard_negative_bce(logits, Tensor::from(pixels.target, shape), Tensor::from(pixels.mask, shape));
    backward(loss);
    return {loss.item(), logits.grad().to_vector<double>()};
}

TEST(DbLoss, CountsThreeOfTheHardestNegativesForAPositive) {
    // A positive, five negatives, and two that are masked out and would be the hardest of each kind.
    const Outcome outcome = bce_of({{-1, 2, -3, 0, 1, -2, 9, -9}, {1, 0, 0, 0, 0, 0, 0, 1}, {1, 1, 1, 1, 1, 1, 0, 0}});
    EXPECT_NEAR(outcome.loss, (softplus(1) + softplus(2) + softplus(0) + softplus(1)) / 4, 1e-6);
    const double expected[] = {sigmoid(-1) - 1, sigmoid(2), 0, sigmoid(0), sigmoid(1), 0, 0, 0};
    for (std::size_t i = 0; i < 8; ++i) EXPECT_NEAR(outcome.gradient[i], expected[i] / 4, 1e-6) << i;
}

TEST(DbLoss, CountsAllNegativesWhereThereAreFewer) {
    const Outcome outcome = bce_of({{-1, 0.5, 2, -3, 0}, {1, 1, 0, 0, 0}, {1, 1, 1, 1, 1}});
    EXPECT_NEAR(outcome.loss, (softplus(1) + softplus(-0.5) + softplus(2) + softplus(-3) + softplus(0)) / 5, 1e-6);
}

// As where a border of zeros was put around images: which of them count must not depend on where they lie.
TEST(DbLoss, LetsEqualNegativesShareTheLastPlaces) {
    const Outcome outcome = bce_of({{0, 2, 1, 1, 1, 1, -1}, {1, 0, 0, 0, 0, 0, 0}, {1, 1, 1, 1, 1, 1, 1}});
    EXPECT_NEAR(outcome.loss, (softplus(0) + softplus(2) + 2 * softplus(1)) / 4, 1e-6);
    const double expected[] = {-0.5, sigmoid(2), sigmoid(1) / 2, sigmoid(1) / 2, sigmoid(1) / 2, sigmoid(1) / 2, 0};
    for (std::size_t i = 0; i < 7; ++i) EXPECT_NEAR(outcome.gradient[i], expected[i] / 4, 1e-6) << i;
}

TEST(DbLoss, HasTheGradientThatDifferencesGiveInF64) {
    const Shape shape{2, 4, 5};
    const auto map = [&](double low, double high, std::uint64_t seed) {
        return Tensor::from(testing::random_values(40, low, high, seed), shape, Dtype::f64);
    };
    const auto ones_of = [&](double share, std::uint64_t seed) {
        return ops::cast(map(0, 1, seed) < share, Dtype::f32);
    };
    const Batch batch =
        labels(ones_of(0.2, 1), ones_of(0.8, 2), ops::cast(map(0.3, 0.7, 3), Dtype::f32), ones_of(0.6, 4));
    const Tensor p = map(-2, 2, 5).set_requires_grad(), t = map(-2, 2, 6).set_requires_grad();
    const auto function = [&](const Tensors& in) { return db_loss(in[0], in[1], batch, {.k = 5}).total; };
    EXPECT_EQ(testing::gradient_mismatch(function, {p, t}), "");
}

TEST(DbLoss, IsFiniteWithoutAnyText) {
    const Tensor none = ops::zeros({2, 8, 8}), all = ops::ones({2, 8, 8});
    for (const Tensor& mask : {all, none}) {
        const Tensor p = (formula_images(2, 0, 8, 8, 1) * 3.0).detach(), t = formula_images(2, 1, 8, 8, 1);
        const Tensor probability = ops::reshape(p, {2, 8, 8}).set_requires_grad();
        const Tensor threshold = ops::reshape(t, {2, 8, 8}).set_requires_grad();
        const DbLoss loss = db_loss(probability, threshold, labels(none, mask, ops::full({2, 8, 8}, 0.3), none));
        EXPECT_EQ(loss.probability.item(), 0);
        EXPECT_EQ(loss.threshold.item(), 0);
        EXPECT_EQ(loss.total.item(), 1);  // Dice's
        backward(loss.total);
        for (const Tensor& x : {probability, threshold})
            for (const double g : x.grad().to_vector<double>()) EXPECT_EQ(g, 0);
    }
}

// A map of 65536 pixels and more has sums that FP16 cannot hold.
TEST(DbLoss, IsComputedInFp32UnderAutocast) {
    const Shape shape{1, 300, 300};
    const Batch batch = formula_labels_of_maps(1, 300, 300);
    for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
        const Tensor p = ops::cast(ops::reshape(formula_images(1, 0, 300, 300, 1) * 9.0, shape), dtype);
        const Tensor t = ops::cast(ops::reshape(formula_images(1, 1, 300, 300, 1), shape), dtype);
        const double expected = db_loss(ops::cast(p, Dtype::f32), ops::cast(t, Dtype::f32), batch).total.item();
        const Autocast cast(dtype, true, Level::O2);
        const Tensor loss = db_loss(p, t, batch).total;
        EXPECT_EQ(loss.dtype(), Dtype::f32);
        EXPECT_EQ(loss.item(), expected);
    }
}

TEST(DbLoss, ShowsNaNWhereverItIs) {
    for (std::int64_t i = 0; i < 64; i += 9) {
        std::vector<float> values(64, 0.5f);
        values[std::size_t(i)] = std::nanf("");
        const Tensor bad = Tensor::from(values, {1, 8, 8}), good = ops::zeros({1, 8, 8}), all = ops::ones({1, 8, 8});
        const Batch batch = labels(ops::cast(ops::reshape(ops::arange(64), {1, 8, 8}) < 9, Dtype::f32), all, all, all);
        EXPECT_TRUE(std::isnan(db_loss(bad, good, batch).total.item())) << i;
        EXPECT_TRUE(std::isnan(db_loss(good, bad, batch).total.item())) << i;
    }
}

TEST(DbLoss, RefusesMapsOfAnotherShape) {
    const Tensor map = ops::zeros({1, 8, 8}), other = ops::zeros({1, 8, 9});
    EXPECT_ERROR(db_loss(map, map, labels(map, map, other, map)), Error, "threshold is [1, 8, 9]");
    EXPECT_ERROR(db_loss(map, other, labels(map, map, map, map)), Error, "maps of one shape");
}

}  // namespace
}  // namespace invar
