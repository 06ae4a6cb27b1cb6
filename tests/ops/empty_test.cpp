// Sizes of zero, and sizes that leave nothing to multiply: results and gradients as the mathematics has them, never
// what happened to lie in memory, and never an error that is not ours.
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

constexpr Dtype kFormats[] = {Dtype::f64, Dtype::f32, Dtype::f16, Dtype::bf16};

// Leaves memory full of NaN behind for the allocator to hand out next.
void poison() {
    std::vector<Tensor> used;
    for (const std::int64_t bytes : {8, 16, 64, 96, 128, 256, 512, 1024, 4096})
        for (int i = 0; i < 4; ++i) used.push_back(full({bytes / 4}, std::numeric_limits<double>::quiet_NaN()));
}

Tensor leaf(const Shape& shape, Dtype dtype) {
    return full(shape, 0.5, dtype).set_requires_grad();
}

// Runs it and goes back with ones, on poisoned memory; every gradient must be there and hold nothing but `expected`.
template <class F>
void expect_gradients(const std::string& name, const F& run, const Tensors& leaves, double expected) {
    poison();
    const Tensor y = run();
    for (const double v : y.to_vector<double>()) EXPECT_FALSE(std::isnan(v)) << name;
    poison();
    backward(y, ones(y.shape(), y.dtype()));
    for (std::size_t i = 0; i < leaves.size(); ++i) {
        ASSERT_TRUE(leaves[i].grad()) << name << ", input " << i;
        EXPECT_EQ(leaves[i].grad().shape(), leaves[i].shape()) << name << ", input " << i;
        for (const double v : leaves[i].grad().to_vector<double>()) EXPECT_EQ(v, expected) << name << ", input " << i;
    }
}

TEST(Empty, BatchesLeaveZeroGradientsInEveryProduct) {
    for (const Dtype dtype : kFormats) {
        const std::string name(name_of(dtype));
        const Tensor w = leaf({4, 3, 3, 3}, dtype), b = leaf({4}, dtype), image = leaf({0, 5, 5, 3}, dtype);
        expect_gradients(
            name + " conv2d", [&] { return conv2d(image, w, b); }, {image, w, b}, 0);
        const Tensor fused = leaf({4, 3, 3, 3}, dtype), fused_bias = leaf({4}, dtype);
        expect_gradients(
            name + " conv2d with relu",
            [&] { return conv2d(image, fused, fused_bias, {.activation = Activation::relu}); }, {fused, fused_bias}, 0);
        const Tensor up = leaf({3, 2, 2, 4}, dtype), up_bias = leaf({4}, dtype);
        expect_gradients(
            name + " conv_transpose2d", [&] { return conv_transpose2d(image, up, up_bias); }, {up, up_bias}, 0);
        for (const Activation activation :
             {Activation::none, Activation::relu, Activation::gelu_tanh, Activation::gelu}) {
            const Tensor x = leaf({0, 3}, dtype), lw = leaf({5, 3}, dtype), lb = leaf({5}, dtype);
            expect_gradients(
                name + " linear", [&] { return linear(x, lw, lb, activation); }, {x, lw, lb}, 0);
        }
        const Tensor x = leaf({0, 3}, dtype), m = leaf({3, 2}, dtype);
        expect_gradients(
            name + " matmul", [&] { return matmul(x, m); }, {x, m}, 0);
        const Tensor stack = leaf({0, 2, 3}, dtype), each = leaf({1, 3, 2}, dtype);
        expect_gradients(
            name + " batched matmul", [&] { return matmul(stack, each); }, {stack, each}, 0);
    }
}

TEST(Empty, BatchesAddNothingToGradientsThatAreThere) {
    for (const Dtype dtype : kFormats) {
        const Tensor w = leaf({4, 3, 3, 3}, dtype), b = leaf({4}, dtype);
        const Tensor one = full({1, 3, 3, 3}, 1, dtype), none = full({0, 5, 5, 3}, 1, dtype);
        backward(sum(conv2d(one, w, b)));
        backward(sum(conv2d(none, w, b)));
        for (const Tensor& grad : {w.grad(), b.grad()})
            for (const double v : grad.to_vector<double>()) EXPECT_EQ(v, 1) << name_of(dtype);
    }
}

