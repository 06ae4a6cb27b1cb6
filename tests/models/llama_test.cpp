// Llama against PyTorch: the numbers are golden_llama.py's, in f64.
#include "invar/models/llama.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "invar/amp/autocast.h"
#include "invar/autograd/node.h"
#include "invar/core/error.h"
#include "invar/models/sample.h"
#include "invar/ops/ops.h"
#include "invar/optim/optimizer.h"
#include "tests/core/expect_error.h"
#include "tests/models/formula.h"

namespace invar {
namespace {

constexpr std::int64_t kVocabulary = 37, kLength = 9;

struct Gradient {
    const char* name;
    double norm, weighted;
};
struct Golden {
    bool tied, bias;
    double loss;
    std::vector<Gradient> gradients;
};

Golden tied_with_biases() {
    return {true,
            true,
            3.63216420075,
            {
                {"model.embed_tokens.weight", 0.139709685, 0.151633809},
                {"model.layers.0.input_layernorm.weight", 0.0175462568, 0.00975287821},
                {"model.layers.0.self_attn.q_proj.weight", 8.45551742e-05, -0.000102442576},
                {"model.layers.0.self_attn.q_proj.bias", 0.000104328798, -4.31501529e-05},
                {"model.layers.0.self_attn.k_proj.weight", 8.55578839e-05, -6.81500822e-05},
                {"model.layers.0.self_attn.k_proj.bias", 2.2534414e-05, -8.31926648e-06},
                {"model.layers.0.self_attn.v_proj.weight", 0.014713993, 0.000761233957},
                {"model.layers.0.self_attn.v_proj.bias", 0.0281799941, -0.0139335088},
                {"model.layers.0.self_attn.o_proj.weight", 0.0258075859, -0.0185343922},
                {"model.layers.0.post_attention_layernorm.weight", 0.00222282104, 0.00226999779},
                {"model.layers.0.mlp.gate_proj.weight", 0.0010709385, 0.000539182164},
                {"model.layers.0.mlp.up_proj.weight", 0.00110323927, -0.00141249115},
                {"model.layers.0.mlp.down_proj.weight", 0.00150482619, -0.000711895968},
                {"model.layers.1.input_layernorm.weight", 0.0175042789, 0.00106722516},
                {"model.layers.1.self_attn.q_proj.weight", 7.08868044e-05, -1.82877608e-05},
                {"model.layers.1.self_attn.q_proj.bias", 0.000125646139, -7.09334265e-05},
                {"model.layers.1.self_attn.k_proj.weight", 7.89476101e-05, -2.31972275e-05},
                {"model.layers.1.self_attn.k_proj.bias", 3.81621856e-05, 4.1500554e-05},
                {"model.layers.1.self_attn.v_proj.weight", 0.015127682, 0.00432167631},
                {"model.layers.1.self_attn.v_proj.bias", 0.0300706708, -0.0165735664},
                {"model.layers.1.self_attn.o_proj.weight", 0.0286858755, -0.00887390707},
                {"model.layers.1.post_attention_layernorm.weight", 0.00240920143, -0.00117084821},
                {"model.layers.1.mlp.gate_proj.weight", 0.00109706741, -0.000309709301},
                {"model.layers.1.mlp.up_proj.weight", 0.00096882904, -0.000611199472},
                {"model.layers.1.mlp.down_proj.weight", 0.00162527624, 0.000829379325},
                {"model.norm.weight", 0.161018637, 0.1660285},
            }};
}

Golden with_a_head() {
    return {false,
            false,
            3.61669715411,
            {
                {"model.embed_tokens.weight", 0.116296903, -0.0215705954},
                {"model.layers.0.input_layernorm.weight", 0.0365686881, -0.0255031146},
                {"model.layers.0.self_attn.q_proj.weight", 8.46823744e-05, -1.87834647e-05},
                {"model.layers.0.self_attn.k_proj.weight", 7.80144071e-05, -8.74364136e-05},
                {"model.layers.0.self_attn.v_proj.weight", 0.0246225255, 0.00178699585},
                {"model.layers.0.self_attn.o_proj.weight", 0.0226714433, 0.0111149479},
                {"model.layers.0.post_attention_layernorm.weight", 0.00299242898, 0.000115533694},
                {"model.layers.0.mlp.gate_proj.weight", 0.00154857823, -4.29320691e-05},
                {"model.layers.0.mlp.up_proj.weight", 0.00147885108, 0.000431299343},
                {"model.layers.0.mlp.down_proj.weight", 0.00224972641, 0.00100354309},
                {"model.layers.1.input_layernorm.weight", 0.0348721665, -0.0347297313},
                {"model.layers.1.self_attn.q_proj.weight", 7.359169e-05, -1.83308652e-05},
                {"model.layers.1.self_attn.k_proj.weight", 6.70947642e-05, -4.65642023e-05},
                {"model.layers.1.self_attn.v_proj.weight", 0.0216801606, 0.0141844024},
                {"model.layers.1.self_attn.o_proj.weight", 0.0207207356, 0.00293756339},
                {"model.layers.1.post_attention_layernorm.weight", 0.0024121513, 0.00127733999},
                {"model.layers.1.mlp.gate_proj.weight", 0.00147878192, 0.000235219725},
                {"model.layers.1.mlp.up_proj.weight", 0.00131230772, 0.000313556522},
                {"model.layers.1.mlp.down_proj.weight", 0.00207858204, -0.00111422338},
                {"model.norm.weight", 0.143421667, 0.0659458569},
                {"lm_head.weight", 0.118340633, 0.078846731},
            }};
}

LlamaOptions options_of(const Golden& golden) {
    return {.layers = 2,
            .heads = 4,
            .kv_heads = 2,
            .width = 32,
            .hidden = 48,
            .vocabulary = kVocabulary,
            .length = kLength,
            .tied = golden.tied,
            .attention_bias = golden.bias,
            .eps = 1e-5};
}

Tensor ids(std::int64_t factor, std::int64_t offset) {
    std::vector<std::int64_t> values;
    for (std::int64_t i = 0; i < 2 * kLength; ++i)
        values.push_back(std::min(i * factor % kVocabulary + offset, kVocabulary - 1));
    return Tensor::from(values, {2, kLength});
}

void expect_golden(LanguageModel& model, const Golden& golden) {
    const Tensor loss = model(ids(7, 0), ids(5, 1))[0];
    EXPECT_NEAR(loss.item(), golden.loss, 6e-7);
    backward(loss);
    const auto parameters = model.parameters();
    ASSERT_EQ(parameters.size(), golden.gradients.size());
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        const Gradient& expected = golden.gradients[i];
        EXPECT_EQ(parameters[i]->name, expected.name);
        const std::vector<double> g = parameters[i]->value.grad().to_vector<double>();
        double squares = 0, weighted = 0;
        for (std::size_t k = 0; k < g.size(); ++k)
            squares += g[k] * g[k], weighted += g[k] * formula(std::int64_t(k), 0);
        EXPECT_NEAR(std::sqrt(squares), expected.norm, 1e-5 * expected.norm) << expected.name;
        EXPECT_NEAR(weighted, expected.weighted, 2e-5 * expected.norm) << expected.name;
    }
}

TEST(Llama, HasPyTorchsLossAndGradients) {
    for (const Golden& golden : {tied_with_biases(), with_a_head()}) {
        const std::unique_ptr<LanguageModel> model = make_llama(options_of(golden));
        fill_by_formula(*model);
        expect_golden(*model, golden);
    }
}

// In an optimizer's store the weights of one input lie side by side, and are multiplied as one.
TEST(Llama, HasThemInAnOptimizersStoreToo) {
    const Golden golden = tied_with_biases();
    const std::unique_ptr<LanguageModel> model = make_llama(options_of(golden));
    fill_by_formula(*model);
    Optimizer optimizer(*model, OptimizerSpec{});
    optimizer.zero_grad();
    expect_golden(*model, golden);
}

TEST(Llama, HasThatLossIn16BitsToo) {
    const Golden golden = with_a_head();
    const std::unique_ptr<LanguageModel> model = make_llama(options_of(golden));
    fill_by_formula(*model);
    for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
        const Autocast cast(dtype);
        EXPECT_NEAR((*model)(ids(7, 0), ids(5, 1))[0].item(), golden.loss, dtype == Dtype::f16 ? 1e-3 : 8e-3);
    }
}

