// What tests/ops asks of the CPU at the edges of the range and of the sizes, asked of the GPU.
#include <cmath>
#include <limits>

#include "invar/ops/ops.h"
#include "tests/gpu/fixture.h"
#include "tests/ops/exactness.h"

namespace invar::testing {
namespace {

using namespace invar::ops;

constexpr double kEpsilon = 1.1920929e-7;  // of FP32

Tensor leaf(const std::vector<double>& values, const Shape& shape, Dtype dtype) {
    return on_gpu(Tensor::from(values, shape, dtype).set_requires_grad());
}
Tensor filled(const Shape& shape, double value, Dtype dtype) {
    return on_gpu(full(shape, value, dtype).set_requires_grad());
}

TEST_F(Gpu, KeepsTheDigitsOfCrossEntropysGradient) {
    const Tensor four = leaf({1e4, 1e4, 1e4, 1e4}, {1, 4}, Dtype::f32);
    backward(cross_entropy(four, on_gpu(Tensor::from(std::vector<std::int64_t>{0}, {1}))));
    EXPECT_EQ(four.grad().to_vector<double>(), (std::vector<double>{-0.75, 0.25, 0.25, 0.25}));
    std::vector<std::int64_t> labels;
    for (int i = 0; i < 64; ++i) labels.push_back(i % 7);
    const Tensor target = Tensor::from(labels, {64});
    for (const std::int64_t classes : {10, 12, 1000})  // single elements, packs, more than a warp
        for (const double smoothing : {0.0, 0.1})
            for (const double base : {0.0, 1e4}) {
                const Tensor x = leaf(random_values(64 * classes, base - 15, base + 15, 3), {64, classes}, Dtype::f32);
                const Tensor exact = exactly(x);
                const ClassLossOptions options{Reduction::sum, -100, smoothing};
                backward(cross_entropy(x, on_gpu(target), options));
                backward(cross_entropy(exact, target, options));
                const std::vector<double> a = x.grad().to_vector<double>(), b = exact.grad().to_vector<double>();
                for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 4 * kEpsilon) << classes;
            }
}

TEST_F(Gpu, KeepsNormsParameterGradientsInFp32AndShowsOverflow) {
    const std::vector<double> values = random_values(6 * 5 * 8, -2, 2, 5),
                              incoming = random_values(6 * 5 * 8, -1, 1, 7);
    for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
        const Tensor x = leaf(values, {6, 5, 8}, dtype), g = leaf(incoming, {6, 5, 8}, dtype).detach();
        const Tensor gamma = filled({8}, 0.75, Dtype::f32), beta = filled({8}, 0.5, Dtype::f32);
        const Tensor exact = exactly(x), exact_gamma = exactly(gamma), exact_beta = exactly(beta);
        backward(group_norm(x, 2, gamma, beta), g);
        backward(group_norm(exact, 2, exact_gamma, exact_beta), exactly(g).detach());
        EXPECT_LE(distance(gamma.grad(), exact_gamma.grad()), 60 * kEpsilon);
        EXPECT_LE(distance(beta.grad(), exact_beta.grad()), 60 * kEpsilon);
    }
    const Tensor large = leaf({1e20, -2e20, 3e20, 5e19, 2e20, -1e20, 4e20, 1e19}, {2, 4}, Dtype::f32);
    for (const Tensor& y : {layer_norm(large, {4}), group_norm(large, 2), batch_norm(large, {}, {}, {}, {}, true)})
        for (const double v : y.to_vector<double>()) EXPECT_TRUE(std::isnan(v));
}

TEST_F(Gpu, DividesInOneRoundingAndNotThroughSquares) {
    const std::vector<double> values = random_values(1001, -5, 5, 4);
    const Tensor x = leaf(values, {1001}, Dtype::f32);
    const std::vector<float> from = x.to_vector<float>(), thirds = (x / 3.0).to_vector<float>();
    for (std::size_t i = 0; i < from.size(); ++i) ASSERT_EQ(thirds[i], from[i] / 3.0f);
    const Tensor a = leaf({2e-23}, {1}, Dtype::f32), b = leaf({1e-23}, {1}, Dtype::f32);
    backward(a / b);
    EXPECT_NEAR(b.grad().item(), -2e23, 4 * kEpsilon * 2e23);
}