TEST(Empty, InnerSizesGiveZerosOrTheBias) {
    for (const Dtype dtype : kFormats) {
        const std::string name(name_of(dtype));
        const Tensor x = leaf({2, 3, 0}, dtype), m = leaf({0, 4}, dtype);
        expect_gradients(
            name + " matmul", [&] { return matmul(x, m); }, {x, m}, 0);
        EXPECT_EQ(matmul(x, m).to_vector<double>(), std::vector<double>(24, 0.0)) << name;
        EXPECT_EQ(matmul(leaf({0}, dtype), leaf({0}, dtype)).item(), 0) << name;
        const Tensor b = leaf({5}, dtype);
        poison();
        EXPECT_EQ(linear(leaf({3, 0}, dtype), leaf({5, 0}, dtype), b).to_vector<double>(),
                  std::vector<double>(15, 0.5));
        expect_gradients(
            name + " linear's bias",
            [&] {
                return linear(leaf({3, 0}, dtype), leaf({5, 0}, dtype), b);
            },
            {b}, 3);
        const Tensor rows = leaf({3, 4}, dtype);
        expect_gradients(
            name + " linear to nothing",
            [&] {
                return linear(rows, leaf({0, 4}, dtype));
            },
            {rows}, 0);
    }
}

TEST(Empty, RowsLeaveZeroGradientsInNormsLossesAndIndices) {
    for (const Dtype dtype : kFormats) {
        const std::string name(name_of(dtype));
        const auto fresh = [&] { return Tensors{leaf({4}, dtype), leaf({4}, dtype)}; };
        const Tensor x = leaf({0, 4}, dtype), mean = zeros({4}), variance = ones({4});
        const Tensors l = fresh(), g = fresh(), b = fresh();
        expect_gradients(
            name + " layer_norm", [&] { return layer_norm(x, {4}, l[0], l[1]); }, l, 0);
        expect_gradients(
            name + " group_norm", [&] { return group_norm(x, 2, g[0], g[1]); }, g, 0);
        if (dtype != Dtype::f64)
            expect_gradients(
                name + " batch_norm", [&] { return batch_norm(x, b[0], b[1], mean, variance, false); }, b, 0);
        const Tensor table = leaf({3, 4}, dtype);
        expect_gradients(
            name + " embedding", [&] { return embedding(zeros({0}, Dtype::i64), table); }, {table}, 0);
        const Tensor picked = leaf({3, 4}, dtype);
        expect_gradients(
            name + " gather",
            [&] {
                return gather(picked, 0, zeros({0, 4}, Dtype::i64));
            },
            {picked}, 0);
        const Tensor scale = leaf({4}, dtype), shift = leaf({4}, dtype), divisor = leaf({4}, dtype);
        expect_gradients(
            name + " broadcast", [&] { return (x * scale + shift) / divisor; }, {scale, shift, divisor}, 0);
        const Tensor logits = leaf({0, 4}, dtype);
        expect_gradients(
            name + " cross_entropy", [&] { return cross_entropy(logits, zeros({0}, Dtype::i64), {Reduction::sum}); },
            {logits}, 0);
    }
}

TEST(Empty, ReductionsAreZeroAndMeansNaN) {
    for (const Dtype dtype : kFormats) {
        poison();
        EXPECT_EQ(sum(zeros({0}, dtype)).item(), 0);
        EXPECT_EQ(sum(zeros({0, 3}, dtype), {0}).to_vector<double>(), std::vector<double>(3, 0.0));
        EXPECT_EQ(sum(zeros({3, 0}, dtype), {1}).to_vector<double>(), std::vector<double>(3, 0.0));
        for (const Tensor& x : {mean(zeros({0}, dtype)), var(zeros({0}, dtype)), var(zeros({0}, dtype), {}, false),
                                var(zeros({1}, dtype)), mean(zeros({0, 2}, dtype), {0}), var(zeros({0, 2}, dtype), {0}),
                                mean(zeros({3, 2, 0}, dtype), {0, 2}), mean(zeros({1, 0, 2, 7}, dtype), {0, 1, 3}),
                                var(zeros({0, 2, 7}, dtype), {0, 2})})
            for (const double v : x.to_vector<double>()) EXPECT_TRUE(std::isnan(v)) << name_of(dtype);
    }
}

