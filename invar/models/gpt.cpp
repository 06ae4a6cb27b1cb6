// GPT-2: learned positions, pre-norm blocks of causal attention and a GELU layer, a head that is the embedding of the
// tokens. Modules have Hugging Face's names, and files its layouts.
#include "invar/models/gpt.h"

#include <cmath>

#include "invar/core/error.h"
#include "invar/models/registry.h"
#include "invar/nn/layers.h"
#include "invar/ops/ops.h"

namespace invar {

namespace {

constexpr double kDeviation = 0.02;

// A linear layer as GPT-2's files have it, where it is called Conv1D: the weight lies [in, out] there.
class TransposedLinear : public Linear {
  public:
    TransposedLinear(std::int64_t in, std::int64_t out, double deviation, Activation activation = Activation::none)
        : Linear(in, out, true, {}, activation) {
        draw_normal(*this, deviation);
        weight.layout = {{out, in}, {1, 0}, {in, out}};
    }
};

class Attention : public Module {
  public:
    Attention(const GptOptions& o, double projected, const Tensor& documents)
        : documents_(documents),
          heads_(o.heads),
          dropout_(o.dropout),
          c_attn_(add<TransposedLinear>("c_attn", o.width, 3 * o.width, kDeviation)),
          c_proj_(add<TransposedLinear>("c_proj", o.width, o.width, projected)) {}

    Tensor forward(const Tensor& x) override {
        const double dropout = training() ? dropout_ : 0.0;
        const Tensor qkv = c_attn_(x);
        const Tensor y = cache.on ? cache.attend(qkv, heads_, heads_)
                                  : ops::self_attention(qkv, heads_, heads_,
                                                        {.causal = true, .dropout = dropout, .documents = documents_});
        return c_proj_(y);
    }
    KeyValueCache cache;

  private:
    const Tensor& documents_;
    std::int64_t heads_;
    double dropout_;
    TransposedLinear &c_attn_, &c_proj_;
};

class Mlp : public Module {
  public:
    Mlp(const GptOptions& o, double projected)
        : c_fc_(add<TransposedLinear>("c_fc", o.width, 4 * o.width, kDeviation, Activation::gelu_tanh)),
          c_proj_(add<TransposedLinear>("c_proj", 4 * o.width, o.width, projected)) {}
    Tensor forward(const Tensor& x) override { return c_proj_(c_fc_(x)); }

  private:
    TransposedLinear &c_fc_, &c_proj_;
};

// The residual stream and what the last layer adds to it go from block to block apart, so that each sum is made with
// the norm behind it.
class Block : public Module {
  public:
    Block(const GptOptions& o, double projected, const Tensor& documents)
        : dropout_(o.dropout),
          ln_1_(add<LayerNorm>("ln_1", o.width)),
          attn_(add<Attention>("attn", o, projected, documents)),
          ln_2_(add<LayerNorm>("ln_2", o.width)),
          mlp_(add<Mlp>("mlp", o, projected)) {}

    Tensors forward(const Tensors& stream) override {
        Tensors read = stream.size() == 1 ? Tensors{stream[0], ln_1_(stream[0])} : ln_1_(stream);
        read = ln_2_(read[0], ops::dropout(attn_(read[1]), dropout_, training()));
        return {read[0], ops::dropout(mlp_(read[1]), dropout_, training())};
    }
    KeyValueCache& cache() { return attn_.cache; }

  private:
    double dropout_;
    LayerNorm& ln_1_;
    Attention& attn_;
    LayerNorm& ln_2_;
    Mlp& mlp_;
};

class Gpt : public LanguageModel {
  public:
    explicit Gpt(const GptOptions& o)
        : options_(o),
          wte_(add<Embedding>("wte", o.vocabulary, o.width)),
          wpe_(add<Embedding>("wpe", o.length, o.width)),
          h_(add<ModuleList>("h")) {
        draw_normal(wte_.weight, kDeviation);
        draw_normal(wpe_.weight, kDeviation);
        // What many blocks add to the residual stream grows with the root of their number; it starts smaller by that.
        const double projected = kDeviation / std::sqrt(2.0 * double(o.layers));
        for (std::int64_t i = 0; i < o.layers; ++i)
            blocks_.push_back(&h_.append(std::make_unique<Block>(o, projected, documents())));
        ln_f_ = &add<LayerNorm>("ln_f", o.width);
    }
    std::unique_ptr<Module> new_instance() const override { return std::make_unique<Gpt>(options_); }
    std::vector<Module*> checkpoint_blocks() override { return {blocks_.begin(), blocks_.end()}; }
    std::int64_t context() const override { return options_.length; }
    // Files of the model with its head begin names so; the causal mask is in older ones, and the head is wte.
    std::string own_name(const std::string& in_file) const override {
        constexpr std::string_view kPrefix = "transformer.";
        if (in_file.ends_with(".attn.bias") || in_file.ends_with(".attn.masked_bias")) return "";
        if (in_file == "lm_head.weight") return "wte.weight";
        return in_file.starts_with(kPrefix) ? in_file.substr(kPrefix.size()) : in_file;
    }

  protected:
    Tensor hidden(const Tensor& tokens) override {
        Tensor x = wte_(tokens) + wpe_.weight.value[places(tokens)];
        x = ops::dropout(x, options_.dropout, training());
        Tensors stream{x};
        for (Block* block : blocks_) stream = (*block)(stream);
        return (*ln_f_)(stream)[1];
    }
    Tensor head() const override { return wte_.weight.value; }
    std::vector<KeyValueCache*> caches() override {
        std::vector<KeyValueCache*> all;
        for (Block* block : blocks_) all.push_back(&block->cache());
        return all;
    }

  private:
    GptOptions options_;
    Embedding &wte_, &wpe_;
    ModuleList& h_;
    LayerNorm* ln_f_ = nullptr;
    std::vector<Block*> blocks_;
};

std::unique_ptr<Module> make_for_data(GptOptions options, const DataInfo& data) {
    fit_to_tokens("gpt", options.vocabulary, options.length, data);
    return make_gpt(options);
}

using O = GptOptions;
const RegisterModel<O> kGpt{
    "gpt",
    "GPT-2, of any size.",
    make_for_data,
    {key("layers", &O::layers, within(1, 1000), "Blocks.", {"model.n_layer"}),
     key("heads", &O::heads, within(1, 1000), "Heads of attention; they divide the width.", {"model.n_head"}),
     key("width", &O::width, within(1, 1 << 20), "Of the residual stream.", {"model.n_embd"}),
     key("vocabulary", &O::vocabulary, at_least(0), "Tokens; 0 for as many as the data have.", {"model.vocab_size"}),
     key("length", &O::length, at_least(0), "Places for tokens; 0 for as many as a sample has.", {"model.n_positions"}),
     key("dropout", &O::dropout, below(0, 1), "Behind embeddings, attention weights and both layers of a block.")}};

}  // namespace

std::unique_ptr<LanguageModel> make_gpt(const GptOptions& options) {
    check<UsageError>(options.width % options.heads == 0, "model.width = {}: is no multiple of model.heads = {}",
                      options.width, options.heads);
    check_sizes("gpt", options.vocabulary, options.length);
    return std::make_unique<Gpt>(options);
}

}  // namespace invar
