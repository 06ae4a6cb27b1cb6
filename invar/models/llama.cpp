// Llama: pre-norm blocks of causal attention with rotary positions and grouped queries, and a SwiGLU layer. Modules
// have Hugging Face's names. The layers of one input are multiplied as one where their weights lie side by side.
#include "invar/models/llama.h"

#include "invar/core/error.h"
#include "invar/models/registry.h"
#include "invar/nn/layers.h"
#include "invar/ops/ops.h"

namespace invar {

namespace {

constexpr double kDeviation = 0.02;

// A linear layer that keeps its weight for whoever multiplies several at once.
class Projection : public Linear {
  public:
    Projection(std::int64_t in, std::int64_t out, bool bias) : Linear(in, out, bias) { draw_normal(*this, kDeviation); }
};

Tensor value_of(const Parameter* parameter) {
    return parameter != nullptr ? parameter->value : Tensor();
}

class SelfAttention : public Module {
  public:
    SelfAttention(const LlamaOptions& o, const Tensor& table, const Tensor& documents)
        : options_(o),
          table_(table),
          documents_(documents),
          q_proj_(add<Projection>("q_proj", o.width, o.heads * o.head_width, o.attention_bias)),
          k_proj_(add<Projection>("k_proj", o.width, o.kv_heads * o.head_width, o.attention_bias)),
          v_proj_(add<Projection>("v_proj", o.width, o.kv_heads * o.head_width, o.attention_bias)),
          o_proj_(add<Projection>("o_proj", o.heads * o.head_width, o.width, false)) {}

    Tensor forward(const Tensor& x) override {
        Tensors biases;
        if (options_.attention_bias) biases = {value_of(q_proj_.bias), value_of(k_proj_.bias), value_of(v_proj_.bias)};
        const Tensor qkv = ops::linears(x, {q_proj_.weight.value, k_proj_.weight.value, v_proj_.weight.value}, biases);
        const std::int64_t heads = options_.heads, kv_heads = options_.kv_heads;
        const Tensor turned = ops::rotary(qkv, heads, kv_heads, table_, {.offset = cache.tokens()});
        return o_proj_(cache.on
                           ? cache.attend(turned, heads, kv_heads)
                           : ops::self_attention(turned, heads, kv_heads, {.causal = true, .documents = documents_}));
    }
    KeyValueCache cache;

  private:
    const LlamaOptions& options_;
    const Tensor &table_, &documents_;
    Projection &q_proj_, &k_proj_, &v_proj_, &o_proj_;
};

class SwigluLayer : public Module {
  public:
    explicit SwigluLayer(const LlamaOptions& o)
        : gate_proj_(add<Projection>("gate_proj", o.width, o.hidden, false)),
          up_proj_(add<Projection>("up_proj", o.width, o.hidden, false)),
          down_proj_(add<Projection>("down_proj", o.hidden, o.width, false)) {}
    Tensor forward(const Tensor& x) override {
        return down_proj_(ops::swiglu(ops::linears(x, {gate_proj_.weight.value, up_proj_.weight.value})));
    }

  private:
    Projection &gate_proj_, &up_proj_, &down_proj_;
};

// The residual stream and what the last layer adds to it go from block to block apart, so that each sum is made with
// the norm behind it.
class DecoderLayer : public Module {
  public:
    DecoderLayer(const LlamaOptions& o, const Tensor& table, const Tensor& documents)
        : input_layernorm_(add<RmsNorm>("input_layernorm", o.width, o.eps)),
          self_attn_(add<SelfAttention>("self_attn", o, table, documents)),
          post_attention_layernorm_(add<RmsNorm>("post_attention_layernorm", o.width, o.eps)),
          mlp_(add<SwigluLayer>("mlp", o)) {}

    Tensors forward(const Tensors& stream) override {
        Tensors read = stream.size() == 1 ? Tensors{stream[0], input_layernorm_(stream[0])} : input_layernorm_(stream);
        read = post_attention_layernorm_(read[0], self_attn_(read[1]));
        return {read[0], mlp_(read[1])};
    }
    KeyValueCache& cache() { return self_attn_.cache; }