TEST(Empty, LargestOfNoRowsAreNone) {
    const Tensor x = leaf({3, 0, 5}, Dtype::f32);
    const MaxResult largest = max(x, 2);
    EXPECT_EQ(largest.values.shape(), (Shape{3, 0}));
    EXPECT_EQ(largest.indices.shape(), (Shape{3, 0}));
    backward(largest.values, zeros({3, 0}));
    EXPECT_EQ(x.grad().shape(), x.shape());
    EXPECT_EQ(argmax(x, 0, true).shape(), (Shape{1, 0, 5}));
    EXPECT_ERROR(max(x, 1), Error, "nothing to choose from");
    EXPECT_ERROR(max(x), Error, "nothing to choose from");
}

// The outer weights of a window that is larger than the image never meet a pixel: their gradient is 0, and the others'
// is the sum of what they met.
TEST(Convolution, WeightsThatMeetThePaddingAloneHaveNoGradient) {
    for (const Dtype dtype : kFormats)
        for (const std::int64_t channels : {1, 2, 8, 16, 32})
            for (const std::int64_t size : {1, 2}) {
                const Tensor w = leaf({channels, 3, 3, channels}, dtype);
                const Tensor y = conv2d(full({2, size, 1, channels}, 1, dtype), w, {}, {.stride = 2, .padding = 1});
                std::vector<Tensor> used;
                for (int i = 0; i < 6; ++i) used.push_back(full({w.numel()}, 1e4, i % 2 == 0 ? Dtype::f32 : dtype));
                used.clear();
                backward(y, ones(y.shape(), dtype));
                const std::vector<double> grad = w.grad().to_vector<double>();
                for (std::size_t i = 0; i < grad.size(); ++i) {
                    const std::size_t tap = i / std::size_t(channels) % 9;
                    const bool met = tap == 4 || (size == 2 && tap == 7);
                    ASSERT_EQ(grad[i], met ? 2 : 0) << name_of(dtype) << ", " << channels << " channels, tap " << tap;
                }
            }
}

TEST(Convolution, RefusesSizesOfZeroInOneLine) {
    const Tensor image = ones({1, 4, 4, 2});
    EXPECT_ERROR(conv2d(ones({1, 4, 4, 0}), ones({2, 3, 3, 0})), Error, "[2, 3, 3, 0] must all be at least 1");
    EXPECT_ERROR(conv2d(image, ones({0, 3, 3, 2})), Error, "at least 1");
    EXPECT_ERROR(conv2d(image, ones({2, 0, 3, 2})), Error, "at least 1");
    EXPECT_ERROR(conv2d(ones({1, 0, 4, 2}), ones({2, 3, 3, 2}), {}, {.padding = 2}), Error, "hold no pixel");
    EXPECT_ERROR(conv2d(ones({1, 4, 4, 0}), ones({2, 3, 3, 0}), {}, {.groups = 2}), Error, "at least 1");
    EXPECT_ERROR(conv2d(image, ones({2, 3, 3, 2}), {}, {.groups = 0}), Error, "groups 0");
    EXPECT_ERROR(conv_transpose2d(image, ones({2, 3, 3, 0})), Error, "at least 1");
    EXPECT_ERROR(conv_transpose2d(ones({1, 4, 4, 0}), ones({0, 3, 3, 2})), Error, "at least 1");
    EXPECT_ERROR(conv_transpose2d(image, ones({2, 3, 3, 2}), {}, {.output_padding = -1}), Error, "(-1, -1)");
    EXPECT_ERROR(max_pool2d(ones({1, 0, 4, 2}), {.kernel = 2, .padding = 1}), Error, "hold no pixel");
    EXPECT_ERROR(avg_pool2d(ones({1, 4, 4, 0}), {}), Error, "without channels");
}

