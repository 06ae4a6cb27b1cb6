// LanguageModel: what the task `language` trains. Called with tokens it gives logits; called with tokens and the ones
// that follow, it gives the mean loss, without all logits ever being in memory.
#pragma once

#include "invar/data/dataset.h"
#include "invar/models/key_value_cache.h"
#include "invar/models/models.h"
#include "invar/ops/index.h"

namespace invar {

class LanguageModel : public Module {
  public:
    // Tokens i64 [batch, length] to logits [batch, length, vocabulary].
    Tensor forward(const Tensor& tokens) override;
    // {tokens} to {logits}; {tokens, next tokens} to {mean cross entropy}, with attention within documents where a
    // third tensor, integers of the same shape, says which one each token is of.
    Tensors forward(const Tensors& inputs) override;

    // While it is on, a call takes the tokens that follow those of the calls before, and attention keeps what it needs
    // of them. Turning it on, or off, forgets them. In evaluation only, and where the model has caches.
    void set_caching(bool on);
    bool can_cache() { return !caches().empty(); }
    // How many tokens it has places for.
    virtual std::int64_t context() const = 0;

  protected:
    // Where the tokens stand behind those of the calls before. A UsageError where there is no place for them.
    Slice places(const Tensor& tokens);
    // Those of its attentions, all of which keep the same tokens.
    virtual std::vector<KeyValueCache*> caches() { return {}; }
    // As the last call gave them; undefined where it did not. Layers may keep a reference.
    const Tensor& documents() const { return documents_; }
    // What the head reads, [batch, length, width]; and the head's weight, [vocabulary, width].
    virtual Tensor hidden(const Tensor& tokens) = 0;
    virtual Tensor head() const = 0;

  private:
    Tensor documents_;  // until the next call: blocks may run again in backward
};

// The sizes that the options of a model leave at 0, from the data; a UsageError where the data do not fit the model.
void fit_to_tokens(const char* model, std::int64_t& vocabulary, std::int64_t& length, const DataInfo& data);
// That both are there.
void check_sizes(const char* model, std::int64_t vocabulary, std::int64_t length);

}  // namespace invar