TEST(Llama, SamplesTheSameTextWithAndWithoutTheCache) {
    const std::unique_ptr<LanguageModel> model = make_llama(options_of(tied_with_biases()));
    fill_by_formula(*model);
    for (const double temperature : {0.0, 1.0}) {
        SampleOptions options{.tokens = 30, .temperature = temperature, .seed = 2};  // past the places that it has
        const std::vector<std::int64_t> prompt = {3, 1, 4}, with = sample(*model, prompt, {}, options);
        options.cache = false;
        EXPECT_EQ(sample(*model, prompt, {}, options), with);
    }
}

TEST(Llama, TakesSeveralTokensBehindOthersFromTheCache) {
    const std::unique_ptr<LanguageModel> model = make_llama(options_of(with_a_head()));
    fill_by_formula(*model);
    const NoGrad no_grad;
    model->eval();
    const Slice every{}, begin{0, 4}, rest{4, kLength};
    const std::vector<double> expected = ops::contiguous((*model)(ids(7, 0))[{every, rest}]).to_vector<double>();
    model->set_caching(true);
    (*model)(ops::contiguous(ids(7, 0)[{every, begin}]));
    const std::vector<double> got = (*model)(ops::contiguous(ids(7, 0)[{every, rest}])).to_vector<double>();
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-6);
}

