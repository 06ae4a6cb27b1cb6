// GPT-2 against PyTorch: the numbers are golden_gpt.py's, in f64.
#include "invar/models/gpt.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "invar/amp/autocast.h"
#include "invar/autograd/node.h"
#include "invar/core/error.h"
#include "invar/models/sample.h"
#include "invar/ops/ops.h"
#include "tests/core/expect_error.h"
#include "tests/models/formula.h"

namespace invar {
namespace {

constexpr std::int64_t kVocabulary = 37, kLength = 9;

struct Gradient {
    const char* name;
    double norm, weighted;  // over the file's layout: a permutation shows in the second
};
const Gradient kGradients[] = {
    {"wte.weight", 0.135978057, 0.124715307},
    {"wpe.weight", 0.0309939427, -0.0169909269},
    {"h.0.ln_1.weight", 0.00428420291, -0.00136661088},
    {"h.0.ln_1.bias", 0.00543628177, -0.0105238361},
    {"h.0.attn.c_attn.weight", 0.00785217717, -0.0124644847},
    {"h.0.attn.c_attn.bias", 0.0128917823, -0.00184365522},
    {"h.0.attn.c_proj.weight", 0.0107686216, 0.00836039741},
    {"h.0.attn.c_proj.bias", 0.0198625526, -0.00487277285},
    {"h.0.ln_2.weight", 0.00781516596, 0.00238480855},
    {"h.0.ln_2.bias", 0.00476730218, 0.00143189623},
    {"h.0.mlp.c_fc.weight", 0.0115363852, 0.00718276571},
    {"h.0.mlp.c_fc.bias", 0.0131484548, -0.00742223556},
    {"h.0.mlp.c_proj.weight", 0.011602934, -0.0012864595},
    {"h.0.mlp.c_proj.bias", 0.0193413511, -0.00769254195},
    {"h.1.ln_1.weight", 0.00693910354, 0.00205942857},
    {"h.1.ln_1.bias", 0.00622369359, -0.00553259515},
    {"h.1.attn.c_attn.weight", 0.00963367428, -0.00766669025},
    {"h.1.attn.c_attn.bias", 0.014835425, -0.0139574899},
    {"h.1.attn.c_proj.weight", 0.0107422678, 0.00138976884},
    {"h.1.attn.c_proj.bias", 0.0193632136, -0.00574216558},
    {"h.1.ln_2.weight", 0.00664999952, -0.0035384741},
    {"h.1.ln_2.bias", 0.0047601976, 0.00175758697},
    {"h.1.mlp.c_fc.weight", 0.0102008656, 0.00459584149},
    {"h.1.mlp.c_fc.bias", 0.0134748745, -0.00894344563},
    {"h.1.mlp.c_proj.weight", 0.0113266438, 0.00589819756},
    {"h.1.mlp.c_proj.bias", 0.0190276844, -0.00552046863},
    {"ln_f.weight", 0.111666205, 0.141362841},
    {"ln_f.bias", 0.10265999, -0.0138822999},
};

std::unique_ptr<LanguageModel> golden_model() {
    auto model = make_gpt({.layers = 2, .heads = 4, .width = 32, .vocabulary = kVocabulary, .length = kLength});
    fill_by_formula(*model);
    return model;
}

Tensor ids(std::int64_t factor, std::int64_t offset) {
    std::vector<std::int64_t> values;
    for (std::int64_t i = 0; i < 2 * kLength; ++i)
        values.push_back(std::min(i * factor % kVocabulary + offset, kVocabulary - 1));
    return Tensor::from(values, {2, kLength});
}

TEST(Gpt, HasPyTorchsLossLogitsAndGradients) {
    const std::unique_ptr<LanguageModel> model = golden_model();
    const Tensor loss = (*model)(ids(7, 0), ids(5, 1))[0];
    EXPECT_NEAR(loss.item(), 3.63250422904, 4e-7);
    backward(loss);
    const auto parameters = model->parameters();
    ASSERT_EQ(parameters.size(), std::size(kGradients));
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        const Gradient& golden = kGradients[i];
        EXPECT_EQ(parameters[i]->name, golden.name);
        const std::vector<double> g = to_file(parameters[i]->value.grad(), parameters[i]->layout).to_vector<double>();
        double squares = 0, weighted = 0;
        for (std::size_t k = 0; k < g.size(); ++k)
            squares += g[k] * g[k], weighted += g[k] * formula(std::int64_t(k), 0);
        EXPECT_NEAR(std::sqrt(squares), golden.norm, 1e-5 * golden.norm) << golden.name;
        EXPECT_NEAR(weighted, golden.weighted, 2e-5 * golden.norm) << golden.name;
    }
    const NoGrad no_grad;
    const std::vector<double> logits = (*model)(ids(7, 0)).to_vector<double>();
    const double golden[] = {-0.0643944062, 0.0111950803, 0.093267212,  0.102240161,
                             -0.0888347366, 0.142018875,  0.0622126891, 0.0462168768};
    for (std::size_t i = 0; i < std::size(golden); ++i)
        EXPECT_NEAR(logits[logits.size() - kVocabulary + i], golden[i], 1e-6) << i;
}

// Some roundings of each format on the way through 2 blocks and the head.
TEST(Gpt, HasThatLossIn16BitsToo) {
    const std::unique_ptr<LanguageModel> model = golden_model();
    for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
        const Autocast cast(dtype);
        EXPECT_NEAR((*model)(ids(7, 0), ids(5, 1))[0].item(), 3.63250422904, dtype == Dtype::f16 ? 1e-3 : 8e-3);
    }
}

