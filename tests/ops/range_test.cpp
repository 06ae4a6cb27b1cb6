// FP32 keeps its digits where values are large, small or cancel: against f64 arithmetic on the same inputs.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "invar/autograd/node.h"
#include "invar/core/format_info.h"
#include "invar/ops/ops.h"
#include "tests/ops/gradcheck.h"

namespace invar::testing {
namespace {

using namespace invar::ops;

constexpr double kEpsilon = 1.1920929e-7;  // of FP32

// Values as FP32 keeps them, so that both formats start from the same numbers.
std::vector<double> as_f32(std::vector<double> values) {
    for (double& v : values) v = double(float(v));
    return values;
}
Tensor leaf(const std::vector<double>& values, const Shape& shape, Dtype dtype) {
    return Tensor::from(values, shape, dtype).set_requires_grad();
}

double largest_difference(const Tensor& got, const std::vector<double>& exact) {
    const std::vector<double> values = got.to_vector<double>();
    EXPECT_EQ(values.size(), exact.size());
    double largest = 0;
    for (std::size_t i = 0; i < exact.size(); ++i) largest = std::fmax(largest, std::fabs(values[i] - exact[i]));
    for (const double v : values) EXPECT_FALSE(std::isnan(v));
    return largest;
}

// --- softmax and what is made of it ---

struct Rows {
    std::int64_t rows, classes;
    std::vector<double> logits;
    std::vector<std::int64_t> labels;

    Rows(std::int64_t r, std::int64_t c, double base, double spread) : rows(r), classes(c) {
        logits = random_values(r * c, base - spread / 2, base + spread / 2, 11);
        logits = as_f32(logits);
        for (std::int64_t i = 0; i < r; ++i) labels.push_back(i % c);
    }
    // p - target, with smoothed targets, in f64.
    std::vector<double> gradient(double smoothing) const {
        std::vector<double> result = probabilities();
        for (std::int64_t i = 0; i < rows; ++i)
            for (std::int64_t k = 0; k < classes; ++k)
                result[std::size_t(i * classes + k)] -=
                    smoothing / double(classes) + (k == labels[std::size_t(i)] ? 1 - smoothing : 0);
        return result;
    }
    std::vector<double> probabilities() const {
        std::vector<double> result(logits.size());
        for (std::int64_t i = 0; i < rows; ++i) {
            const double* x = logits.data() + i * classes;
            double largest = x[0], total = 0;
            for (std::int64_t k = 0; k < classes; ++k) largest = std::fmax(largest, x[k]);
            for (std::int64_t k = 0; k < classes; ++k) total += std::exp(x[k] - largest);
            for (std::int64_t k = 0; k < classes; ++k)
                result[std::size_t(i * classes + k)] = std::exp(x[k] - largest) / total;
        }
        return result;
    }
    Tensor targets() const { return Tensor::from(labels, {rows}); }
};

TEST(Accuracy, OfCrossEntropysGradientDoesNotSufferFromLargeLogits) {
    const Tensor x = leaf({1e4, 1e4, 1e4, 1e4}, {1, 4}, Dtype::f32);
    backward(cross_entropy(x, Tensor::from(std::vector<std::int64_t>{0}, {1})));
    EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{-0.75, 0.25, 0.25, 0.25}));
    for (const double smoothing : {0.0, 0.1})
        for (const double base : {0.0, 1e2, 1e4, 1e6, -1e4})
            for (const double spread : {2.0, 30.0, 200.0}) {
                const Rows rows(64, 10, base, spread);
                const Tensor logits = leaf(rows.logits, {64, 10}, Dtype::f32);
                backward(cross_entropy(logits, rows.targets(), {Reduction::sum, -100, smoothing}));
                EXPECT_LE(largest_difference(logits.grad(), rows.gradient(smoothing)), 2 * kEpsilon)
                    << base << ", spread " << spread;
            }
}