TEST_F(Gpu, CastsToBoolByAskingWhetherItIsZero) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::f8e5m2}) {
        const Tensor x = leaf({0.5, nan, 256, 0, -0.0, -0.25}, {6}, dtype).detach();
        EXPECT_EQ(cast(x, Dtype::boolean).to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{1, 1, 1, 0, 0, 1}))
            << name_of(dtype);
    }
    const Tensor whole = on_gpu(Tensor::from(std::vector<std::int64_t>{256, 0, -256}, {3}));
    EXPECT_EQ(cast(whole, Dtype::boolean).to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{1, 0, 1}));
    EXPECT_EQ(full({1}, 0.5, Dtype::boolean, Device::cuda()).to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{1}));
}

TEST_F(Gpu, LeavesZeroGradientsBehindEmptyBatches) {
    for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::f16, Dtype::bf16}) {
        const auto expect_zero = [&](const Tensor& y, const Tensors& leaves) {
            { const Tensor poison = full({4096}, std::nan(""), Dtype::f32, Device::cuda()); }
            backward(y, full(y.shape(), 1, y.dtype(), Device::cuda()));
            for (const Tensor& x : leaves)
                for (const double v : x.grad().to_vector<double>()) ASSERT_EQ(v, 0) << name_of(dtype);
        };
        const Tensor image = filled({0, 5, 5, 8}, 1, dtype), rows = filled({0, 8}, 1, dtype);
        const Tensor w = filled({8, 3, 3, 8}, 1, dtype), b = filled({8}, 1, dtype);
        expect_zero(conv2d(image, w, b), {w, b});
        const Tensor up = filled({8, 2, 2, 4}, 1, dtype), up_bias = filled({4}, 1, dtype);
        expect_zero(conv_transpose2d(image, up, up_bias), {up, up_bias});
        for (const Activation activation :
             {Activation::none, Activation::relu, Activation::gelu_tanh, Activation::gelu}) {
            const Tensor lw = filled({16, 8}, 1, dtype), lb = filled({16}, 1, dtype);
            expect_zero(linear(rows, lw, lb, activation), {lw, lb});
        }
        const Tensor gamma = filled({8}, 1, dtype), beta = filled({8}, 1, dtype);
        expect_zero(layer_norm(rows, {8}, gamma, beta), {gamma, beta});
        const Tensor scale = filled({8}, 1, dtype), shift = filled({8}, 1, dtype);
        expect_zero(group_norm(rows, 2, scale, shift), {scale, shift});
        const Tensor left = filled({2, 3, 0}, 1, dtype), right = filled({0, 4}, 1, dtype);
        EXPECT_EQ(matmul(left, right).to_vector<double>(), std::vector<double>(24, 0.0));
    }
}

TEST_F(Gpu, ShowsWhatOverflowsInAConvolution) {
    struct Sizes {
        Shape image, filter;
    };
    for (const auto& [image, filter] : {Sizes{{2, 5, 4, 16}, {8, 3, 3, 16}}, Sizes{{2, 4, 5, 3}, {4, 3, 3, 3}},
                                        Sizes{{8, 32, 32, 64}, {64, 3, 3, 64}}, Sizes{{8, 32, 32, 64}, {64, 1, 1, 64}}})
        for (const double sign : {1.0, -1.0})
            for (const bool biased : {false, true}) {
                const Tensor x = filled(image, 300, Dtype::f16), w = filled(filter, sign * 300, Dtype::f16);
                const Tensor bias = biased ? filled({filter[0]}, 1, Dtype::f16) : Tensor{};
                for (const double y : conv2d(x, w, bias).to_vector<double>())
                    ASSERT_EQ(y, sign * std::numeric_limits<double>::infinity()) << image.str() << filter.str();
            }
}

TEST_F(Gpu, GivesIgnoredRowsAZeroGradient) {
    const Tensor x = filled({3, 4}, -1, Dtype::f32);
    const Tensor target = on_gpu(Tensor::from(std::vector<std::int64_t>{-100, -100, -100}, {3}));
    backward(nll_loss(x, target));
    backward(cross_entropy(x, target));
    EXPECT_EQ(x.grad().to_vector<double>(), std::vector<double>(12, 0.0));
    EXPECT_TRUE(std::isnan(var(filled({0}, 1, Dtype::f32)).item()));
}

TEST_F(Gpu, IsExactWhereTheCpuIs) {
    expect_exact_casts(Device::cuda());
    expect_exact_whole_numbers(Device::cuda());
    expect_constant_rows_to_become_zero(Device::cuda());
    expect_divided_averages(Device::cuda());
    expect_exact_constants(Device::cuda());
    expect_gradients_with_all_digits(Device::cuda());
    expect_functions_with_all_digits(Device::cuda());
    expect_empty_batches_to_be_normalised(Device::cuda());
}

}  // namespace
}  // namespace invar::testing
