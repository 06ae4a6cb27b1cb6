// LanguageModel: what the task `language` trains. Called with tokens it gives logits; called with tokens and the ones
// that follow, it gives the mean loss, without all logits ever being in memory.
#pragma once

#include "invar/nn/module.h"

namespace invar {

class LanguageModel : public Module {
  public:
    // Tokens i64 [batch, length] to logits [batch, length, vocabulary].
    Tensor forward(const Tensor& tokens) override;
    // {tokens} to {logits}; {tokens, next tokens} to {mean cross entropy}.
    Tensors forward(const Tensors& inputs) override;

    // While it is on, a call takes the tokens that follow those of the calls before, and attention keeps what it needs
    // of them. Turning it on, or off, forgets them. In evaluation only.
    virtual void set_caching(bool on);
    virtual bool can_cache() const { return false; }
    // How many tokens it has places for.
    virtual std::int64_t context() const = 0;

  protected:
    // What the head reads, [batch, length, width]; and the head's weight, [vocabulary, width].
    virtual Tensor hidden(const Tensor& tokens) = 0;
    virtual Tensor head() const = 0;
};

}  // namespace invar