TEST(Accuracy, OfNllOfLogSoftmaxIsThatOfCrossEntropy) {
    for (const double base : {0.0, 1e4})
        for (const double spread : {2.0, 30.0}) {
            const Rows rows(64, 10, base, spread);
            const Tensor logits = leaf(rows.logits, {64, 10}, Dtype::f32);
            backward(nll_loss(log_softmax(logits, -1), rows.targets(), {Reduction::sum}));
            // The logarithm of a probability is rounded before it is raised again: by half an epsilon of at most 4.
            EXPECT_LE(largest_difference(logits.grad(), rows.gradient(0)), 4 * kEpsilon) << base << ", " << spread;
        }
}

TEST(Accuracy, OfSoftmaxIsTheSameAlongEveryDimension) {
    for (const double base : {0.0, 1e4}) {
        const Rows rows(40, 12, base, 30);
        const Tensor x = Tensor::from(rows.logits, {40, 12}, Dtype::f32);
        EXPECT_LE(largest_difference(softmax(x, 1), rows.probabilities()), kEpsilon);
        const Tensor columns = transpose(softmax(contiguous(transpose(x, 0, 1)), 0), 0, 1);
        EXPECT_LE(largest_difference(columns, rows.probabilities()), kEpsilon);
    }
}

// --- normalisation ---

// FP32 parameters of 16-bit activations get FP32 gradients: off by FP32 roundings, not by one to 16 bits.
TEST(Accuracy, OfNormsParameterGradientsIsThatOfTheParameters) {
    const std::vector<double> values = random_values(6 * 5 * 8, -2, 2, 5), weights = random_values(8, 0.5, 1.5, 6);
    const std::vector<double> incoming = random_values(6 * 5 * 8, -1, 1, 7);
    const auto run = [](int kind, const Tensor& x, const Tensor& gamma, const Tensor& beta) {
        return kind == 0   ? group_norm(x, 2, gamma, beta)
               : kind == 1 ? layer_norm(x, {8}, gamma, beta)
                           : batch_norm(x, gamma, beta, {}, {}, true);
    };
    for (const Dtype dtype : {Dtype::f16, Dtype::bf16})
        for (int kind = 0; kind < 3; ++kind) {
            const Tensor x = Tensor::from(values, {6, 5, 8}, dtype), g = Tensor::from(incoming, {6, 5, 8}, dtype);
            const Tensor gamma = leaf(as_f32(weights), {8}, Dtype::f32), beta = leaf(weights, {8}, Dtype::f32);
            const Tensor y = run(kind, x, gamma, beta);
            backward(y, y.dtype() == dtype ? g : cast(g, y.dtype()));
            const Tensor exact_gamma = leaf(as_f32(weights), {8}, Dtype::f64),
                         exact_beta = leaf(weights, {8}, Dtype::f64);
            backward(run(kind, cast(x, Dtype::f64), exact_gamma, exact_beta), cast(g, Dtype::f64));
            ASSERT_EQ(gamma.grad().dtype(), Dtype::f32);
            // 30 terms of at most 2.
            EXPECT_LE(largest_difference(gamma.grad(), exact_gamma.grad().to_vector<double>()), 60 * kEpsilon) << kind;
            EXPECT_LE(largest_difference(beta.grad(), exact_beta.grad().to_vector<double>()), 30 * kEpsilon) << kind;
        }
}

TEST(Accuracy, OfSixteenBitGroupNormIsOneRounding) {
    const std::vector<double> values = random_values(4 * 9 * 6, -2, 2, 5), weights = random_values(6, 0.5, 3, 6);
    const std::vector<double> incoming = random_values(4 * 9 * 6, -1, 1, 7);
    for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
        const Tensor x = leaf(values, {4, 9, 6}, dtype), gamma = Tensor::from(weights, {6}, dtype);
        const Tensor exact = leaf(x.to_vector<double>(), {4, 9, 6}, Dtype::f64);
        const Tensor exact_gamma = cast(gamma, Dtype::f64), g = Tensor::from(incoming, {4, 9, 6}, dtype);
        const Tensor y = group_norm(x, 3, gamma, gamma), reference = group_norm(exact, 3, exact_gamma, exact_gamma);
        const std::vector<double> got = y.to_vector<double>(), want = reference.to_vector<double>();
        const double half = 0.505 * format_info(dtype).epsilon;
        for (std::size_t i = 0; i < got.size(); ++i)
            EXPECT_LE(std::fabs(got[i] - want[i]), half * std::fabs(want[i]) + 4e-6) << name_of(dtype);
        backward(y, g), backward(reference, cast(g, Dtype::f64));
        const std::vector<double> slope = x.grad().to_vector<double>(), exactly = exact.grad().to_vector<double>();
        for (std::size_t i = 0; i < slope.size(); ++i)
            EXPECT_LE(std::fabs(slope[i] - exactly[i]), half * std::fabs(exactly[i]) + 4e-6) << name_of(dtype);
    }
}