// Positions are relative, so that a document in a row is what it is alone.
TEST(Llama, KeepsAttentionWithinDocuments) {
    const std::unique_ptr<LanguageModel> model = make_llama(options_of(with_a_head()));
    fill_by_formula(*model);
    const Tensor x = ids(7, 0), y = ids(5, 1);
    std::vector<std::int64_t> documents;
    for (std::int64_t i = 0; i < 2 * kLength; ++i) documents.push_back(i % kLength >= 4);
    const double mixed = (*model)(x, y)[0].item();
    for (const Recompute level : {Recompute::none, Recompute::light, Recompute::block}) {
        model->set_recompute(level == Recompute::light ? level : Recompute::none);
        for (Module* block : model->checkpoint_blocks())
            block->set_recompute(level == Recompute::block ? level : Recompute::none);
        const Tensor whole = (*model)(x, y, Tensor::from(documents, {2, kLength}))[0];
        const auto part = [&](Slice columns) {
            const Tensor rows = ops::contiguous(x[{Slice{}, columns}]), next = ops::contiguous(y[{Slice{}, columns}]);
            return (*model)(rows, next)[0].item() * double(rows.size(1)) / double(kLength);
        };
        EXPECT_NEAR(whole.item(), part({0, 4}) + part({4, kLength}), 1e-6);
        EXPECT_GT(std::abs(whole.item() - mixed), 1e-4);
    }
}

TEST(Llama, RefusesWhatDoesNotFit) {
    EXPECT_ERROR(make_llama({}), UsageError, "needs a vocabulary");
    EXPECT_ERROR(make_llama({.heads = 4, .kv_heads = 3, .width = 32, .vocabulary = 9, .length = 3}), UsageError,
                 "no multiple of model.kv_heads");
    EXPECT_ERROR(make_llama({.heads = 4, .width = 12, .vocabulary = 9, .length = 3}), UsageError, "turn pairs");
}

TEST(Llama, SlowsItsRotaryPositionsDownAsItIsTold) {
    LlamaOptions options = options_of(tied_with_biases());
    const auto logits = [&] {
        const std::unique_ptr<LanguageModel> model = make_llama(options);
        fill_by_formula(*model);
        const NoGrad no_grad;
        return (*model)(ids(7, 0)).to_vector<float>();
    };
    const std::vector<float> plain = logits();
    options.rope_scaling = "linear";
    EXPECT_EQ(logits(), plain) << "by a factor of 1";
    options.rope_factor = 2;
    const std::vector<float> linear = logits();
    EXPECT_NE(linear, plain);
    options.rope_scaling = "llama3";
    options.rope_original_length = 1;  // in which no pair turns once: all are slow
    EXPECT_EQ(logits(), linear);
    options.rope_original_length = 1'000'000'000;  // in which all turn often
    EXPECT_EQ(logits(), plain);
    options.rope_high_freq_factor = options.rope_low_freq_factor;
    EXPECT_ERROR(make_llama(options), UsageError, "model.rope_high_freq_factor = 1: must be above");
    options.rope_scaling = "yarn";
    EXPECT_ERROR(make_llama(options), UsageError, "model.rope_scaling = yarn");
}

}  // namespace
}  // namespace invar
