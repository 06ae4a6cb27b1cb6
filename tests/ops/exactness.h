// What has one right answer, or loses digits only where FP32 must, asked of any device: casts and arithmetic of
// whole numbers, constant rows, averages, constants given to an op, and the gradients of activations over wide ranges.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string_view>

#include "invar/autograd/node.h"
#include "invar/ops/ops.h"
#include "tests/ops/gradcheck.h"

namespace invar::testing {

inline Tensor leaf_on(Device device, const std::vector<double>& values, const Shape& shape, Dtype dtype) {
    return ops::to(Tensor::from(values, shape, dtype), device).set_requires_grad();
}

// The expected numbers are PyTorch's.
inline void expect_exact_casts(Device device) {
    constexpr std::int64_t kLarge = std::int64_t(1) << 53;
    const std::vector<std::int64_t> values = {kLarge + 1, (kLarge << 9) + 3, -(kLarge << 7) - 1, 300, -1, 1 << 24 | 1};
    const auto n = std::int64_t(values.size());
    const Tensor dense = ops::to(Tensor::from(values, {n}), device);
    const Tensor wide = ops::to(ops::stack({Tensor::from(values, {n}), Tensor::from(values, {n})}, 1), device);
    for (const Tensor& x : {dense, ops::squeeze(ops::slice(wide, 1, 0, 1), 1)}) {  // side by side, and two apart
        EXPECT_EQ(ops::cast(x, Dtype::i32).to_vector<std::int32_t>(),
                  (std::vector<std::int32_t>{1, 3, -1, 300, -1, 1 << 24 | 1}));
        EXPECT_EQ(ops::cast(x, Dtype::u8).to_vector<std::uint8_t>(),
                  (std::vector<std::uint8_t>{1, 3, 255, 44, 255, 1}));
        EXPECT_EQ(ops::cast(x, Dtype::boolean).to_vector<std::uint8_t>(), std::vector<std::uint8_t>(6, 1));
        const std::vector<float> single = ops::cast(x, Dtype::f32).to_vector<float>();
        const std::vector<double> twice = ops::cast(x, Dtype::f64).to_vector<double>();
        for (std::size_t i = 0; i < values.size(); ++i) {
            EXPECT_EQ(single[i], float(values[i]));
            EXPECT_EQ(twice[i], double(values[i]));
        }
        const Tensor yes = ops::ones({n}, Dtype::boolean, device);
        EXPECT_EQ(ops::where(yes, x, x).to_vector<std::int64_t>(), values);
    }
    // Half way between two floats but for its last digit, which double has no place for; bf16 keeps eight digits.
    const std::int64_t above_half = (std::int64_t(1) << 62) + (std::int64_t(1) << 38) + 1;
    const std::int64_t above_half_bf16 = (std::int64_t(1) << 62) + (std::int64_t(1) << 54) + 1;
    const Tensor ties =
        ops::to(Tensor::from(std::vector<std::int64_t>{above_half, above_half_bf16, -above_half_bf16}, {3}), device);
    EXPECT_EQ(ops::cast(ties, Dtype::f32).to_vector<double>()[0], 0x1p62 + 0x1p39);
    EXPECT_EQ(ops::cast(ties, Dtype::bf16).to_vector<double>()[1], 0x1p62 + 0x1p55);
    EXPECT_EQ(ops::cast(ties, Dtype::bf16).to_vector<double>()[2], -0x1p62 - 0x1p55);
    // Whole numbers keep their low bits; floating ones have none, and become the nearest there is.
    const Tensor x = leaf_on(device, {-1, 300, 1e20, -1e20, NAN}, {5}, Dtype::f32).detach();
    EXPECT_EQ(ops::cast(x, Dtype::i32).to_vector<std::int32_t>(),
              (std::vector<std::int32_t>{-1, 300, 2147483647, -2147483647 - 1, 0}));
    const std::vector<std::uint8_t> bytes = ops::cast(x, Dtype::u8).to_vector<std::uint8_t>();
    EXPECT_EQ((std::vector<std::uint8_t>{bytes[0], bytes[1]}), (std::vector<std::uint8_t>{255, 44}));
}

// In two's complement, as PyTorch: double has no place for the last digits of large ones, and what leaves the range
// comes in again at the other end.
inline void expect_exact_whole_numbers(Device device) {
    using Values = std::vector<std::int64_t>;
    constexpr std::int64_t kLarge = std::int64_t(1) << 53, kMost = std::numeric_limits<std::int64_t>::max();
    const Values u = {kLarge + 1, kMost, -kMost - 1, kLarge + 3, -7, kMost}, v = {1, 1, 1, kLarge + 2, 3, kMost - 1};
    const Shape shape{6};
    const auto given = [&](const auto& values) { return ops::to(Tensor::from(values, shape), device); };
    const Tensor b = given(v), dense = given(u);
    const Tensor wide = ops::to(ops::stack({Tensor::from(u, shape), Tensor::from(u, shape)}, 1), device);
    for (const Tensor& a : {dense, ops::squeeze(ops::slice(wide, 1, 0, 1), 1)}) {  // side by side, and two apart
        EXPECT_EQ((a + b).to_vector<std::int64_t>(), (Values{kLarge + 2, -kMost - 1, -kMost, 2 * kLarge + 5, -4, -3}));
        EXPECT_EQ((a - b).to_vector<std::int64_t>(), (Values{kLarge, kMost - 1, kMost, 1, -10, 1}));
        EXPECT_EQ((a * b).to_vector<std::int64_t>(),
                  (Values{kLarge + 1, kMost, -kMost - 1, 5 * kLarge + 6, -21, -kMost + 1}));
        EXPECT_EQ(ops::maximum(a, b).to_vector<std::int64_t>(), (Values{kLarge + 1, kMost, 1, kLarge + 3, 3, kMost}));
        EXPECT_EQ(ops::minimum(a, b).to_vector<std::int64_t>(), (Values{1, 1, -kMost - 1, kLarge + 2, -7, kMost - 1}));
    }
    constexpr std::int32_t kMost32 = std::numeric_limits<std::int32_t>::max();
    const Tensor c = given(std::vector<std::int32_t>{kMost32, -kMost32 - 1, 65537, 5, -5, 0}),
                 d = given(std::vector<std::int32_t>{1, -1, 65537, 7, 7, 0});
    EXPECT_EQ((c + d).to_vector<std::int32_t>(), (std::vector<std::int32_t>{-kMost32 - 1, kMost32, 131074, 12, 2, 0}));
    EXPECT_EQ((c * d).to_vector<std::int32_t>(),
              (std::vector<std::int32_t>{kMost32, -kMost32 - 1, 131073, 35, -35, 0}));
    EXPECT_EQ((c + b).to_vector<std::int64_t>()[0], std::int64_t(kMost32) + 1);  // i32 and i64 make i64
    const Tensor e = given(std::vector<std::uint8_t>{200, 3, 0, 255, 16, 1}),
                 f = given(std::vector<std::uint8_t>{100, 5, 1, 255, 16, 1});
    EXPECT_EQ((e + f).to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{44, 8, 1, 254, 32, 2}));
    EXPECT_EQ((e - f).to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{100, 254, 255, 0, 0, 0}));
    EXPECT_EQ((e * f).to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{32, 15, 0, 1, 0, 1}));
    const Tensor yes = ops::ones(shape, Dtype::boolean, device);
    EXPECT_EQ((yes + yes).to_vector<std::uint8_t>(), std::vector<std::uint8_t>(6, 1));
}

