#include "invar/models/language_model.h"

#include "invar/core/error.h"
#include "invar/ops/ops.h"

namespace invar {

void LanguageModel::set_caching(bool on) {
    check<UsageError>(!on || can_cache(), "this model keeps nothing of the tokens before; sample without the cache");
    for (KeyValueCache* cache : caches()) *cache = {.on = on};
}

Slice LanguageModel::places(const Tensor& tokens) {
    const std::vector<KeyValueCache*> all = caches();
    const std::int64_t before = all.empty() ? 0 : all[0]->tokens();
    check<UsageError>(tokens.rank() == 2 && before + tokens.size(1) <= context(),
                      "the model has places for {} tokens; tokens are {} behind {} others (model.length)", context(),
                      tokens.str(), before);
    return {before, before + tokens.size(1)};
}

Tensor LanguageModel::forward(const Tensor& tokens) {
    documents_ = {};
    return ops::linear(hidden(tokens), head());
}

Tensors LanguageModel::forward(const Tensors& inputs) {
    check<UsageError>(inputs.size() >= 1 && inputs.size() <= 3,
                      "a language model takes tokens, those that follow them, and their documents, not {} tensors",
                      inputs.size());
    documents_ = inputs.size() == 3 ? inputs[2] : Tensor();
    if (inputs.size() == 1) return {forward(inputs[0])};
    return {ops::linear_cross_entropy(hidden(inputs[0]), head(), inputs[1])};
}

void fit_to_tokens(const char* model, std::int64_t& vocabulary, std::int64_t& length, const DataInfo& data) {
    check<UsageError>(data.input.rank() == 1,
                      "model {} reads tokens in a row, and a sample of the data is {}; use data=text", model,
                      data.input.str());
    if (vocabulary == 0) vocabulary = data.outputs;
    if (length == 0) length = data.input[0];
    check<UsageError>(vocabulary >= data.outputs, "model.vocabulary = {}: the data have {} tokens", vocabulary,
                      data.outputs);
    check<UsageError>(length >= data.input[0], "model.length = {}: samples of the data have {} tokens (data.length)",
                      length, data.input[0]);
}

void check_sizes(const char* model, std::int64_t vocabulary, std::int64_t length) {
    check<UsageError>(vocabulary > 0 && length > 0,
                      "model {} needs a vocabulary and a length; they come from the data, or from model.vocabulary and "
                      "model.length",
                      model);
}

}  // namespace invar