TEST(Norms, ShowAVarianceThatOverflowsAsNaN) {
    const std::vector<double> values{1e20, -2e20, 3e20, 5e19, 2e20, -1e20, 4e20, 1e19};
    const Tensor x = leaf(values, {2, 4}, Dtype::f32);
    for (const Tensor& y : {layer_norm(x, {4}), group_norm(x, 2), batch_norm(x, {}, {}, {}, {}, true)})
        for (const double v : y.to_vector<double>()) EXPECT_TRUE(std::isnan(v)) << y.node()->name();
    backward(sum(layer_norm(x, {4})));
    for (const double v : x.grad().to_vector<double>()) EXPECT_TRUE(std::isnan(v));
    // FP64 holds it.
    for (const double v : layer_norm(Tensor::from(values, {2, 4}), {4}).to_vector<double>()) {
        EXPECT_FALSE(std::isnan(v));
        EXPECT_NE(v, 0);
    }
}

TEST(Accuracy, OfVarianceSurvivesALargeMean) {
    const std::vector<double> values = as_f32(random_values(1000, 1e4, 1e4 + 0.05, 3));
    double mean = 0, variance = 0;
    for (const double v : values) mean += v / 1000;
    for (const double v : values) variance += (v - mean) * (v - mean) / 999;
    const Tensor x = leaf(values, {1000}, Dtype::f32), y = var(x);
    EXPECT_NEAR(y.item(), variance, 4 * kEpsilon * variance);
    backward(y);
    const std::vector<double> slope = x.grad().to_vector<double>();
    for (std::size_t i = 0; i < slope.size(); ++i)
        EXPECT_NEAR(slope[i], 2 * (values[i] - mean) / 999, 4 * kEpsilon * 2 * 0.05 / 999);
}

// --- division ---

TEST(Accuracy, OfADivisorsGradientDoesNotGoThroughItsSquare) {
    for (const double b : {1e-23, 1e-30, 1e22, -3e-25, 1e18}) {
        const Tensor x = leaf(as_f32({b}), {1}, Dtype::f32), y = leaf(as_f32({b * 2}), {1}, Dtype::f32);
        backward(y / x);
        const double exact = -double(float(b * 2)) / double(float(b)) / double(float(b));
        EXPECT_NEAR(x.grad().item(), exact, 2 * kEpsilon * std::fabs(exact)) << b;
    }
}

TEST(Accuracy, OfDivisionByANumberIsThatOfOneRounding) {
    const std::vector<double> values = as_f32(random_values(1000, -5, 5, 4));
    for (const double c : {3.0, 7.0, 10.0, 1e-38, 1e38}) {
        const Tensor x = leaf(values, {1000}, Dtype::f32), y = x / c;
        const std::vector<float> got = y.to_vector<float>();
        for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(got[i], float(values[i]) / float(c));
        backward(y, x.detach());
        EXPECT_EQ(x.grad().to_vector<float>(), got);  // the incoming gradient was x
    }
    const Tensor x = leaf(values, {1000}, Dtype::f32);
    backward(mean(reshape(x, {100, 10}), {1}), ones({100}));
    for (const float v : x.grad().to_vector<float>()) EXPECT_EQ(v, 1.0f / 10.0f);
}

// --- every pointwise op, over the whole range ---

struct Range {
    const char* name;
    Tensor (*run)(const Tensor&);
    bool negative;
    // How far off value and slope may be: in epsilons of the exact one, and, where terms of the order of 1 cancel in
    // any formula that keeps the rounded result alone, in epsilons of 1.
    double relative, absolute;
};