// Where all values of a row are one there is nothing to spread: the mean is that value, to its last digit.
inline void expect_constant_rows_to_become_zero(Device device) {
    for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16})
        for (const double value : {1000.1, -0.3, 1e6 + 0.1, 3e37})
            for (const std::int64_t n : {1, 5, 768, 5001}) {
                if (dtype == Dtype::f16 && value > 65504) continue;
                const Tensor x = leaf_on(device, std::vector<double>(std::size_t(2 * n), value), {2, n}, dtype);
                const Tensor gamma = leaf_on(device, std::vector<double>(std::size_t(n), 1), {n}, Dtype::f32);
                const Tensor y = ops::layer_norm(x, {n}, gamma);
                EXPECT_EQ(y.to_vector<double>(), std::vector<double>(std::size_t(2 * n), 0)) << value << " " << n;
                backward(y, ops::ones(y.shape(), dtype, device));  // gamma's gradient is the sum of the rows
                EXPECT_EQ(gamma.grad().to_vector<double>(), std::vector<double>(std::size_t(n), 0))
                    << value << " " << n;
                const Tensor image = ops::full({1, 3, n, 2}, value, dtype, device);
                for (const int groups : {1, 2})
                    EXPECT_EQ(ops::group_norm(image, groups).to_vector<double>(),
                              std::vector<double>(std::size_t(6 * n), 0))
                        << value << " " << n;
            }
}

