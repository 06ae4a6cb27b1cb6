#include "tests/ops/cases.h"

#include "invar/ops/ops.h"
#include "tests/ops/case_tables.h"

namespace invar::testing {

namespace {

using namespace invar::ops;

// A row for each op of kernels/pointwise.h. The class is said a second time on purpose: one that changes by accident
// changes the numerics of every model.
void add_pointwise(std::vector<OpCase>& all) {
    struct Unary {
        const char* name;
        CastClass cast;
        Tensor (*run)(const Tensor&);
        double low, high, gradient_terms;
    };
    const Unary unary[] = {
        {"neg", CastClass::keep, neg, -2, 2, 1},
        {"affine", CastClass::keep, [](const Tensor& x) { return affine(x, 1.5, -0.5); }, -2, 2, 1},
        {"div_scalar", CastClass::keep, [](const Tensor& x) { return x / 0.7; }, -2, 2, 1},
        {"exp", CastClass::fp32, exp, -2, 2, 1},
        {"log", CastClass::fp32, log, 0.1, 3, 1},
        {"log1p", CastClass::fp32, log1p, -0.5, 3, 1},
        {"expm1", CastClass::fp32, expm1, -2, 2, 1},
        {"sin", CastClass::keep, sin, -3, 3, 1},
        {"cos", CastClass::keep, cos, -3, 3, 1},
        {"erf", CastClass::keep, erf, -2, 2, 1},
        {"sqrt", CastClass::keep, sqrt, 0.1, 3, 1},
        {"rsqrt", CastClass::fp32, rsqrt, 0.1, 3, 3},  // the saved result, rounded once, is cubed
        {"pow_scalar", CastClass::fp32, [](const Tensor& x) { return pow(x, 2.5); }, 0.1, 2, 1},
        {"tanh", CastClass::keep, tanh, -1.5, 1.5,
         6},  // in 1 - y^2, a rounding of y weighs 2 y^2 / (1 - y^2) < 10, over 2 roundings
        {"sigmoid", CastClass::keep, sigmoid, -2, 2, 4},  // in y (1 - y), (2 y - 1) / (1 - y) < 7
        {"relu", CastClass::keep, relu, -2, 2, 1},
        {"gelu", CastClass::keep, gelu, -3, 3, 1},
        {"gelu_tanh", CastClass::keep, gelu_tanh, -3, 3, 1},
        {"silu", CastClass::keep, silu, -3, 3, 1},
        {"softplus", CastClass::fp32, softplus, -3, 3, 1},
        {"leaky_relu", CastClass::keep, [](const Tensor& x) { return leaky_relu(x, 0.1); }, -2, 2, 1},
        {"elu", CastClass::keep, [](const Tensor& x) { return elu(x, 1.3); }, -2, 2, 1},
        {"hardsigmoid", CastClass::keep, hardsigmoid, -4, 4, 1},
        {"hardswish", CastClass::keep, hardswish, -4, 4, 1},
        {"abs", CastClass::keep, abs, -2, 2, 1},
        {"clamp", CastClass::keep, [](const Tensor& x) { return clamp(x, -0.5, 0.7); }, -2, 2, 1},
    };
    for (const Unary& u : unary)
        for (const Shape& shape : {Shape{}, Shape{7}, Shape{3, 2, 5}}) {
            const auto run = u.run;
            all.push_back({fmt::format("{}/{}", u.name, shape.str()),
                           [run](const Tensors& in) { return run(in[0]); },
                           {{shape, u.low, u.high}},
                           1,
                           u.gradient_terms,
                           u.cast});
        }
    struct Binary {
        const char* name;
        CastClass cast;
        Tensor (*run)(const Tensor&, const Tensor&);
        double low_a, high_a, low_b, high_b;
    };
    const Binary binary[] = {
        {"add", CastClass::widest, add, -2, 2, -2, 2},
        {"sub", CastClass::widest, sub, -2, 2, -2, 2},
        {"mul", CastClass::widest, mul, -2, 2, -2, 2},
        {"div", CastClass::widest, div, -2, 2, 0.5, 2},
        {"pow", CastClass::fp32, pow, 0.3, 2, -1, 2},
        {"maximum", CastClass::widest, maximum, -2, 2, -2, 2},
        {"minimum", CastClass::widest, minimum, -2, 2, -2, 2},
        {"mse", CastClass::fp32, squared_error, -2, 2, -2, 2},
        {"l1", CastClass::fp32, absolute_error, -2, 2, -2, 2},
        {"smooth_l1", CastClass::fp32, [](const Tensor& a, const Tensor& b) { return smooth_l1_error(a, b, 0.7); }, -2,
         2, -2, 2},
        {"bce_with_logits", CastClass::fp32, bce_with_logits_error, -2, 2, 0.05, 0.95},
        {"bce", CastClass::refuse, bce_error, 0.1, 0.9, 0.05, 0.95},
    };
    const std::pair<Shape, Shape> shapes[] = {
        {{3, 4}, {3, 4}}, {{2, 3, 4}, {4}}, {{3, 1}, {2, 1, 4}}, {{}, {5}}, {{1, 2, 3}, {2, 3}}};
    for (const Binary& b : binary)
        for (const auto& [first, second] : shapes) {
            const auto run = b.run;
            all.push_back({fmt::format("{}/{}{}", b.name, first.str(), second.str()),
                           [run](const Tensors& in) { return run(in[0], in[1]); },
                           {{first, b.low_a, b.high_a}, {second, b.low_b, b.high_b}},
                           1,
                           1,
                           b.cast});
        }
    all.push_back({"where/broadcast",
                   [](const Tensors& in) {
                       const Tensor condition = Tensor::from(std::vector<int>{1, 0, 1}, {3, 1}, Dtype::boolean);
                       return where(to(condition, case_device()), in[0], in[1]);
                   },
                   {{{3, 4}}, {{2, 1, 4}}}});
    all.push_back({"where/leading_ones",
                   [](const Tensors& in) {
                       const Tensor condition = Tensor::from(std::vector<int>{1, 0, 1}, {1, 1, 3}, Dtype::boolean);
                       return where(to(condition, case_device()), in[0], in[1]);
                   },
                   {{{1, 2, 3}}, {{2, 3}}}});
}

void add_masks(std::vector<OpCase>& all) {
    const auto mask = [] { return indices({1, 0, 0, 1}, {4}) != 0; };
    all.push_back({"where/constant_b", [=](const Tensors& in) { return where(mask(), in[0], 0.25); }, {{{3, 4}}}});
    all.push_back({"where/constant_a", [=](const Tensors& in) { return where(mask(), 2, in[0]); }, {{{3, 4}}}});
    all.push_back(
        {"masked_fill/rows", [=](const Tensors& in) { return masked_fill(in[0], mask(), 0.5); }, {{{2, 3, 4}}}});
    all.push_back({"masked_fill/grows", [=](const Tensors& in) { return masked_fill(in[0], mask(), -2); }, {{{3, 1}}}});
    all.push_back({"tril/matrices", [](const Tensors& in) { return tril(in[0]); }, {{{2, 3, 4}}}});
    all.push_back({"tril/above", [](const Tensors& in) { return tril(in[0], 1); }, {{{4, 3}}}});
    all.push_back({"triu/below", [](const Tensors& in) { return triu(in[0], -1); }, {{{4, 3}}}});
    all.push_back({"triu/nothing_left", [](const Tensors& in) { return triu(in[0], 9); }, {{{3, 3}}}});
}

void add_shapes(std::vector<OpCase>& all) {
    const auto one = [&](const char* name, const Shape& shape, Tensor (*run)(const Tensor&)) {
        all.push_back({name, [run](const Tensors& in) { return run(in[0]); }, {{shape}}});
    };
    one("reshape/open", {2, 3, 4}, [](const Tensor& x) { return reshape(x, {4, -1}); });
    one("reshape/flatten", {2, 3, 4}, [](const Tensor& x) { return flatten(x, 1); });
    one("permute/three", {2, 3, 4}, [](const Tensor& x) { return permute(x, {2, 0, 1}); });
    one("permute/transpose", {2, 3, 4}, [](const Tensor& x) { return transpose(x, 0, -1); });
    one("unsqueeze/end", {2, 3}, [](const Tensor& x) { return unsqueeze(x, -1); });
    one("unsqueeze/middle", {2, 3}, [](const Tensor& x) { return unsqueeze(x, 1); });
    one("squeeze/middle", {2, 1, 3}, [](const Tensor& x) { return squeeze(x, 1); });
    one("slice/steps", {2, 7}, [](const Tensor& x) { return slice(x, 1, 1, 6, 2); });
    one("slice/rows", {5, 2}, [](const Tensor& x) { return slice(x, 0, -3, -1); });
    one("index/view", {3, 4, 5}, [](const Tensor& x) { return x[{-1, NewAxis{}, Slice{1, 4, 2}, Slice{2}}]; });
    one("index/picks", {3, 4, 5}, [](const Tensor& x) {
        return x[{indices({2, 0, -1}, {3}), Slice{1}, indices({4, 4, 4}, {3})}];
    });
    one("slice/split", {2, 7}, [](const Tensor& x) { return split(x, std::vector<std::int64_t>{3, 4}, 1)[1]; });
    one("slice/chunk", {5, 2}, [](const Tensor& x) { return chunk(x, 3)[2]; });
    one("roll/rows", {4, 3}, [](const Tensor& x) { return roll(x, {1}, {0}); });
    one("roll/both", {2, 4, 3}, [](const Tensor& x) { return roll(x, {-6, 4}, {1, -1}); });
    one("roll/flat", {2, 3}, [](const Tensor& x) { return roll(x, {2}); });
    one("roll/not_at_all", {2, 3}, [](const Tensor& x) { return roll(x, {3}, {1}); });
    one("expand/rows", {3, 1}, [](const Tensor& x) { return expand(x, {2, 3, 4}); });
    one("expand/leading_ones", {2, 3}, [](const Tensor& x) { return expand(x, {1, 1, 2, 3}); });
    one("expand/same", {2, 3}, [](const Tensor& x) { return expand(x, {2, 3}); });
    one("contiguous/copy", {3, 4}, [](const Tensor& x) { return contiguous(transpose(x, 0, 1)); });
    one("to/there_and_back", {3, 4}, [](const Tensor& x) { return to(to(x, Device::cpu()), case_device()); });
    one("cast/f64", {3, 4}, [](const Tensor& x) { return cast(x, Dtype::f64); });
    all.push_back({"cat/columns", [](const Tensors& in) { return cat(in, 1); }, {{{2, 3}}, {{2, 1}}, {{2, 4}}}});
    all.push_back({"cat/stack", [](const Tensors& in) { return stack(in, 1); }, {{{2, 3}}, {{2, 3}}}});
}

void add_products(std::vector<OpCase>& all) {
    const auto product = [&](const char* name, const Shape& a, const Shape& b) {
        all.push_back({name, [](const Tensors& in) { return matmul(in[0], in[1]); }, {{a}, {b}}, 3, 3});
    };
    product("matmul/matrices", {3, 4}, {4, 5});
    product("matmul/vectors", {4}, {4});
    product("matmul/matrix_vector", {3, 4}, {4});
    product("matmul/vector_matrix", {4}, {4, 3});
    product("matmul/batch", {2, 3, 4}, {2, 4, 5});
    product("matmul/batch_by_matrix", {2, 3, 4}, {4, 5});
    product("matmul/broadcast_batches", {2, 1, 3, 4}, {3, 4, 2});
    product("matmul/leading_one", {1, 3, 4}, {4, 5});
    product("matmul/column", {3, 1}, {1, 5});
    all.push_back({"matmul/transposed",
                   [](const Tensors& in) { return matmul(transpose(in[0], -1, -2), transpose(in[1], -1, -2)); },
                   {{{2, 4, 3}}, {{2, 5, 4}}},
                   3,
                   3});
    all.push_back({"linear/rows",
                   [](const Tensors& in) { return linear(in[0], in[1], in[2]); },
                   {{{3, 4}}, {{5, 4}}, {{5}}},
                   3,
                   3});
    all.push_back(
        {"linear/deep", [](const Tensors& in) { return linear(in[0], in[1]); }, {{{2, 3, 4}}, {{5, 4}}}, 3, 3});
    all.push_back({"linear/vector",
                   [](const Tensors& in) { return linear(in[0], in[1], in[2]); },
                   {{{4}}, {{3, 4}}, {{3}}},
                   3,
                   3});

    const auto layer = [&](const char* name, Activation activation, std::int64_t rows, std::int64_t in,
                           std::int64_t out) {
        all.push_back({name,
                       [activation](const Tensors& in) { return linear(in[0], in[1], in[2], activation); },
                       {{{rows, in}}, {{out, in}}, {{out}}},
                       4,
                       4});
    };
    layer("linear/relu", Activation::relu, 5, 4, 3);
    layer("linear/gelu_tanh", Activation::gelu_tanh, 5, 4, 3);
    layer("linear/gelu", Activation::gelu, 5, 4, 3);
    layer("linear/wide", Activation::none, 8, 8, 8);  // sizes that come in eights have kernels of their own
    layer("linear/relu_wide", Activation::relu, 8, 8, 8);
    layer("linear/gelu_tanh_wide", Activation::gelu_tanh, 8, 8, 8);
    layer("linear/gelu_wide", Activation::gelu, 8, 8, 8);

    const auto conv = [&](const char* name, const Shape& x, const Shape& w, bool bias, Conv2dOptions options) {
        OpCase made{name, {}, {{x}, {w}}, 3, 3};
        if (bias) made.inputs.push_back({{w[0]}});
        made.run = [options](const Tensors& in) {
            return conv2d(in[0], in[1], in.size() > 2 ? in[2] : Tensor{}, options);
        };
        all.push_back(made);
    };
    conv("conv2d/plain", {2, 4, 5, 3}, {4, 3, 3, 3}, true, {});
    conv("conv2d/relu", {2, 4, 5, 3}, {4, 3, 3, 3}, true, {.activation = Activation::relu});
    conv("conv2d/relu_wide", {1, 4, 4, 8}, {8, 3, 3, 8}, true, {.activation = Activation::relu});
    conv("conv2d/wide", {1, 4, 4, 8}, {8, 3, 3, 8}, true, {});
    conv("conv2d/wide_plain", {2, 5, 4, 16}, {8, 3, 3, 16}, false, {.padding = 1});
    conv("conv2d/relu_few_channels", {1, 5, 4, 1}, {8, 3, 3, 1}, true, {.activation = Activation::relu});
    conv("conv2d/stride_padding", {1, 5, 4, 2}, {3, 3, 2, 2}, true, {{2, 1}, {1, 1}});
    conv("conv2d/groups_dilation", {1, 6, 5, 4}, {2, 2, 2, 2}, false, {{1, 2}, {0, 1}, {2, 1}, 2});
    conv("conv2d/depthwise", {1, 4, 4, 3}, {3, 3, 3, 1}, true, {{1, 1}, {1, 1}, {1, 1}, 3});
    const auto transposed = [&](const char* name, const Shape& x, const Shape& w, Conv2dOptions options) {
        all.push_back({name,
                       [options](const Tensors& in) { return conv_transpose2d(in[0], in[1], in[2], options); },
                       {{x}, {w}, {{w[3] * options.groups}}},
                       3,
                       3});
    };
    transposed("conv_transpose2d/plain", {1, 3, 3, 2}, {2, 2, 2, 3}, {});
    transposed("conv_transpose2d/all", {2, 2, 3, 4}, {4, 3, 3, 1}, {{2, 2}, {1, 1}, {1, 1}, 2, {1, 1}});
    transposed("conv_transpose2d/dilation", {1, 3, 2, 2}, {2, 2, 3, 2}, {{1, 2}, {0, 1}, {2, 1}});
    transposed("conv_transpose2d/wide", {1, 3, 3, 8}, {8, 2, 2, 8}, {.stride = 2});
    transposed("conv_transpose2d/output_padding", {1, 3, 2, 2}, {2, 2, 2, 2},
               {.dilation = 4, .output_padding = {3, 2}});
}

void add_windows(std::vector<OpCase>& all) {
    const auto one = [&](const char* name, const Shape& shape, Tensor (*run)(const Tensor&)) {
        all.push_back({name, [run](const Tensors& in) { return run(in[0]); }, {{shape}}, 2, 2});
    };
    one("max_pool2d/halves", {2, 4, 6, 3}, [](const Tensor& x) { return max_pool2d(x, {}); });
    one("max_pool2d/overlap", {1, 5, 5, 2}, [](const Tensor& x) { return max_pool2d(x, {{3, 3}, {2, 2}, {1, 1}}); });
    one("max_pool2d/overlap_packs", {2, 6, 7, 8}, [](const Tensor& x) {
        return max_pool2d(x, {{3, 3}, {2, 2}, {1, 1}});
    });
    one("max_pool2d/relu", {2, 4, 6, 8}, [](const Tensor& x) {
        return max_pool2d(x, {.kernel = {2, 2}, .activation = Activation::relu});
    });
    one("max_pool2d/overlap_relu", {1, 5, 5, 2}, [](const Tensor& x) {
        return max_pool2d(x, {{3, 3}, {2, 2}, {1, 1}, Activation::relu});
    });
    one("max_pool2d/adaptive", {1, 5, 4, 2}, [](const Tensor& x) { return adaptive_max_pool2d(x, {3, 2}); });
    one("avg_pool2d/halves", {2, 4, 6, 3}, [](const Tensor& x) { return avg_pool2d(x, {}); });
    one("avg_pool2d/overlap", {1, 5, 5, 2}, [](const Tensor& x) { return avg_pool2d(x, {{3, 2}, {2, 1}, {1, 1}}); });
    one("avg_pool2d/adaptive", {1, 5, 4, 2}, [](const Tensor& x) { return adaptive_avg_pool2d(x, {3, 2}); });
    one("upsample/nearest", {1, 2, 3, 2}, [](const Tensor& x) { return upsample(x, 2.0); });
    one("upsample/nearest_odd", {1, 3, 2, 2}, [](const Tensor& x) { return upsample(x, Pair{5, 3}); });
    one("upsample/factor", {1, 3, 5, 2}, [](const Tensor& x) { return upsample(x, 1.5); });
    one("upsample/bilinear_factor", {1, 3, 5, 2},
        [](const Tensor& x) { return upsample(x, 1.7, Interpolation::bilinear); });
    one("upsample/shrinking_factor", {1, 5, 7, 2},
        [](const Tensor& x) { return upsample(x, 0.6, Interpolation::bilinear); });
    one("upsample/bilinear", {1, 2, 3, 2}, [](const Tensor& x) {
        return upsample(x, Pair{4, 5}, Interpolation::bilinear);
    });
    one("upsample/corners", {2, 2, 3, 1}, [](const Tensor& x) {
        return upsample(x, Pair{3, 5}, Interpolation::bilinear, true);
    });
}

void add_reductions(std::vector<OpCase>& all) {
    const auto one = [&](const char* name, Tensor (*run)(const Tensor&)) {
        all.push_back({name, [run](const Tensors& in) { return run(in[0]); }, {{{2, 3, 4}}}, 4, 2});
    };
    one("sum/all", [](const Tensor& x) { return sum(x); });
    one("sum/middle", [](const Tensor& x) { return sum(x, {1}); });
    one("sum/outer", [](const Tensor& x) { return sum(x, {0, -1}, true); });
    one("mean/all", [](const Tensor& x) { return mean(x); });
    one("mean/two", [](const Tensor& x) { return mean(x, {1, 2}); });
    one("var/all", [](const Tensor& x) { return var(x); });
    one("var/middle", [](const Tensor& x) { return var(x, {1}, false, true); });
    one("max/all", [](const Tensor& x) { return max(x); });
    one("max/middle", [](const Tensor& x) { return max(x, 1).values; });
    all.push_back({"max/wide", [](const Tensors& in) { return max(in[0], -1).values; }, {{{2, 40}}}});
    one("min/all", [](const Tensor& x) { return min(x); });
    one("min/middle", [](const Tensor& x) { return min(x, 1, true).values; });
    all.push_back({"min/wide", [](const Tensors& in) { return min(in[0], -1).values; }, {{{2, 40}}}});
    one("cumsum/rows", [](const Tensor& x) { return cumsum(x, -1); });
    one("cumsum/middle", [](const Tensor& x) { return cumsum(x, 1); });
    one("sort/rows", [](const Tensor& x) { return sort(x).values; });
    one("sort/middle_descending", [](const Tensor& x) { return sort(x, 1, true).values; });
    one("topk/rows", [](const Tensor& x) { return topk(x, 2).values; });
    one("topk/smallest_of_columns", [](const Tensor& x) { return topk(x, 1, 0, false).values; });
    one("max/keep", [](const Tensor& x) { return max(x, -1, true).values; });
    one("gather/columns", [](const Tensor& x) {
        return gather(x, 2, indices({0, 3, 1, 1, 2, 0, 3, 3, 1, 0, 2, 2}, {2, 3, 2}));
    });
    one("gather/rows", [](const Tensor& x) {
        return gather(x, 0, indices({0, 1, 1, 1, 0, 0, 1, 0, 1, 1, 0, 1}, {1, 3, 4}));
    });
    one("dropout/half", [](const Tensor& x) {
        default_generator().set_state({7, 3});
        return dropout(x, 0.4, true);
    });
    one("dropout/all", [](const Tensor& x) { return dropout(x, 1, true); });
    one("embedding/index_select", [](const Tensor& x) { return index_select(x, 1, indices({2, 0, 2, 2}, {4})); });
    all.push_back({"embedding/repeats",
                   [](const Tensors& in) {
                       return embedding(indices({1, 0, 1, 3, 3, 1}, {2, 3}), in[0]);
                   },
                   {{{4, 3}}},
                   2,
                   2});
}

void add_losses(std::vector<OpCase>& all) {
    for (const Reduction reduction : {Reduction::mean, Reduction::sum})
        all.push_back({fmt::format("linear_cross_entropy/{}", reduction == Reduction::mean ? "mean" : "sum"),
                       [reduction](const Tensors& in) {
                           return linear_cross_entropy(in[0], in[1], indices({2, -100, 0, 4, 1, 1}, {2, 3}),
                                                       {.reduction = reduction, .label_smoothing = 0.1});
                       },
                       {{{2, 3, 4}, -2, 2}, {{5, 4}}},
                       3,
                       8});
    const std::vector<std::int64_t> labels{2, -100, 0, 1};
    all.push_back({"cross_entropy/wide",
                   [](const Tensors& in) {
                       return cross_entropy(in[0], indices({39, 7}, {2}));
                   },
                   {{{2, 40}, -2, 2}},
                   2,
                   2});
    for (const Reduction reduction : {Reduction::mean, Reduction::sum, Reduction::none}) {
        const ClassLossOptions plain{reduction}, smooth{reduction, -100, 0.1};
        const int n = int(reduction);
        all.push_back({fmt::format("cross_entropy/{}", n),
                       [=](const Tensors& in) { return cross_entropy(in[0], indices(labels, {4}), plain); },
                       {{{4, 3}, -2, 2}},
                       2,
                       2});
        all.push_back({fmt::format("cross_entropy/smooth{}", n),
                       [=](const Tensors& in) {
                           return cross_entropy(in[0], indices(labels, {2, 2}), smooth);
                       },
                       {{{2, 2, 3}, -2, 2}},
                       2,
                       2});
        all.push_back({fmt::format("nll_loss/{}", n),
                       [=](const Tensors& in) { return nll_loss(in[0], indices(labels, {4}), plain); },
                       {{{4, 3}, -3, 0}}});
        const auto weighted = [=](double smoothing) {
            const Tensor weight = to(Tensor::from(std::vector<double>{0.5, 2, 1.25}, {3}), case_device());
            return ClassLossOptions{reduction, -100, smoothing, weight};
        };
        for (const double smoothing : {0.0, 0.1}) {
            all.push_back(
                {fmt::format("cross_entropy/weighted{}_{}", n, smoothing),
                 [=](const Tensors& in) { return cross_entropy(in[0], indices(labels, {4}), weighted(smoothing)); },
                 {{{4, 3}, -2, 2}},
                 4,
                 4});
            all.push_back({fmt::format("cross_entropy/soft{}_{}", n, smoothing),
                           [=](const Tensors& in) {
                               return cross_entropy(in[0], in[1], {reduction, -100, smoothing});
                           },
                           {{{4, 3}, -2, 2}, {{4, 3}, 0, 1}},
                           4,
                           4});
        }
        all.push_back({fmt::format("cross_entropy/soft_weighted{}", n),
                       [=](const Tensors& in) { return cross_entropy(in[0], in[1], weighted(0.1)); },
                       {{{2, 2, 3}, -2, 2}, {{2, 2, 3}, 0, 1}},
                       4,
                       4});
        all.push_back({fmt::format("nll_loss/weighted{}", n),
                       [=](const Tensors& in) { return nll_loss(in[0], indices(labels, {4}), weighted(0)); },
                       {{{4, 3}, -3, 0}}});
        all.push_back({fmt::format("mse/loss{}", n),
                       [=](const Tensors& in) { return mse_loss(in[0], in[1], reduction); },
                       {{{3, 4}}, {{3, 4}}}});
        all.push_back({fmt::format("l1/loss{}", n),
                       [=](const Tensors& in) { return l1_loss(in[0], in[1], reduction); },
                       {{{3, 4}}, {{3, 4}}}});
        all.push_back({fmt::format("smooth_l1/loss{}", n),
                       [=](const Tensors& in) { return smooth_l1_loss(in[0], in[1], 0.5, reduction); },
                       {{{3, 4}}, {{3, 4}}}});
        all.push_back({fmt::format("bce_with_logits/loss{}", n),
                       [=](const Tensors& in) { return bce_with_logits(in[0], in[1], reduction); },
                       {{{3, 4}}, {{3, 4}, 0, 1}}});
        all.push_back({fmt::format("bce/loss{}", n),
                       [=](const Tensors& in) { return bce(in[0], in[1], reduction); },
                       {{{3, 4}, 0.1, 0.9}, {{3, 4}, 0.1, 0.9}}});
    }
}

}  // namespace

const std::vector<OpCase>& all_cases() {
    static const std::vector<OpCase> cases = [] {
        std::vector<OpCase> all;
        add_pointwise(all);
        add_masks(all);
        add_shapes(all);
        add_products(all);
        add_windows(all);
        add_vision(all);
        add_layers(all);
        add_reductions(all);
        add_losses(all);
        return all;
    }();
    return cases;
}

Device& case_device() {
    static Device device;
    return device;
}

namespace {

// What a leaf must be for seen_as to make `shape` of it.
Shape leaf_shape(Shape shape, Layout layout) {
    if (layout == Layout::transposed && shape.rank() >= 2) std::swap(shape[-1], shape[-2]);
    if (layout == Layout::sliced && shape.rank() >= 1) shape[-1] = 2 * shape[-1] + 1;
    for (int i = 0; layout == Layout::repeated && i < shape.rank() - 1; ++i) shape[i] = 1;
    return layout == Layout::constant ? Shape{} : shape;
}

Tensor seen_as(const Tensor& leaf, const Shape& shape, Layout layout) {
    if (layout == Layout::transposed && leaf.rank() >= 2) return transpose(leaf, -1, -2);
    if (layout == Layout::sliced && leaf.rank() >= 1) return slice(leaf, -1, 1, leaf.size(-1), 2);
    return leaf.shape() == shape ? leaf : expand(leaf, shape);
}

}  // namespace

Prepared prepare_case(const OpCase& op_case, Dtype dtype, Layout layout) {
    Prepared prepared;
    std::uint64_t seed = 11;
    std::vector<Shape> shapes;
    for (const CaseInput& input : op_case.inputs) {
        shapes.push_back(input.shape);
        const Shape shape = leaf_shape(input.shape, layout);
        Tensor leaf = Tensor::from(random_values(shape.numel(), input.low, input.high, ++seed), shape, dtype);
        leaf.set_requires_grad(input.gradient);
        prepared.leaves.push_back(leaf);
    }
    prepared.run = op_case.run;
    if (layout != Layout::dense)
        prepared.run = [run = op_case.run, shapes, layout](const Tensors& in) {
            Tensors views;
            for (std::size_t i = 0; i < in.size(); ++i) views.push_back(seen_as(in[i], shapes[i], layout));
            return run(views);
        };
    return prepared;
}

}  // namespace invar::testing
