// The products and convolutions that have kernels or epilogues of their own, in the geometries that lead to each of
// them, against the CPU in f64.
#include <algorithm>
#include <cmath>
#include <limits>

#include "invar/amp/autocast.h"
#include "invar/autograd/node.h"
#include "invar/core/error.h"
#include "invar/core/format_info.h"
#include "invar/ops/ops.h"
#include "tests/gpu/fixture.h"
#include "tests/ops/cases.h"

namespace invar::testing {
namespace {

struct Layer {
    Shape x, w;
    ops::Conv2dOptions options{};
};

Tensor leaf(const Shape& shape, Dtype dtype, std::uint64_t seed) {
    return on_gpu(Tensor::from(random_values(shape.numel(), -1, 1, seed), shape, dtype).set_requires_grad());
}
Tensor exactly(const Tensor& x) {
    return Tensor::from(x.to_vector<double>(), x.shape()).set_requires_grad();
}
double distance(const Tensor& got, const Tensor& exact) {
    const std::vector<double> a = got.to_vector<double>(), b = exact.to_vector<double>();
    double wrong = 0, all = 0;
    for (std::size_t i = 0; i < a.size(); ++i) wrong += (a[i] - b[i]) * (a[i] - b[i]), all += b[i] * b[i];
    return std::isfinite(wrong) ? std::sqrt(wrong / all) : wrong;
}
// g where the result passed; the mask is the device's own, for a value at 0 may round to either side.
Tensor where_passed(const Tensor& g, const Tensor& y) {
    std::vector<double> values = g.to_vector<double>();
    const std::vector<double> result = y.to_vector<double>();
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = result[i] > 0 ? values[i] : 0.0;
    return Tensor::from(values, g.shape());
}

class GpuLayers : public OnGpu<::testing::TestWithParam<Dtype>> {
  protected:
    double rounding() const { return format_info(GetParam()).epsilon; }
    // FP32 sums of n random terms, in whatever order: far below one rounding to 16 bits.
    static double sums(std::int64_t n) { return std::sqrt(double(n)) * format_info(Dtype::f32).epsilon; }