  private:
    RmsNorm& input_layernorm_;
    SelfAttention& self_attn_;
    RmsNorm& post_attention_layernorm_;
    SwigluLayer& mlp_;
};

ops::RotarySpeeds speeds_of(const LlamaOptions& o) {
    using Scaling = ops::RotarySpeeds::Scaling;
    const Scaling scaling = o.rope_scaling == "linear"   ? Scaling::linear
                            : o.rope_scaling == "llama3" ? Scaling::llama3
                                                         : Scaling::none;
    return {.base = o.rope_theta,
            .scaling = scaling,
            .factor = o.rope_factor,
            .low_freq_factor = o.rope_low_freq_factor,
            .high_freq_factor = o.rope_high_freq_factor,
            .original_length = double(o.rope_original_length)};
}

// What Hugging Face calls `model`: all but the head.
class Decoder : public Module {
  public:
    Decoder(const LlamaOptions& o, const Tensor& documents)
        : options_(o),
          embed_tokens_(add<Embedding>("embed_tokens", o.vocabulary, o.width)),
          layers_(add<ModuleList>("layers")),
          table_(ops::rotary_table(o.length, ops::rotary_speeds(o.head_width, speeds_of(o)))) {
        draw_normal(embed_tokens_.weight, kDeviation);
        for (std::int64_t i = 0; i < o.layers; ++i)
            blocks_.push_back(&layers_.append(std::make_unique<DecoderLayer>(options_, table_, documents)));
        norm_ = &add<RmsNorm>("norm", o.width, o.eps);
    }
    Tensor forward(const Tensor& tokens) override {
        if (table_.device() != tokens.device()) table_ = ops::to(table_, tokens.device());
        Tensors stream{embed_tokens_(tokens)};
        for (DecoderLayer* block : blocks_) stream = (*block)(stream);
        return (*norm_)(stream)[1];
    }
    Tensor embedding() const { return embed_tokens_.weight.value; }
    const std::vector<DecoderLayer*>& blocks() const { return blocks_; }

  private:
    LlamaOptions options_;
    Embedding& embed_tokens_;
    ModuleList& layers_;
    std::vector<DecoderLayer*> blocks_;
    Tensor table_;
    RmsNorm* norm_ = nullptr;
};

class Llama : public LanguageModel {
  public:
    explicit Llama(const LlamaOptions& o) : options_(o), model_(add<Decoder>("model", o, documents())) {
        if (!o.tied) lm_head_ = &add<Projection>("lm_head", o.width, o.vocabulary, false);
    }
    std::unique_ptr<Module> new_instance() const override { return std::make_unique<Llama>(options_); }
    std::vector<Module*> checkpoint_blocks() override { return {model_.blocks().begin(), model_.blocks().end()}; }
    std::int64_t context() const override { return options_.length; }
    // Files of the model without its head leave `model.` out; older ones keep the speeds of the positions.
    std::string own_name(const std::string& in_file) const override {
        if (in_file.ends_with(".rotary_emb.inv_freq")) return "";
        if (in_file == "lm_head.weight" && options_.tied) return "model.embed_tokens.weight";
        for (const char* start : {"embed_tokens.", "layers.", "norm."})
            if (in_file.starts_with(start)) return "model." + in_file;
        return in_file;
    }

  protected:
    Tensor hidden(const Tensor& tokens) override {
        places(tokens);
        return model_(tokens);
    }
    Tensor head() const override { return lm_head_ != nullptr ? lm_head_->weight.value : model_.embedding(); }
    std::vector<KeyValueCache*> caches() override {
        std::vector<KeyValueCache*> all;
        for (DecoderLayer* block : model_.blocks()) all.push_back(&block->cache());
        return all;
    }

