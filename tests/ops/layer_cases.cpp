#include <fmt/format.h>

#include "invar/ops/ops.h"
#include "tests/ops/case_tables.h"

namespace invar::testing {

namespace {

using namespace invar::ops;

void add_norms(std::vector<OpCase>& all) {
    const auto batch = [](bool training, std::int64_t channels = 3, Activation activation = Activation::none) {
        return [=](const Tensors& in) {
            const Dtype dtype = in[0].dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32;
            const Tensor mean = full({channels}, 0.1, dtype, case_device());
            const Tensor variance = full({channels}, 0.8, dtype, case_device());
            return batch_norm(in[0], in[1], in[2], mean, variance, training, 0.1, 1e-5,
                              {activation, in.size() > 3 ? in[3] : Tensor()});
        };
    };
    all.push_back({"batch_norm/training", batch(true), {{{4, 2, 3}, -2, 2}, {{3}, 0.5, 1.5}, {{3}}}, 2, 4});
    all.push_back({"batch_norm/evaluation", batch(false), {{{4, 2, 3}, -2, 2}, {{3}, 0.5, 1.5}, {{3}}}, 2, 4});
    for (const bool training : {true, false})
        for (const std::int64_t channels : {3, 16}) {  // 16 are packs for a GPU
            const std::string name = fmt::format("{}, {}", training ? "training" : "evaluation", channels);
            const CaseInput x{{4, 2, channels}, -2, 2}, gamma{{channels}, 0.5, 1.5}, beta{{channels}};
            all.push_back(
                {"batch_norm/relu, " + name, batch(training, channels, Activation::relu), {x, gamma, beta}, 2, 4});
            all.push_back({"batch_norm/sum, " + name, batch(training, channels), {x, gamma, beta, x}, 2, 4});
            all.push_back({"batch_norm/sum and relu, " + name,
                           batch(training, channels, Activation::relu),
                           {x, gamma, beta, x},
                           2,
                           4});
        }
    all.push_back({"layer_norm/last",
                   [](const Tensors& in) { return layer_norm(in[0], {6}, in[1], in[2]); },
                   {{{2, 3, 6}, -2, 2}, {{6}, 0.5, 1.5}, {{6}}},
                   2,
                   4});
    all.push_back({"layer_norm/two",
                   [](const Tensors& in) {
                       return layer_norm(in[0], {3, 4});
                   },
                   {{{2, 3, 4}, -2, 2}},
                   2,
                   4});
    for (const std::int64_t n : {6, 40}) {
        const CaseInput x{{2, 3, n}, -2, 2}, gamma{{n}, 0.5, 1.5}, beta{{n}};
        all.push_back({fmt::format("rms_norm/{}", n),
                       [](const Tensors& in) { return rms_norm(in[0], in[1]); },
                       {x, gamma},
                       2,
                       4});
        // Both results of the one pass: each alone, and both, so that the sum's gradient comes on two ways.
        all.push_back({fmt::format("layer_norm/after_sum_{}", n),
                       [](const Tensors& in) { return add_layer_norm(in[0], in[1], in[2], in[3])[1]; },
                       {x, x, gamma, beta},
                       4,
                       8});
        all.push_back({fmt::format("rms_norm/after_sum_{}", n),
                       [](const Tensors& in) { return add_rms_norm(in[0], in[1], in[2])[1]; },
                       {x, x, gamma},
                       4,
                       8});
        all.push_back({fmt::format("residual_sum/both_{}", n),
                       [](const Tensors& in) {
                           const Tensors both = add_layer_norm(in[0], in[1], in[2], in[3]);
                           return both[0] * cast(both[1], both[0].dtype());
                       },
                       {x, x, gamma, beta},
                       4,
                       8});
        all.push_back({fmt::format("residual_sum/rms_{}", n),
                       [](const Tensors& in) {
                           const Tensors both = add_rms_norm(in[0], in[1], in[2]);
                           return both[0] * cast(both[1], both[0].dtype());
                       },
                       {x, x, gamma},
                       4,
                       8});
    }
    all.push_back({"rms_norm/plain", [](const Tensors& in) { return rms_norm(in[0]); }, {{{5, 7}, -2, 2}}, 2, 4});
    all.push_back({"residual_sum/alone",
                   [](const Tensors& in) { return add_layer_norm(in[0], in[1])[0]; },
                   {{{2, 3, 5}}, {{2, 3, 5}}}});
    all.push_back({"group_norm/image",
                   [](const Tensors& in) { return group_norm(in[0], 2, in[1], in[2]); },
                   {{{2, 2, 3, 4}, -2, 2}, {{4}, 0.5, 1.5}, {{4}}},
                   2,
                   4});
    all.push_back(
        {"group_norm/plain", [](const Tensors& in) { return group_norm(in[0], 3); }, {{{2, 5, 6}, -2, 2}}, 2, 4});
    all.push_back({"batch_norm/wide", batch(true, 8), {{{6, 8}, -2, 2}, {{8}, 0.5, 1.5}, {{8}}}, 2, 4});
    all.push_back({"layer_norm/wide",
                   [](const Tensors& in) { return layer_norm(in[0], {40}, in[1], in[2]); },
                   {{{2, 40}, -2, 2}, {{40}, 0.5, 1.5}, {{40}}},
                   2,
                   4});
    all.push_back({"softmax/wide", [](const Tensors& in) { return softmax(in[0], -1); }, {{{2, 40}, -2, 2}}, 1, 8});
    all.push_back(
        {"log_softmax/wide", [](const Tensors& in) { return log_softmax(in[0], -1); }, {{{2, 40}, -2, 2}}, 1, 8});
    for (const int dim : {-1, 0, 1}) {
        all.push_back({fmt::format("softmax/{}", dim),
                       [dim](const Tensors& in) { return softmax(in[0], dim); },
                       {{{2, 3, 4}, -2, 2}},
                       1,
                       8});
        all.push_back({fmt::format("log_softmax/{}", dim),
                       [dim](const Tensors& in) { return log_softmax(in[0], dim); },
                       {{{2, 3, 4}, -2, 2}},
                       1,
                       8});
    }
}

void add_linears(std::vector<OpCase>& all) {
    all.push_back({"linears/two",
                   [](const Tensors& in) {
                       return linears(in[0], {in[1], in[2]}, {in[3], in[4]});
                   },
                   {{{2, 3, 4}}, {{5, 4}}, {{2, 4}}, {{5}}, {{2}}},
                   3,
                   3});
    all.push_back({"linears/plain",
                   [](const Tensors& in) {
                       return linears(in[0], {in[1], in[2], in[3]});
                   },
                   {{{6, 8}}, {{8, 8}}, {{16, 8}}, {{8, 8}}},
                   3,
                   4});
    for (const std::int64_t n : {3, 8})
        all.push_back({fmt::format("swiglu/{}", n),
                       [](const Tensors& in) { return swiglu(in[0]); },
                       {{{2, 3, 2 * n}, -3, 3}},
                       1,
                       2});
}

void add_attention(std::vector<OpCase>& all) {
    // 2 samples, 4 heads in 2 groups of 2, width 3, a sum over keys of products of sums over the width.
    const auto add = [&](const char* name, AttentionOptions (*options)(), std::int64_t heads, std::int64_t kv_heads,
                         std::int64_t queries, std::int64_t keys) {
        all.push_back({name,
                       [options](const Tensors& in) { return attention(in[0], in[1], in[2], options()); },
                       {{{2, heads, queries, 3}}, {{2, kv_heads, keys, 3}}, {{2, kv_heads, keys, 5}}},
                       3,
                       8});
    };
    const auto plain = [] { return AttentionOptions{}; };
    const auto causal = [] { return AttentionOptions{.causal = true}; };
    add("attention/cross", plain, 2, 2, 3, 5);
    add("attention/causal", causal, 2, 2, 5, 5);
    add("attention/grouped", causal, 4, 2, 4, 4);
    add("attention/one", plain, 1, 1, 1, 1);
    add(
        "attention/scale", [] { return AttentionOptions{.scale = 1.5}; }, 2, 1, 3, 4);
    add(
        "attention/key_mask",
        [] {
            const Tensor ids = indices({1, 1, 0, 1, 1, 0, 0, 0}, {2, 4});
            return AttentionOptions{.causal = true, .key_mask = cast(ids, Dtype::boolean)};
        },
        2, 1, 4, 4);
    add(
        "attention/documents",
        [] {
            return AttentionOptions{.causal = true, .documents = indices({0, 0, 1, 1, 5, 5, 5, 2}, {2, 4})};
        },
        2, 2, 4, 4);
    add(
        "attention/bias",
        [] {
            const Tensor bias = Tensor::from(random_values(2 * 3 * 4, -1, 1, 7), {2, 3, 4});
            return AttentionOptions{.bias = to(bias, case_device())};
        },
        2, 1, 3, 4);
    // As wide as kernels of 16 bits want it.
    const auto add_wide = [&](const char* name, AttentionOptions (*options)(), std::int64_t heads) {
        all.push_back({name,
                       [options](const Tensors& in) { return attention(in[0], in[1], in[2], options()); },
                       {{{1, heads, 8, 8}}, {{1, 1, 8, 8}}, {{1, 1, 8, 8}}},
                       3,
                       8});
    };
    add_wide("attention/wide", causal, 1);
    add_wide("attention/wide_grouped", causal, 2);
    add_wide(
        "attention/wide_masked",
        [] {
            const Tensor ids = indices({0, 1, 1, 0, 1, 1, 0, 1}, {1, 8});
            return AttentionOptions{.causal = true,
                                    .key_mask = cast(ids, Dtype::boolean),
                                    .documents = indices({4, 4, 4, 4, 2, 2, 2, 2}, {1, 8})};
        },
        1);
    add_wide(
        "attention/wide_bias",
        [] {
            const Tensor bias = Tensor::from(random_values(8 * 8, -1, 1, 7), {8, 8});
            return AttentionOptions{.bias = to(bias, case_device())};
        },
        1);
    all.push_back({"self_attention/causal",
                   [](const Tensors& in) { return self_attention(in[0], 2, 2, {.causal = true}); },
                   {{{2, 4, 18}}},
                   3,
                   8});
    all.push_back({"self_attention/grouped",
                   [](const Tensors& in) { return self_attention(in[0], 4, 2, {.causal = true}); },
                   {{{2, 3, 16}}},
                   3,
                   8});
}

void add_positions(std::vector<OpCase>& all) {
    const auto add = [&](const char* name, std::int64_t heads, std::int64_t kv_heads, std::int64_t width,
                         std::int64_t turned, RotaryPositions (*positions)()) {
        all.push_back({name,
                       [=](const Tensors& in) {
                           const Tensor table = rotary_table(9, rotary_speeds(turned), Dtype::f32, case_device());
                           return rotary(in[0], heads, kv_heads, table, positions());
                       },
                       {{{2, 3, (heads + 2 * kv_heads) * width}}},
                       2,
                       2});
    };
    const auto first = [] { return RotaryPositions{}; };
    add("rotary/qkv", 4, 2, 6, 6, first);
    add("rotary/queries", 3, 0, 4, 4, first);
    add("rotary/part", 2, 1, 8, 4, [] { return RotaryPositions{.offset = 5}; });
    add("rotary/wide", 2, 1, 32, 32, first);
    add("rotary/positions", 2, 1, 4, 4, [] {
        return RotaryPositions{.positions = indices({0, 8, 1, 2, 2, 7}, {2, 3})};
    });
    add("rotary/row_of_positions", 2, 1, 4, 4, [] { return RotaryPositions{1, indices({7, 0, 3}, {3})}; });
}

}  // namespace

Tensor indices(const std::vector<std::int64_t>& values, const Shape& shape) {
    return to(Tensor::from(values, shape), case_device());
}

void add_layers(std::vector<OpCase>& all) {
    add_norms(all);
    add_linears(all);
    add_attention(all);
    add_positions(all);
}

}  // namespace invar::testing