// As PyTorch divides: times 1 / 9 the last digit would be another now and then.
inline void expect_divided_averages(Device device) {
    const std::int64_t channels = 37;
    const Tensor x = leaf_on(device, random_values(9 * channels, -1, 1, 5), {1, 3, 3, channels}, Dtype::f32);
    const std::vector<float> from = x.to_vector<float>();
    const Tensor window = ops::avg_pool2d(x, {{3, 3}}), all = ops::adaptive_avg_pool2d(x, {1, 1});
    const std::vector<double> incoming = random_values(channels, -1, 1, 7);
    for (const Tensor& y : {window, all}) {
        const Tensor g = leaf_on(device, incoming, y.shape(), Dtype::f32).detach();
        x.set_grad({});
        backward(y, g);
        const std::vector<float> average = y.to_vector<float>(), gradient = x.grad().to_vector<float>();
        for (std::size_t c = 0; c < std::size_t(channels); ++c) {
            float sum = 0;
            for (std::size_t h = 0; h < 3; ++h) {
                float line = 0;
                for (std::size_t w = 0; w < 3; ++w) line += from[(h * 3 + w) * std::size_t(channels) + c];
                sum += line;
            }
            EXPECT_EQ(average[c], sum / 9.0f);
            EXPECT_EQ(gradient[c], float(incoming[c]) / 9.0f);
        }
    }
    const Tensor rows = leaf_on(device, random_values(49 * 50, -1, 1, 9), {50, 49}, Dtype::f64);
    const std::vector<double> sums = ops::sum(rows, {1}).to_vector<double>(),
                              means = ops::mean(rows, {1}).to_vector<double>();
    for (std::size_t i = 0; i < sums.size(); ++i) EXPECT_EQ(means[i], sums[i] / 49);
}

// A constant that FP32 has no digits for loses none on an f64 tensor; and in FP32 no more than its own last digit.
inline void expect_exact_constants(Device device) {
    const std::vector<double> values = random_values(200, 0.5, 3, 11), targets = random_values(200, 0.4, 2.9, 12);
    const auto expect = [&](const char* name, const Function& run, auto exact) {
        const Tensor x = leaf_on(device, values, {10, 20}, Dtype::f64),
                     t = leaf_on(device, targets, {10, 20}, Dtype::f64);
        const std::vector<double> y = run({x, t}).to_vector<double>();
        for (std::size_t i = 0; i < y.size(); ++i)
            ASSERT_NEAR(y[i], exact(i), 1e-14 * std::fmax(1.0, std::fabs(exact(i)))) << name;
    };
    const auto v = [&](std::size_t i) { return values[i]; };
    expect(
        "pow", [](const Tensors& in) { return ops::pow(in[0], 2.1); },
        [&](std::size_t i) { return std::pow(v(i), 2.1); });
    expect(
        "mul", [](const Tensors& in) { return in[0] * 0.1; }, [&](std::size_t i) { return v(i) * 0.1; });
    expect(
        "add", [](const Tensors& in) { return in[0] + 0.1; }, [&](std::size_t i) { return v(i) + 0.1; });
    expect(
        "div", [](const Tensors& in) { return in[0] / 0.3; }, [&](std::size_t i) { return v(i) / 0.3; });
    expect(
        "clamp", [](const Tensors& in) { return ops::clamp(in[0], 1.1, 2.3); },
        [&](std::size_t i) { return std::fmin(std::fmax(v(i), 1.1), 2.3); });
    expect(
        "smooth_l1", [](const Tensors& in) { return ops::smooth_l1_error(in[0], in[1], 0.3); },
        [&](std::size_t i) {
            const double d = std::fabs(values[i] - targets[i]);
            return d < 0.3 ? 0.5 * d * d / 0.3 : d - 0.15;
        });
    expect(
        "layer_norm", [](const Tensors& in) { return ops::layer_norm(in[0], {20}, {}, {}, 0.1); },
        [&](std::size_t i) {
            double mean = 0, spread = 0;
            const std::size_t row = i / 20 * 20;
            for (std::size_t k = row; k < row + 20; ++k) mean += values[k] / 20;
            for (std::size_t k = row; k < row + 20; ++k) spread += (values[k] - mean) * (values[k] - mean) / 20;
            return (values[i] - mean) / std::sqrt(spread + 0.1);
        });
    for (const double exponent :
         {2.1, -0.3, 1.7}) {  // x is large, and so is what its logarithm makes of a lost digit; CUDA has pow to 4 ulp
        const Tensor x = leaf_on(device, random_values(1000, 1e3, 1e12, 3), {1000}, Dtype::f32);
        const Tensor y = ops::pow(x, exponent);
        backward(y, ops::ones({1000}, Dtype::f32, device));
        const std::vector<double> from = x.to_vector<double>(), to = y.to_vector<double>(),
                                  gradient = x.grad().to_vector<double>();
        for (std::size_t i = 0; i < from.size(); ++i) {
            ASSERT_NEAR(to[i] / std::pow(from[i], exponent), 1, 16 * 0x1p-24) << exponent;
            ASSERT_NEAR(gradient[i] / (exponent * std::pow(from[i], exponent - 1)), 1, 16 * 0x1p-24) << exponent;
        }
    }
    for (const double edge : {0.0, -2.0, double(INFINITY)})  // where there is no logarithm
        for (const double exponent : {2.1, -0.3}) {
            const double got = ops::pow(leaf_on(device, {edge}, {1}, Dtype::f32), exponent).item();
            const double exact = std::pow(edge, exponent);
            EXPECT_TRUE(got == exact || (std::isnan(got) && std::isnan(exact)))
                << edge << "^" << exponent << ": " << got;
        }
}

