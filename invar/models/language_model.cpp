#include "invar/models/language_model.h"

#include "invar/core/error.h"
#include "invar/ops/ops.h"

namespace invar {

void LanguageModel::set_caching(bool on) {
    check<UsageError>(!on, "this model keeps nothing of the tokens before; sample without the cache");
}

Tensor LanguageModel::forward(const Tensor& tokens) {
    return ops::linear(hidden(tokens), head());
}

Tensors LanguageModel::forward(const Tensors& inputs) {
    check<UsageError>(inputs.size() == 1 || inputs.size() == 2,
                      "a language model takes tokens, or tokens and those that follow them, not {} tensors",
                      inputs.size());
    if (inputs.size() == 1) return {forward(inputs[0])};
    return {ops::linear_cross_entropy(hidden(inputs[0]), head(), inputs[1])};
}

}  // namespace invar