  private:
    LlamaOptions options_;
    Decoder& model_;
    Projection* lm_head_ = nullptr;
};

std::unique_ptr<Module> make_for_data(LlamaOptions options, const DataInfo& data) {
    fit_to_tokens("llama", options.vocabulary, options.length, data);
    return make_llama(options);
}

using O = LlamaOptions;
const RegisterModel<O> kLlama{
    "llama",
    "Llama, of any size: also Qwen 2 and TinyLlama, by their numbers.",
    make_for_data,
    {key("layers", &O::layers, within(1, 1000), "Blocks.", {"model.num_hidden_layers"}),
     key("heads", &O::heads, within(1, 1000), "Heads of attention.", {"model.num_attention_heads"}),
     key("kv_heads", &O::kv_heads, within(0, 1000), "Heads of keys and values, which divide them; 0 for as many.",
         {"model.num_key_value_heads"}),
     key("width", &O::width, within(1, 1 << 20), "Of the residual stream.", {"model.hidden_size"}),
     key("hidden", &O::hidden, within(0, 1 << 22), "Of the layer between; 0 for 8/3 of the width.",
         {"model.intermediate_size"}),
     key("head_width", &O::head_width, within(0, 4096), "Of one head; 0 for the width over the heads.",
         {"model.head_dim"}),
     key("vocabulary", &O::vocabulary, at_least(0), "Tokens; 0 for as many as the data have.", {"model.vocab_size"}),
     key("length", &O::length, within(0, 1 << 20), "Places for tokens; 0 for as many as a sample has.",
         {"model.max_position_embeddings"}),
     key("tied", &O::tied, any(), "The head is the embedding of the tokens.", {"model.tie_word_embeddings"}),
     key("attention_bias", &O::attention_bias, any(), "Biases on queries, keys and values, as in Qwen."),
     key("eps", &O::eps, above(0), "Of the norms.", {"model.rms_norm_eps"}),
     key("rope_theta", &O::rope_theta, above(1), "What the speeds of rotary positions are powers of."),
     key("rope_scaling", &O::rope_scaling, one_of({"none", "linear", "llama3"}),
         "How they are slowed down to reach further than a model was first trained for: linear all of them, llama3 "
         "the slow ones."),
     key("rope_factor", &O::rope_factor, above(0), "By how much, with rope_scaling."),
     key("rope_low_freq_factor", &O::rope_low_freq_factor, above(0),
         "With llama3: pairs that turn less often than this in rope_original_length are slowed down whole."),
     key("rope_high_freq_factor", &O::rope_high_freq_factor, above(0),
         "With llama3: pairs that turn more often than this are left alone."),
     key("rope_original_length", &O::rope_original_length, at_least(1),
         "With llama3: the tokens in a row that the model was first trained on.",
         {"model.original_max_position_embeddings"})}};

}  // namespace

LlamaOptions resolved(LlamaOptions o) {
    if (o.kv_heads == 0) o.kv_heads = o.heads;
    if (o.hidden == 0) o.hidden = (o.width * 8 / 3 + 63) / 64 * 64;
    check<UsageError>(o.head_width > 0 || o.width % o.heads == 0,
                      "model.width = {}: is no multiple of model.heads = {}", o.width, o.heads);
    if (o.head_width == 0) o.head_width = o.width / o.heads;
    check<UsageError>(o.heads % o.kv_heads == 0, "model.heads = {}: is no multiple of model.kv_heads = {}", o.heads,
                      o.kv_heads);
    check<UsageError>(o.head_width % 2 == 0, "a head is {} wide; rotary positions turn pairs (model.head_width)",
                      o.head_width);
    check<UsageError>(o.rope_scaling == "none" || o.rope_scaling == "linear" || o.rope_scaling == "llama3",
                      "model.rope_scaling = {}: must be none, linear or llama3", o.rope_scaling);
    check<UsageError>(o.rope_scaling != "llama3" || o.rope_high_freq_factor > o.rope_low_freq_factor,
                      "model.rope_high_freq_factor = {}: must be above model.rope_low_freq_factor = {}",
                      o.rope_high_freq_factor, o.rope_low_freq_factor);
    return o;
}

std::unique_ptr<LanguageModel> make_llama(const LlamaOptions& options) {
    const LlamaOptions o = resolved(options);
    check_sizes("llama", o.vocabulary, o.length);
    return std::make_unique<Llama>(o);
}

}  // namespace invar