// Each element by itself, to some units of its own last digit, or of the terms that it is the sum of: what is small is
// right too. Sigmoid and tanh keep their result for backward, as in PyTorch, and 1 less a result near 1 has lost its
// digits: there the gradient is right to 2^-24 of 1.
inline void expect_gradients_with_all_digits(Device device) {
    std::vector<double> values;
    for (int i = -8000; i <= 8000; ++i) values.push_back(double(float(i * 0.01 + 0.003)));
    const auto n = std::int64_t(values.size());
    const auto expect = [&](const char* name, const Function& run, auto size) {
        const Tensor x = leaf_on(device, values, {n}, Dtype::f32), exact = leaf_on({}, values, {n}, Dtype::f64);
        backward(run({x}), ops::ones({n}, Dtype::f32, device));
        backward(run({exact}), ops::ones({n}, Dtype::f64));
        const std::vector<double> got = x.grad().to_vector<double>(), right = exact.grad().to_vector<double>();
        for (std::size_t i = 0; i < got.size(); ++i)
            ASSERT_NEAR(got[i], right[i], 8 * 0x1p-24 * size(values[i], right[i]) + 0x1p-126)
                << name << " at " << values[i];
    };
    const auto logistic = [](double x) { return 1 / (1 + std::exp(-x)); };
    const auto itself = [](double, double right) { return std::fabs(right); };
    expect(
        "softplus", [](const Tensors& in) { return ops::softplus(in[0]); }, itself);
    expect(
        "silu", [](const Tensors& in) { return ops::silu(in[0]); },
        [&](double x, double) { return logistic(x) * (1 + std::fabs(x) * logistic(-x)); });
    expect(
        "gelu_tanh", [](const Tensors& in) { return ops::gelu(in[0], true); },
        [&](double x, double) {  // the exponent is a rounded number, and the exponential multiplies its error
            const double u = 1.5957691216057307 * (x + 0.044715 * x * x * x);
            const double slope = 1.5957691216057307 * (1 + 0.134145 * x * x);
            return logistic(u) * (1 + std::fabs(x) * logistic(-u) * slope) * (1 + std::fmin(std::fabs(u), 100.0));
        });
    for (const double label : {0.0, 1.0})
        expect(
            "bce_with_logits",
            [&](const Tensors& in) {
                return ops::bce_with_logits_error(in[0],
                                                  ops::full(in[0].shape(), label, in[0].dtype(), in[0].device()));
            },
            itself);
    expect(
        "sigmoid", [](const Tensors& in) { return ops::sigmoid(in[0]); },
        [](double x, double right) { return x < 0 ? right : 0.25; });
    expect(
        "tanh", [](const Tensors& in) { return ops::tanh(in[0]); }, [](double, double) { return 1.0; });
}