    // Twice, so that the second gradient is added to the first.
    void check_twice(const Layer& layer) const {
        const Tensor x = leaf(layer.x, GetParam(), 1), w = leaf(layer.w, GetParam(), 2);
        const Tensor b = leaf({layer.w[0]}, GetParam(), 3);
        const std::string what = layer.x.str() + " with " + layer.w.str();
        ops::Conv2dOptions plain = layer.options;
        plain.activation = Activation::none;
        const Tensor xe = exactly(x), we = exactly(w), be = exactly(b);
        const Tensor y = ops::conv2d(x, w, b, layer.options), ye = ops::conv2d(xe, we, be, plain);
        const bool relu = layer.options.activation == Activation::relu;
        EXPECT_LE(distance(y, relu ? ops::relu(ye) : ye), 2 * rounding() + sums(w.numel() / w.size(0))) << what;
        const Tensor g = leaf(y.shape(), GetParam(), 4).detach();
        const Tensor g_exact = relu ? where_passed(g, y) : exactly(g).detach();
        for (int turn = 1; turn <= 2; ++turn) {
            backward(y, g, true);
            backward(ye, g_exact, true);
            const std::int64_t positions = y.numel() / y.size(-1);
            EXPECT_LE(distance(x.grad(), xe.grad()), turn * rounding() + sums(w.numel() / w.size(3))) << what;
            EXPECT_LE(distance(w.grad(), we.grad()), turn * rounding() + sums(positions)) << what << ", turn " << turn;
            EXPECT_LE(distance(b.grad(), be.grad()), turn * rounding() + sums(positions)) << what << ", turn " << turn;
        }
    }
};

TEST_P(GpuLayers, GiveTheWeightGradientsOfEveryGeometry) {
    const Layer layers[] = {{{3, 26, 26, 32}, {64, 3, 3, 32}},
                            {{2, 13, 17, 40}, {72, 3, 3, 40}, {.padding = {1, 1}}},
                            {{2, 30, 131, 8}, {8, 3, 3, 8}, {.stride = {2, 2}, .padding = {1, 1}}},
                            {{2, 9, 9, 96}, {136, 3, 3, 96}, {.padding = {2, 2}, .dilation = {2, 2}}},
                            {{2, 14, 14, 64}, {128, 1, 1, 64}, {.stride = {2, 2}}},
                            {{2, 11, 70, 16}, {24, 5, 5, 16}, {.padding = {2, 2}}},
                            {{2, 20, 20, 16}, {16, 7, 7, 16}, {.stride = {2, 1}, .padding = {3, 3}}},
                            {{300, 7, 7, 32}, {32, 3, 3, 32}, {.padding = {1, 1}}},
                            {{21, 13, 13, 48}, {56, 3, 3, 48}, {.padding = {1, 1}}},
                            {{260, 3, 3, 64}, {64, 3, 3, 64}, {.padding = {1, 1}}},
                            {{1, 24, 170, 72}, {72, 3, 3, 72}, {.padding = {1, 1}}},
                            {{24, 25, 26, 56}, {48, 3, 3, 56}, {.stride = {2, 2}, .padding = {1, 1}}},
                            {{3, 12, 15, 16}, {24, 2, 2, 16}, {.stride = {2, 2}}},
                            {{2, 5, 5, 12}, {20, 3, 3, 12}},
                            {{2, 26, 26, 32}, {64, 3, 3, 32}, {.activation = Activation::relu}}};
    for (const Layer& layer : layers) check_twice(layer);
}

TEST_P(GpuLayers, ConvolveImagesOfFewChannels) {
    for (const Activation activation : {Activation::none, Activation::relu}) {
        const Layer layers[] = {{{5, 28, 28, 1}, {32, 3, 3, 1}},
                                {{3, 32, 32, 3}, {64, 3, 3, 3}, {.padding = {1, 1}}},
                                {{2, 33, 31, 3}, {40, 3, 3, 3}, {.stride = {2, 2}, .padding = {1, 1}}},
                                {{2, 12, 150, 1}, {8, 5, 5, 1}, {.padding = {2, 2}}},
                                {{2, 40, 40, 2}, {24, 2, 4, 2}, {.stride = {2, 1}, .dilation = {2, 1}}},
                                {{700, 6, 6, 1}, {16, 3, 3, 1}},
                                {{2, 30, 30, 3}, {16, 7, 7, 3}, {.stride = {2, 2}, .padding = {3, 3}}},
                                {{2, 32, 35, 3}, {40, 8, 8, 3}, {.stride = {8, 8}}},
                                {{20, 224, 224, 3}, {8, 7, 7, 3}, {.stride = {2, 2}, .padding = {3, 3}}}};
        for (Layer layer : layers) {
            layer.options.activation = activation;
            check_twice(layer);
        }
    }
}

// To many channels, one product for each row of a window; to few, a kernel of our own; the bias comes with either.
TEST_P(GpuLayers, SpreadPixelsOverWindowsThatTileTheImage) {
    const Layer layers[] = {{{2, 5, 40, 64}, {64, 2, 2, 64}, {.stride = {2, 2}}},
                            {{2, 6, 33, 64}, {64, 2, 2, 1}, {.stride = {2, 2}}},
                            {{1, 3, 35, 16}, {16, 1, 2, 2}, {.stride = {1, 2}}},
                            {{3, 7, 5, 256}, {256, 4, 1, 1}, {.stride = {4, 1}}},
                            {{2, 4, 32, 128}, {128, 4, 3, 8}, {.stride = {4, 3}}},
                            {{2, 5, 40, 8}, {8, 1, 1, 16}},
                            {{2, 5, 40, 64}, {64, 2, 2, 8}, {.stride = {2, 2}, .output_padding = {1, 1}}}};
    for (const Layer& layer : layers)
        for (const bool biased : {true, false}) {
            const std::string what = layer.x.str() + " with " + layer.w.str() + (biased ? " and a bias" : "");
            const Tensor x = leaf(layer.x, GetParam(), 1), w = leaf(layer.w, GetParam(), 2);
            const Tensor b = biased ? leaf({layer.w[3]}, GetParam(), 3) : Tensor{};
            const Tensor xe = exactly(x), we = exactly(w), be = biased ? exactly(b) : Tensor{};
            const Tensor y = ops::conv_transpose2d(x, w, b, layer.options);
            const Tensor ye = ops::conv_transpose2d(xe, we, be, layer.options);
            EXPECT_LE(distance(y, ye), rounding() + sums(layer.x[3])) << what;
            const Tensor g = leaf(y.shape(), GetParam(), 4).detach();
            backward(y, g);
            backward(ye, exactly(g).detach());
            EXPECT_LE(distance(x.grad(), xe.grad()), rounding() + sums(w.numel() / layer.x[3])) << what;
            EXPECT_LE(distance(w.grad(), we.grad()), rounding() + sums(x.numel() / layer.x[3])) << what;
            if (biased) {
                EXPECT_LE(distance(b.grad(), be.grad()), rounding() + sums(y.numel() / y.size(-1))) << what;
            }
        }
}

// What another reader of the input has sent back is added on the way: by the product itself, or behind it.
TEST_P(GpuLayers, AddTheGradientThatIsPending) {
    for (const std::int64_t side : {1, 3}) {
        const Tensor start = leaf({2, 6, 7, 16}, GetParam(), 1), w = leaf({16, side, side, 16}, GetParam(), 2);
        const Tensor exact_start = exactly(start), exact_w = exactly(w);
        const auto forward = [&](const Tensor& x, const Tensor& weight) {
            const Tensor both = ops::relu(x);  // read twice: the sum, whose backward comes first, leaves its gradient
            return ops::add(ops::conv2d(both, weight, {}, {.padding = {side / 2, side / 2}}), both);
        };
        const Tensor y = forward(start, w), ye = forward(exact_start, exact_w);
        const Tensor g = leaf(y.shape(), GetParam(), 4).detach();
        backward(y, g);
        backward(ye, exactly(g).detach());
        EXPECT_LE(distance(start.grad(), exact_start.grad()), 2 * rounding() + sums(16 * side * side)) << side;
        EXPECT_LE(distance(w.grad(), exact_w.grad()), rounding() + sums(2 * 6 * 7)) << side;
    }
}

TEST_P(GpuLayers, KeepRunningStatisticsFromABatchThatIsNotFinite) {
    const Tensor mean = on_gpu(ops::full({8}, 5)), variance = on_gpu(ops::full({8}, 7));
    const Tensor x = leaf({4, 3, 3, 8}, GetParam(), 1).detach();
    kernels_for(x.device()).fill(x.window(0, {1}).view(), std::numeric_limits<double>::infinity());
    ops::batch_norm(x, {}, {}, mean, variance, true, 0.5, 1e-5, {});
    EXPECT_EQ(mean.to_vector<double>()[0], 5);
    EXPECT_EQ(variance.to_vector<double>()[0], 7);
    for (const std::size_t i : {1, 7}) EXPECT_LT(std::abs(mean.to_vector<double>()[i]), 4) << i;
}

TEST_P(GpuLayers, FirstLayersNeedNoGradientOfTheImage) {
    const Tensor x = leaf({4, 28, 28, 1}, GetParam(), 1).detach(), w = leaf({32, 3, 3, 1}, GetParam(), 2);
    const Tensor b = leaf({32}, GetParam(), 3), we = exactly(w), be = exactly(b);
    const Tensor y = ops::conv2d(x, w, b, {.activation = Activation::relu});
    const Tensor g = leaf(y.shape(), GetParam(), 4).detach();
    backward(y, g);
    backward(ops::conv2d(exactly(x).detach(), we, be), where_passed(g, y));
    EXPECT_LE(distance(w.grad(), we.grad()), rounding() + sums(4 * 26 * 26));
    EXPECT_LE(distance(b.grad(), be.grad()), rounding() + sums(4 * 26 * 26));
}

// Weights are FP32 leaves that autocast narrows without loss: their gradients must not have been through 16 bits.
TEST_P(GpuLayers, KeepWeightGradientsInFp32) {
    const auto narrow = [&](const Shape& shape, std::uint64_t seed) { return leaf(shape, GetParam(), seed).detach(); };
    const auto master = [&](const Shape& shape, std::uint64_t seed) {
        return ops::cast(narrow(shape, seed), Dtype::f32).detach().set_requires_grad();
    };
    const Layer layers[] = {{{16, 26, 26, 32}, {64, 3, 3, 32}}, {{16, 28, 28, 1}, {32, 3, 3, 1}}};
    for (const Layer& layer : layers) {
        const Tensor x = narrow(layer.x, 1), w = master(layer.w, 2), b = master({layer.w[0]}, 3);
        const Tensor we = exactly(w), be = exactly(b);
        const bool low = GetParam() != Dtype::f32;
        Tensor y;
        {
            const Autocast cast(low ? GetParam() : Dtype::f16, low);
            y = ops::conv2d(x, w, b);
        }
        const Tensor g = narrow(y.shape(), 4);
        backward(y, g);
        backward(ops::conv2d(exactly(x).detach(), we, be), exactly(g).detach());
        EXPECT_EQ(w.grad().dtype(), Dtype::f32);
        EXPECT_LE(distance(w.grad(), we.grad()), 4 * sums(y.numel() / y.size(-1))) << layer.x.str();
        EXPECT_LE(distance(b.grad(), be.grad()), 4 * sums(y.numel() / y.size(-1))) << layer.x.str();
    }
}

TEST_P(GpuLayers, ApplyActivationsInTheProduct) {
    for (const Activation activation : {Activation::none, Activation::relu, Activation::gelu_tanh, Activation::gelu})
        for (const auto& [rows, in, out] : {std::array{32, 784, 512}, {5, 64, 10}, {128, 9216, 128}, {257, 72, 24}}) {
            const Tensor x = leaf({rows, in}, GetParam(), 1), w = leaf({out, in}, GetParam(), 2);
            const Tensor b = leaf({out}, GetParam(), 3), xe = exactly(x), we = exactly(w), be = exactly(b);
            const Tensor y = ops::linear(x, w, b, activation), before = ops::linear(xe, we, be);
            const bool relu = activation == Activation::relu;
            const Tensor ye = relu                             ? ops::relu(before)
                              : activation == Activation::none ? before
                                                               : ops::gelu(before, activation == Activation::gelu_tanh);
            const std::string what = fmt::format("{}x{} by {}, activation {}", rows, in, out, int(activation));
            EXPECT_LE(distance(y, ye), 2 * rounding() + sums(in)) << what;
            const Tensor g = leaf(y.shape(), GetParam(), 4).detach();
            for (int turn = 1; turn <= 2; ++turn) {
                backward(y, g, true);
                if (relu)
                    backward(before, where_passed(g, y), true);
                else
                    backward(ye, exactly(g).detach(), true);
                // A gelu's derivative is taken at a rounded place, by the device's own tanh, and its product rounded
                // again.
                const double allowed = (turn + 2) * rounding() + 8 * format_info(Dtype::f32).epsilon;
                EXPECT_LE(distance(x.grad(), xe.grad()), allowed + sums(out)) << what;
                EXPECT_LE(distance(w.grad(), we.grad()), allowed + sums(rows)) << what << ", turn " << turn;
                EXPECT_LE(distance(b.grad(), be.grad()), allowed + sums(rows)) << what << ", turn " << turn;
            }
        }
}

// Libraries make 0 of NaN in their activations; what went wrong before one must still be seen behind it.
TEST_P(GpuLayers, PassNaNOnThroughTheActivationsTheyApply) {
    const auto with_nan = [&](const Shape& shape) {
        const Tensor x = leaf(shape, GetParam(), 1).detach();
        kernels_for(x.device()).fill(x.view(), 0.5);
        kernels_for(x.device()).fill(x.window(0, {1}).view(), std::numeric_limits<double>::quiet_NaN());
        return x;
    };
    const auto nans = [](const Tensor& y) {
        const std::vector<double> values = y.to_vector<double>();
        return std::count_if(values.begin(), values.end(), [](double v) { return std::isnan(v); });
    };
    for (const Activation activation : {Activation::relu, Activation::gelu_tanh, Activation::gelu})
        for (const std::int64_t out : {512, 10}) {
            const Tensor y = ops::linear(with_nan({32, 784}), leaf({out, 784}, GetParam(), 2).detach(),
                                         leaf({out}, GetParam(), 3).detach(), activation);
            EXPECT_EQ(nans(y), out) << "a row, activation " << int(activation);
        }
    for (const std::int64_t channels : {1, 3, 32}) {
        const Tensor y = ops::conv2d(with_nan({2, 8, 8, channels}), leaf({16, 3, 3, channels}, GetParam(), 2).detach(),
                                     leaf({16}, GetParam(), 3).detach(), {.activation = Activation::relu});
        EXPECT_EQ(nans(y), 16) << "the one window that sees it, " << channels << " channels";
    }
    EXPECT_EQ(nans(ops::max_pool2d(with_nan({2, 8, 8, 32}), {.kernel = {2, 2}, .activation = Activation::relu})), 1);
}

TEST_P(GpuLayers, GiveTheSameBitsTwice) {
    const auto run = [&] {
        const Tensor x = leaf({64, 26, 26, 32}, GetParam(), 1), w = leaf({64, 3, 3, 32}, GetParam(), 2);
        const Tensor b = leaf({64}, GetParam(), 3), y = ops::conv2d(x, w, b);
        backward(y, leaf(y.shape(), GetParam(), 4).detach());
        return bytes_of(y) + bytes_of(x.grad()) + bytes_of(w.grad()) + bytes_of(b.grad());
    };
    EXPECT_EQ(run(), run());
}

INSTANTIATE_TEST_SUITE_P(Formats, GpuLayers, ::testing::Values(Dtype::f32, Dtype::f16, Dtype::bf16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace invar::testing