TEST(Gpt, SeesNoTokenThatFollows) {
    const std::unique_ptr<LanguageModel> model = golden_model();
    const NoGrad no_grad;
    const Tensor before = (*model)(ids(7, 0));
    Tensor changed = ids(7, 0);
    changed.data<std::int64_t>()[5] = 3;  // of the first row
    const Tensor after = (*model)(changed);
    for (const std::int64_t row : {0, 1})
        for (std::int64_t t = 0; t < kLength; ++t) {
            const bool same = before[{row, t}].to_vector<float>() == after[{row, t}].to_vector<float>();
            EXPECT_EQ(same, row == 1 || t < 5) << row << ", " << t;
        }
}

TEST(Gpt, SamplesTheSameTextWithAndWithoutTheCache) {
    const std::unique_ptr<LanguageModel> model = golden_model();
    const std::vector<std::int64_t> prompt = {3, 1, 4};
    for (const double temperature : {0.0, 1.0})
        for (const std::uint64_t seed : {1, 2, 3}) {
            SampleOptions options{.tokens = 30, .temperature = temperature, .seed = seed};  // past the 9 places
            std::vector<std::int64_t> told;
            const auto with = sample(*model, prompt, {}, options, [&](std::int64_t token) { told.push_back(token); });
            options.cache = false;
            EXPECT_EQ(sample(*model, prompt, {}, options), with);
            EXPECT_EQ(told, with);
            EXPECT_EQ(with.size(), 30u);
        }
}

TEST(Gpt, TakesSeveralTokensBehindOthersFromTheCache) {
    const std::unique_ptr<LanguageModel> model = golden_model();
    const NoGrad no_grad;
    model->eval();
    const Tensor whole = (*model)(ids(7, 0));
    model->set_caching(true);
    (*model)(ids(7, 0)[{Slice{}, Slice{0, 4}}]);
    const Tensor rest = (*model)(ops::contiguous(ids(7, 0)[{Slice{}, Slice{4, kLength}}]));
    const std::vector<double> expected = ops::contiguous(whole[{Slice{}, Slice{4, kLength}}]).to_vector<double>();
    const std::vector<double> got = rest.to_vector<double>();
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-6);
}

TEST(Sampling, DrawsAmongTheLikeliestByTheirShares) {
    const std::vector<double> logits = {std::log(0.1), std::log(0.5), std::log(0.1), std::log(0.3)};
    EXPECT_EQ(draw_token(logits, {.temperature = 0}, 0.99), 1);
    EXPECT_EQ(draw_token(logits, {}, 0.49), 1);
    EXPECT_EQ(draw_token(logits, {}, 0.51), 3);
    EXPECT_EQ(draw_token(logits, {}, 0.81), 0);
    EXPECT_EQ(draw_token(logits, {}, 0.999), 2);
    EXPECT_EQ(draw_token(logits, {.top_k = 2}, 0.999), 3);
    EXPECT_EQ(draw_token(logits, {.top_k = 1}, 0.999), 1);
    EXPECT_EQ(draw_token(logits, {.top_p = 0.6}, 0.999), 3);
    EXPECT_EQ(draw_token(logits, {.top_p = 0.4}, 0.999), 1);
    EXPECT_EQ(draw_token(logits, {.temperature = 0.01}, 0.999), 1);
    EXPECT_ERROR(draw_token({0.0, std::nan("")}, {}, 0.5), Error, "NaN");
}

// What a change in one document does to the loss is then the same whatever the other one says.
TEST(Gpt, KeepsAttentionWithinDocuments) {
    const std::unique_ptr<LanguageModel> model = golden_model();
    std::vector<std::int64_t> documents;
    for (std::int64_t i = 0; i < 2 * kLength; ++i) documents.push_back(i % kLength >= 4);
    const Tensor within = Tensor::from(documents, {2, kLength});
    const auto loss = [&](bool masked, std::int64_t first, std::int64_t last) {
        const Tensor x = ids(7, 0);
        x.data<std::int64_t>()[1] = first, x.data<std::int64_t>()[6] = last;
        return (masked ? (*model)(x, ids(5, 1), within) : (*model)(x, ids(5, 1)))[0].item();
    };
    const auto interplay = [&](bool masked) {
        return std::abs((loss(masked, 2, 9) - loss(masked, 3, 9)) - (loss(masked, 2, 11) - loss(masked, 3, 11)));
    };
    EXPECT_LT(interplay(true), 1e-6);
    EXPECT_GT(interplay(false), 3e-6);
}

TEST(Gpt, RefusesWhatDoesNotFit) {
    EXPECT_ERROR(make_gpt({.heads = 5, .width = 32, .vocabulary = 9, .length = 3}), UsageError, "no multiple");
    EXPECT_ERROR(make_gpt({}), UsageError, "needs a vocabulary");
    const std::unique_ptr<LanguageModel> model = golden_model();
    EXPECT_ERROR((*model)(ops::zeros({1, kLength + 1}, Dtype::i64)), UsageError, "has places for 9 tokens");
    EXPECT_ERROR((*model)(ids(7, 0), ids(7, 0), ids(7, 0), ids(7, 0)), UsageError, "not 4 tensors");
}

}  // namespace
}  // namespace invar