// Functions and their slopes, each element to some units of its own last digit, however large or small its argument.
inline void expect_functions_with_all_digits(Device device) {
    std::vector<double> values;
    for (int i = -8000; i <= 8000; ++i) values.push_back(double(float(i * 0.01 + 0.003)));
    for (double decade = 1e-30; decade < 2e30; decade *= 10) {
        for (const double step : {1.0, 2.3, -1.7, -6.1}) values.push_back(double(float(decade * step)));
    }
    struct Function1 {
        const char* name;
        Tensor (*run)(const Tensor&);
        double (*exact)(double);
        double (*slope)(double);
        double least;  // argument
    };
    const double everywhere = -std::numeric_limits<double>::infinity();
    const Function1 functions[] = {
        {"sin", ops::sin, std::sin, std::cos, everywhere},
        {"cos", ops::cos, std::cos, [](double x) { return -std::sin(x); }, everywhere},
        {"erf", ops::erf, std::erf, [](double x) { return 1.1283791670955126 * std::exp(-x * x); }, everywhere},
        {"log1p", ops::log1p, std::log1p, [](double x) { return 1 / (1 + x); }, -0.99},
        {"expm1", ops::expm1, std::expm1, [](double x) { return std::exp(x); }, everywhere},
    };
    for (const Function1& function : functions) {
        std::vector<double> inside;
        for (const double x : values)
            if (x >= function.least) inside.push_back(x);
        const auto n = std::int64_t(inside.size());
        const Tensor x = leaf_on(device, inside, {n}, Dtype::f32);
        const Tensor y = function.run(x);
        backward(y, ops::ones({n}, Dtype::f32, device));
        const std::vector<double> got = y.to_vector<double>(), slopes = x.grad().to_vector<double>();
        for (std::size_t i = 0; i < inside.size(); ++i) {
            const double exact = function.exact(inside[i]), slope = function.slope(inside[i]);
            if (std::fabs(exact) < 3e38) {
                ASSERT_NEAR(got[i], exact, 8 * 0x1p-24 * std::fabs(exact) + 0x1p-126)
                    << function.name << " of " << inside[i];
            }
            // The exponent of erf's slope is a rounded number, and the exponential multiplies its error.
            const double exponent = std::string_view(function.name) == "erf" ? inside[i] * inside[i] : 0;
            if (std::fabs(slope) < 3e38) {
                ASSERT_NEAR(slopes[i], slope,
                            8 * 0x1p-24 * std::fabs(slope) * (1 + std::fmin(exponent, 100.0)) + 0x1p-126)
                    << function.name << "'s slope at " << inside[i];
            }
        }
    }
}

// As PyTorch: no values, no statistics, and the running ones stand still.
inline void expect_empty_batches_to_be_normalised(Device device) {
    for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::f16, Dtype::bf16}) {
        const Tensor x = leaf_on(device, {}, {0, 5, 5, 4}, dtype);
        const Tensor gamma = leaf_on(device, {1, 2, 3, 4}, {4}, Dtype::f32),
                     beta = leaf_on(device, {1, 2, 3, 4}, {4}, Dtype::f32);
        const Tensor mean = leaf_on(device, {1, 2, 3, 4}, {4}, Dtype::f32).detach(),
                     variance = leaf_on(device, {5, 6, 7, 8}, {4}, Dtype::f32).detach();
        const Tensor y = ops::batch_norm(x, gamma, beta, mean, variance, true);
        EXPECT_EQ(y.shape(), x.shape());
        backward(y, ops::zeros(y.shape(), y.dtype(), device));
        EXPECT_EQ(x.grad().shape(), x.shape());
        EXPECT_EQ(gamma.grad().to_vector<double>(), std::vector<double>(4, 0.0)) << name_of(dtype);
        EXPECT_EQ(beta.grad().to_vector<double>(), std::vector<double>(4, 0.0)) << name_of(dtype);
        EXPECT_EQ(mean.to_vector<double>(), (std::vector<double>{1, 2, 3, 4}));
        EXPECT_EQ(variance.to_vector<double>(), (std::vector<double>{5, 6, 7, 8}));
    }
}

}  // namespace invar::testing