// Output padding may be larger than the stride where the dilation is larger still; the rows it adds hold the bias.
TEST(ConvTranspose2d, TakesOutputPaddingUpToTheDilation) {
    struct Case {
        Conv2dOptions options;
        std::int64_t size;
    };
    for (const Dtype dtype : kFormats)
        for (const auto& [options, size] :
             {Case{{.dilation = 2, .output_padding = 1}, 6}, Case{{.dilation = 3, .output_padding = 2}, 8},
              Case{{.padding = 1, .dilation = 4, .output_padding = 3}, 8},
              Case{{.stride = 2, .dilation = {5, 1}, .output_padding = {4, 1}}, 14}}) {
            poison();
            const Tensor x = leaf({1, 3, 3, 2}, dtype), w = leaf({2, 2, 2, 1}, dtype), b = leaf({1}, dtype);
            const Tensor y = conv_transpose2d(x, w, b, options);
            EXPECT_EQ(y.size(1), size);
            // The definition: each input pixel adds its multiple of the weight, dilated, at its strided place.
            std::vector<double> expected(std::size_t(y.numel()), 0.5);
            for (int i = 0; i < 3; ++i)
                for (int j = 0; j < 3; ++j)
                    for (int r = 0; r < 2; ++r)
                        for (int c = 0; c < 2; ++c) {
                            const auto h = i * options.stride[0] + r * options.dilation[0] - options.padding[0];
                            const auto v = j * options.stride[1] + c * options.dilation[1] - options.padding[1];
                            if (h >= 0 && h < y.size(1) && v >= 0 && v < y.size(2))
                                expected[std::size_t(h * y.size(2) + v)] += 0.5;  // 2 channels of 0.5 * 0.5
                        }
            EXPECT_EQ(y.to_vector<double>(), expected) << name_of(dtype);
            backward(sum(y));
            EXPECT_EQ(b.grad().item(), double(y.numel()));
            double reached = 0;
            for (const double v : expected) reached += v - 0.5;
            double total = 0;
            for (const double v : w.grad().to_vector<double>()) total += v;
            EXPECT_EQ(total, 2 * reached) << name_of(dtype);
            total = 0;
            for (const double v : x.grad().to_vector<double>()) total += v;
            EXPECT_EQ(total, 2 * reached) << name_of(dtype);
        }
    // Windows that all lie in the padding that is cut off: nothing but the bias is left.
    const Tensor x = leaf({1, 1, 1, 1}, Dtype::f32), w = leaf({1, 1, 1, 1}, Dtype::f32), b = leaf({1}, Dtype::f32);
    const auto run = [&] { return conv_transpose2d(x, w, b, {.padding = 1, .dilation = 3, .output_padding = 2}); };
    expect_gradients("all in the padding", run, {x, w}, 0);
    EXPECT_EQ(run().item(), 0.5);
    EXPECT_EQ(b.grad().item(), 1);
}

TEST(Cast, ToBoolIsTrueForAnythingButZero) {
    const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
    const std::vector<std::uint8_t> truth{1, 1, 1, 0, 0, 1, 1, 1};
    for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::f8e5m2}) {
        const Tensor x = Tensor::from(std::vector<double>{0.5, nan, 256, 0, -0.0, -inf, -0.25, 2}, {8}, dtype);
        EXPECT_EQ(cast(x, Dtype::boolean).to_vector<std::uint8_t>(), truth) << name_of(dtype);
        const Tensor column = slice(reshape(x, {4, 2}), 1, 0, 1);  // strided
        EXPECT_EQ(cast(column, Dtype::boolean).to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{1, 1, 0, 1}));
    }
    for (const Dtype dtype : {Dtype::i64, Dtype::i32, Dtype::u8}) {
        const Tensor x = Tensor::from(std::vector<std::int64_t>{0, 1, 2, 128, 255}, {5}, dtype);
        EXPECT_EQ(cast(x, Dtype::boolean).to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{0, 1, 1, 1, 1}));
    }
    const Tensor large = Tensor::from(std::vector<std::int64_t>{256, std::int64_t(1) << 40, -256}, {3});
    EXPECT_EQ(cast(large, Dtype::boolean).to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{1, 1, 1}));
    EXPECT_EQ(full({1}, 0.5, Dtype::boolean).to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{1}));
    const Tensor yes = full({1}, 1, Dtype::boolean);
    EXPECT_EQ((yes + yes).to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{1}));  // or, not 2
    EXPECT_EQ(where(cast(Tensor::scalar(0.5), Dtype::boolean), Tensor::scalar(1), Tensor::scalar(2)).item(), 1);
}

}  // namespace
}  // namespace invar::testing