const Range kRanges[] = {
    {"exp", [](const Tensor& x) { return exp(x); }, true, 4, 0},
    {"log", [](const Tensor& x) { return log(x); }, false, 4, 0},
    {"log1p", [](const Tensor& x) { return log1p(x); }, false, 4, 0},
    {"expm1", [](const Tensor& x) { return expm1(x); }, true, 4, 0},
    {"sin", [](const Tensor& x) { return sin(x); }, true, 4, 0},
    {"cos", [](const Tensor& x) { return cos(x); }, true, 4, 0},
    {"erf", [](const Tensor& x) { return erf(x); }, true, 4, 1},  // the slope has a square in its exponent
    {"sqrt", [](const Tensor& x) { return sqrt(x); }, false, 4, 0},
    {"rsqrt", [](const Tensor& x) { return rsqrt(x); }, false, 4, 0},
    {"square", [](const Tensor& x) { return pow(x, 2); }, true, 4, 0},
    {"cubic root", [](const Tensor& x) { return pow(x, 1.0 / 3); }, false, 16, 0},
    {"tanh", [](const Tensor& x) { return tanh(x); }, true, 4, 2},
    {"sigmoid", [](const Tensor& x) { return sigmoid(x); }, true, 4, 1},
    {"gelu", [](const Tensor& x) { return gelu(x); }, true, 8, 1},
    {"gelu_tanh", [](const Tensor& x) { return gelu(x, true); }, true, 64, 2},
    {"silu", [](const Tensor& x) { return silu(x); }, true, 8, 1},
    {"softplus", [](const Tensor& x) { return softplus(x); }, true, 4, 0},
    {"abs", [](const Tensor& x) { return abs(x); }, true, 1, 0},
    {"mse", [](const Tensor& x) { return squared_error(x, x * 0.5); }, true, 4, 0},
    {"bce_with_logits of 1", [](const Tensor& x) { return bce_with_logits_error(x, full(x.shape(), 1, x.dtype())); },
     true, 4, 0},
    {"bce_with_logits of 0.9999",
     [](const Tensor& x) { return bce_with_logits_error(x, full(x.shape(), double(0.9999f), x.dtype())); }, true, 4, 1},
    {"bce of 0", [](const Tensor& x) { return bce_error(clamp(x, 0, 0.5), zeros(x.shape(), x.dtype())); }, false, 4, 0},
};

TEST(Accuracy, OfPointwiseOpsHoldsFromTheSmallestToTheLargestValues) {
    std::vector<double> values;
    for (double decade = 1e-30; decade < 2e30; decade *= 10)
        for (const double step : random_values(16, 1, 10, 8)) values.push_back(decade * step);
    for (const double v : random_values(2000, 1e-3, 25, 9)) values.push_back(v);  // where functions bend
    for (const Range& range : kRanges) {
        std::vector<double> all = as_f32(values);
        if (range.negative)
            for (const double v : as_f32(values)) all.push_back(-v);
        const Shape shape{std::int64_t(all.size())};
        const Tensor x = leaf(all, shape, Dtype::f32), wide = leaf(all, shape, Dtype::f64);
        const Tensor y = range.run(x), exact = range.run(wide);
        backward(y, ones(shape)), backward(exact, ones(shape, Dtype::f64));
        const auto compare = [&](const Tensor& got, const Tensor& want, const char* what) {
            const std::vector<double> a = got.to_vector<double>(), b = want.to_vector<double>();
            for (std::size_t i = 0; i < a.size(); ++i) {
                if (std::isinf(a[i]) && std::fabs(b[i]) > 3.4028e38) continue;
                // Below FP32's normal numbers the rounding is absolute, and functions may flush.
                const double allowed = kEpsilon * (range.relative * std::fabs(b[i]) + range.absolute) + 1.1754944e-38;
                ASSERT_LE(std::fabs(a[i] - b[i]), allowed) << what << " of " << range.name << " at " << all[i];
            }
        };
        compare(y, exact, "value");
        compare(x.grad(), wide.grad(), "slope");
    }
}

}  // namespace
}  // namespace invar::testing
