// Every op at the sizes that models use, in FP32 against f64 on the same numbers. A long sum shows here what small
// cases cannot: one accumulator over a whole batch loses digits with every term.
#include <gtest/gtest.h>

#include <cmath>

#include "invar/ops/ops.h"
#include "tests/ops/cases.h"

namespace invar::testing {
namespace {

using namespace invar::ops;

// A case, and how many products one FP32 accumulator may add up: none but those of oneDNN and cuBLAS, which keep some
// hundreds in a register as every fast product does, and thousands over the images of a convolution.
struct Sized {
    OpCase op;
    std::int64_t summed = 0, gradients_summed = 0;
};

constexpr std::int64_t kInRegister = 512, kOverImages = 4096;

Tensor labels(std::int64_t count, std::int64_t classes) {
    std::vector<std::int64_t> values;
    for (std::int64_t i = 0; i < count; ++i) values.push_back(i * 7919 % classes);
    return Tensor::from(values, {count});
}

std::vector<Sized> sized_cases() {
    std::vector<Sized> all;
    const auto one = [&](const char* name, CaseInput input, Tensor (*run)(const Tensor&)) {
        all.push_back({{name, [run](const Tensors& in) { return run(in[0]); }, {input}}});
    };
    const auto conv = [&](const char* name, const Shape& x, const Shape& w, double low, Conv2dOptions options = {}) {
        all.push_back({{name,
                        [options](const Tensors& in) { return conv2d(in[0], in[1], in[2], options); },
                        {{x, low, 1}, {w}, {{w[0]}}}},
                       kInRegister,
                       kOverImages});
    };
    conv("conv2d, first layer", {128, 28, 28, 1}, {32, 3, 3, 1}, -1);
    conv("conv2d, second layer", {8, 26, 26, 32}, {64, 3, 3, 32}, 0);
    conv("conv2d, many images", {64, 26, 26, 8}, {16, 3, 3, 8}, 0);
    conv("conv2d, padded and strided", {4, 28, 28, 32}, {32, 3, 3, 32}, -1, {{2, 2}, {1, 1}});
    conv("conv2d, depthwise", {8, 28, 28, 32}, {32, 3, 3, 1}, 0, {{1, 1}, {1, 1}, {1, 1}, 32});
    conv("conv2d, 1x1 with a stride over few channels", {2, 64, 64, 8}, {16, 1, 1, 8}, -1, {{2, 2}});
    conv("conv2d, 1x1", {8, 14, 14, 128}, {64, 1, 1, 128}, 0);
    all.push_back({{"conv_transpose2d",
                    [](const Tensors& in) {
                        return conv_transpose2d(in[0], in[1], in[2], {{2, 2}});
                    },
                    {{{4, 14, 14, 64}, 0, 1}, {{64, 2, 2, 32}}, {{32}}}},
                   kInRegister,
                   kOverImages});
    const auto product = [&](const char* name, std::int64_t rows, std::int64_t in, std::int64_t out) {
        all.push_back({{name,
                        [](const Tensors& x) { return linear(x[0], x[1], x[2]); },
                        {{{rows, in}, 0, 1}, {{out, in}}, {{out}}}},
                       kInRegister,
                       kInRegister});
    };
    product("linear, wide", 64, 9216, 128);
    product("linear, many rows", 8192, 96, 64);
    product("linear, ten classes", 512, 2048, 10);
    all.push_back({{"matmul, batch",
                    [](const Tensors& in) { return matmul(in[0], in[1]); },
                    {{{4, 128, 512}, 0, 1}, {{4, 512, 128}}}},
                   kInRegister,
                   kInRegister});

    one("softmax", {{16, 50257}, -8, 8}, [](const Tensor& x) { return softmax(x, -1); });
    one("log_softmax", {{16, 50257}, -8, 8}, [](const Tensor& x) { return log_softmax(x, -1); });
    one("softmax, down columns", {{4, 4096, 16}, -8, 8}, [](const Tensor& x) { return softmax(x, 1); });
    one("cross_entropy, tokens", {{16, 50257}, -8, 8},
        [](const Tensor& x) { return cross_entropy(x, labels(16, 50257)); });
    one("cross_entropy, images", {{4096, 10}, -8, 8},
        [](const Tensor& x) { return cross_entropy(x, labels(4096, 10)); });
    all.push_back({{"layer_norm",
                    [](const Tensors& in) { return layer_norm(in[0], {768}, in[1], in[2]); },
                    {{{2048, 768}, -2, 6}, {{768}, 0.5, 1.5}, {{768}}}}});
    all.push_back({{"rms_norm",
                    [](const Tensors& in) { return rms_norm(in[0], in[1]); },
                    {{{2048, 768}, -2, 6}, {{768}, 0.5, 1.5}}}});
    all.push_back({{"add_layer_norm",
                    [](const Tensors& in) {
                        const Tensors both = add_layer_norm(in[0], in[1], in[2], in[3]);
                        return both[0] + both[1];
                    },
                    {{{2048, 768}, -2, 6}, {{2048, 768}, -1, 1}, {{768}, 0.5, 1.5}, {{768}}}}});
    all.push_back({{"add_rms_norm",
                    [](const Tensors& in) {
                        const Tensors both = add_rms_norm(in[0], in[1], in[2]);
                        return both[0] + both[1];
                    },
                    {{{2048, 768}, -2, 6}, {{2048, 768}, -1, 1}, {{768}, 0.5, 1.5}}}});
    one("rotary", {{2, 2048, 384}},
        [](const Tensor& x) { return rotary(x, 4, 1, rotary_table(2048, rotary_speeds(64), x.dtype())); });
    all.push_back({{"group_norm",
                    [](const Tensors& in) { return group_norm(in[0], 8, in[1], in[2]); },
                    {{{8, 28, 28, 64}, -2, 6}, {{64}, 0.5, 1.5}, {{64}}}}});
    all.push_back({{"batch_norm",
                    [](const Tensors& in) { return batch_norm(in[0], in[1], in[2], {}, {}, true); },
                    {{{32, 28, 28, 32}, -2, 6}, {{32}, 0.5, 1.5}, {{32}}}}});
    one("sum of a million", {{1000000}, 0, 1}, [](const Tensor& x) { return sum(x); });
    one("sum, signs", {{1000, 1000}}, [](const Tensor& x) { return sum(x, {0}); });
    one("mean of a million", {{1000000}, 0, 1}, [](const Tensor& x) { return mean(x); });
    one("var of a million", {{1000000}, 1, 2}, [](const Tensor& x) { return var(x); });
    one("std of a million", {{1000000}, 1, 2}, [](const Tensor& x) { return std(x); });
    one("norm of a million", {{1000000}}, [](const Tensor& x) { return norm(x); });
    one("norm, sums of magnitudes", {{1000, 1000}}, [](const Tensor& x) { return norm(x, 1, {0}); });
    one("prod", {{500, 100}, 0.9, 1.1}, [](const Tensor& x) { return prod(x, 1); });
    one("max", {{1000, 1000}}, [](const Tensor& x) { return max(x, 1).values; });
    one("min", {{1000, 1000}}, [](const Tensor& x) { return min(x, 0).values; });
    one("cumsum of a million", {{1000000}, 0, 1}, [](const Tensor& x) { return cumsum(x, 0); });
    one("cumsum, down columns", {{1000, 1000}, 0, 1}, [](const Tensor& x) { return cumsum(x, 0); });
    one("sort", {{20, 20000}}, [](const Tensor& x) { return sort(x).values; });
    one("topk", {{16, 50257}}, [](const Tensor& x) { return topk(x, 50).values; });
    one("cross_entropy, weights", {{4096, 10}, -8, 8}, [](const Tensor& x) {
        return cross_entropy(x, labels(4096, 10), {.label_smoothing = 0.1, .weight = full({10}, 0.75)});
    });
    all.push_back({{"cross_entropy, probabilities",
                    [](const Tensors& in) { return cross_entropy(in[0], in[1]); },
                    {{{256, 1000}, -8, 8}, {{256, 1000}, 0, 1}}}});
    one("avg_pool2d, global", {{8, 56, 56, 32}, 0, 1}, [](const Tensor& x) { return adaptive_avg_pool2d(x, {1, 1}); });
    one("avg_pool2d", {{8, 28, 28, 32}}, [](const Tensor& x) { return avg_pool2d(x, {{3, 3}, {2, 2}, {1, 1}}); });
    one("max_pool2d", {{8, 28, 28, 32}}, [](const Tensor& x) { return max_pool2d(x, {}); });
    one("upsample", {{4, 14, 14, 32}}, [](const Tensor& x) {
        return upsample(x, Pair{56, 56}, Interpolation::bilinear);
    });
    one("upsample, bicubic", {{4, 14, 14, 32}}, [](const Tensor& x) {
        return upsample(x, Pair{56, 40}, Interpolation::bicubic);
    });
    all.back().op.gradient_terms = 2;  // weights of both signs
    one("pad, reflect", {{4, 28, 28, 32}}, [](const Tensor& x) { return pad(x, {3, 3, 3, 3}, PadMode::reflect); });
    one("embedding", {{64, 128}}, [](const Tensor& x) { return embedding(labels(50000, 7), x); });
    one("gather", {{100, 50000}}, [](const Tensor& x) { return gather(x, 1, reshape(labels(100, 50000), {100, 1})); });
    all.push_back({{"add, a bias", [](const Tensors& in) { return add(in[0], in[1]); }, {{{20000, 64}}, {{64}}}}});
    all.push_back({{"mul, a scale", [](const Tensors& in) { return mul(in[0], in[1]); }, {{{20000, 64}}, {{64}}}}});
    all.push_back(
        {{"div, a scale", [](const Tensors& in) { return div(in[0], in[1]); }, {{{1000, 1000}}, {{1000}, 2, 3}}}});
    all.push_back({{"mse_loss", [](const Tensors& in) { return mse_loss(in[0], in[1]); }, {{{1000000}}, {{1000000}}}}});
    all.push_back({{"l1_loss", [](const Tensors& in) { return l1_loss(in[0], in[1]); }, {{{1000000}}, {{1000000}}}}});
    all.push_back({{"smooth_l1_loss",
                    [](const Tensors& in) { return smooth_l1_loss(in[0], in[1]); },
                    {{{1000000}}, {{1000000}}}}});
    all.push_back({{"bce_with_logits",
                    [](const Tensors& in) { return bce_with_logits(in[0], in[1]); },
                    {{{1000000}, -30, 30}, {{1000000}, 0, 1}}}});
    all.push_back(
        {{"bce", [](const Tensors& in) { return bce(in[0], in[1]); }, {{{1000000}, 0.01, 0.99}, {{1000000}, 0, 1}}}});
    one("exp", {{100000}, -80, 80}, exp);
    one("log", {{100000}, 1e-3, 1e3}, log);
    one("sqrt", {{100000}, 0, 100}, sqrt);
    one("rsqrt", {{100000}, 1e-3, 100}, rsqrt);
    one("pow", {{100000}, 1e-3, 30}, [](const Tensor& x) { return pow(x, 2.5); });
    one("pow, an exponent that FP32 does not hold", {{100000}, 1e-3, 1e6}, [](const Tensor& x) { return pow(x, 2.1); });
    one("tanh", {{100000}, -30, 30}, tanh);
    one("sigmoid", {{100000}, -30, 30}, sigmoid);
    all.back().op.gradient_terms = 2;  // 1 less the result, which is what is kept, here and in PyTorch: rounded near 1
    one("gelu", {{100000}, -30, 30}, [](const Tensor& x) { return gelu(x); });
    one("gelu_tanh", {{100000}, -30, 30}, [](const Tensor& x) { return gelu(x, true); });
    one("silu", {{100000}, -30, 30}, silu);
    one("softplus", {{100000}, -30, 30}, softplus);
    one("elu", {{100000}, -30, 30}, [](const Tensor& x) { return elu(x, 0.7); });
    one("hardswish", {{100000}, -6, 6}, hardswish);
    one("log1p", {{100000}, -0.999, 1e3}, log1p);
    one("expm1", {{100000}, -30, 30}, expm1);
    one("sin", {{100000}, -1e5, 1e5}, sin);
    one("cos", {{100000}, -1e5, 1e5}, cos);
    one("erf", {{100000}, -5, 5}, erf);
    return all;
}

// The distance from the exact result as a share of what is allowed: of its norm, and of each element. FP32 rounds a
// number by 2^-24 of it; 4 of these for what an op does beside summing. Partial sums round at every term, and these
// errors add up as a random walk: half the root of the number of terms. An element may be out by 8 times the average.
double error_share(const Tensor& got, const Tensor& exact, double terms, std::int64_t summed) {
    const std::vector<double> a = got.to_vector<double>(), b = exact.to_vector<double>();
    double squares = 0, size = 0;
    for (std::size_t i = 0; i < a.size(); ++i) squares += (a[i] - b[i]) * (a[i] - b[i]), size += b[i] * b[i];
    const double allowed = 0x1p-24 * terms * (4 + 0.5 * std::sqrt(double(summed)));
    const double average = std::sqrt(size / double(a.size()));
    double share = size == 0 ? squares : std::sqrt(squares / size) / allowed;
    for (std::size_t i = 0; i < a.size(); ++i)
        share = std::fmax(share, std::fabs(a[i] - b[i]) / (8 * allowed * std::fmax(std::fabs(b[i]), average)));
    return share;
}

TEST(Accuracy, EveryOpKeepsTheDigitsOfFp32AtTheSizesThatModelsUse) {
    for (const Sized& sized : sized_cases()) {
        const Prepared single = prepare_case(sized.op, Dtype::f32);
        Prepared exact = single;
        exact.leaves.clear();
        for (const Tensor& leaf : single.leaves)
            exact.leaves.push_back(Tensor::from(leaf.to_vector<double>(), leaf.shape()).set_requires_grad());
        const Tensor y = single.run(single.leaves), reference = exact.run(exact.leaves);
        EXPECT_LE(error_share(y, reference, sized.op.terms, sized.summed), 1) << sized.op.name;

        const Tensor weights = Tensor::from(random_values(y.numel(), -1, 1, 99), y.shape(), Dtype::f32);
        backward(y, weights);
        backward(reference, Tensor::from(weights.to_vector<double>(), y.shape()));
        for (std::size_t i = 0; i < single.leaves.size(); ++i)
            EXPECT_LE(error_share(single.leaves[i].grad(), exact.leaves[i].grad(), sized.op.gradient_terms,
                                  sized.gradients_summed),
                      1)
                << sized.op.name << ", gradient of input " << i;
    }
}

}  // namespace
}  // namespace invar::testing
