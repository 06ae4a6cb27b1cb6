#include "invar/hub/config_json.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "invar/core/error.h"
#include "invar/models/gpt.h"
#include "invar/models/llama.h"

namespace invar {

namespace {

using Kind = FolderKey::Kind;

struct SizeName {
    const char *theirs, *ours;
};
constexpr SizeName kGptSizes[] = {{"n_layer", "layers"},
                                  {"n_head", "heads"},
                                  {"n_embd", "width"},
                                  {"vocab_size", "vocabulary"},
                                  {"n_positions", "length"}};
constexpr SizeName kLlamaSizes[] = {{"num_hidden_layers", "layers"},
                                    {"num_attention_heads", "heads"},
                                    {"hidden_size", "width"},
                                    {"intermediate_size", "hidden"},
                                    {"vocab_size", "vocabulary"}};

class Keys {
  public:
    explicit Keys(const std::string& model) { add("name", model); }
    void add(const char* name, std::string value, Kind kind = Kind::fixed) {
        keys_.push_back({fmt::format("model.{}", name), std::move(value), kind});
    }
    void add(const char* name, std::int64_t value, Kind kind = Kind::fixed) { add(name, std::to_string(value), kind); }
    void add(const char* name, double value, Kind kind = Kind::fixed) { add(name, print_value(value), kind); }
    void add(const char* name, bool value) { add(name, print_value(value)); }
    std::vector<FolderKey> take() { return std::move(keys_); }

  private:
    std::vector<FolderKey> keys_;
};

std::vector<FolderKey> gpt_keys(const JsonObject& c) {
    const std::string activation = c.text("activation_function", "gelu_new");
    c.require(activation == "gelu_new" || activation == "gelu_pytorch_tanh", "activation_function",
              "model gpt has gelu_new, GELU by tanh, and no other");
    c.require(c.number("layer_norm_epsilon", 1e-5) == 1e-5, "layer_norm_epsilon", "model gpt has 1e-05");
    c.require(c.flag("scale_attn_weights", true), "scale_attn_weights", "model gpt scales them");
    c.require(!c.flag("scale_attn_by_inverse_layer_idx", false), "scale_attn_by_inverse_layer_idx",
              "model gpt scales every layer alike");
    c.require(!c.flag("add_cross_attention", false), "add_cross_attention", "model gpt has none");
    c.require(c.flag("tie_word_embeddings", true), "tie_word_embeddings",
              "the head of model gpt is the embedding of its tokens");
    const std::int64_t between = c.count("n_inner", 4);
    c.require(!c.has("n_inner") || (between % 4 == 0 && between / 4 == c.count("n_embd")), "n_inner",
              "the layer between of model gpt is 4 times n_embd wide");
    const double dropout = c.number("resid_pdrop", 0.1);
    c.require(c.number("embd_pdrop", 0.1) == dropout && c.number("attn_pdrop", 0.1) == dropout, "resid_pdrop",
              "embd_pdrop and attn_pdrop are others, and model gpt has one dropout");
    Keys keys("gpt");
    for (const auto& [theirs, ours] : kGptSizes) keys.add(ours, c.count(theirs));
    keys.add("dropout", dropout, Kind::start);
    return keys.take();
}

// rope_scaling, or what newer files call rope_parameters, which has rope_theta too.
void add_rotary(Keys& keys, const JsonObject& c) {
    const bool newer = c.has("rope_parameters");
    double theta = c.number("rope_theta", 10000);
    std::string scaling = "default";
    if (newer || c.has("rope_scaling")) {
        const JsonObject rope = c.object(newer ? "rope_parameters" : "rope_scaling");
        for (const auto& [name, value] : rope.json().items())
            rope.require(!value.is_object(), name, "model llama has the same rotary positions in every layer");
        theta = rope.number("rope_theta", theta);
        const char* const type = rope.has("rope_type") ? "rope_type" : "type";
        scaling = rope.text(type, "default");
        rope.require(scaling == "default" || scaling == "linear" || scaling == "llama3", type,
                     "model llama has linear and llama3");
        rope.require(rope.number("partial_rotary_factor", 1) == 1, "partial_rotary_factor", "model llama turns all");
        if (scaling != "default") keys.add("rope_factor", rope.number("factor"));
        if (scaling == "llama3") {
            keys.add("rope_low_freq_factor", rope.number("low_freq_factor"));
            keys.add("rope_high_freq_factor", rope.number("high_freq_factor"));
            keys.add("rope_original_length", rope.count("original_max_position_embeddings"));
        }
    }
    keys.add("rope_scaling", scaling == "default" ? std::string("none") : scaling);
    keys.add("rope_theta", theta);
}

void check_attention(const JsonObject& c, bool qwen, std::int64_t length) {
    c.require(!c.flag("attention_bias", false), "attention_bias",
              "model llama has no bias on o_proj, which such a model has");
    c.require(!c.flag("mlp_bias", false), "mlp_bias", "model llama has none");
    c.require(c.number("attention_dropout", 0) == 0, "attention_dropout", "model llama has none");
    c.require(c.number("partial_rotary_factor", 1) == 1, "partial_rotary_factor", "model llama turns whole heads");
    constexpr const char* kNoWindow = "model llama attends to all tokens before, and has no window that slides";
    if (qwen)
        c.require(!c.flag("use_sliding_window", false), "use_sliding_window", kNoWindow);
    else
        c.require(c.count("sliding_window", length) >= length, "sliding_window", kNoWindow);
    if (!c.has("layer_types")) return;
    const nlohmann::json& types = c.json().at("layer_types");
    const auto full = [](const nlohmann::json& type) { return type == "full_attention"; };
    c.require(types.is_array() && std::ranges::all_of(types, full), "layer_types", kNoWindow);
}

std::vector<FolderKey> llama_keys(const JsonObject& c, const std::string& type) {
    c.require(c.text("hidden_act", "silu") == "silu", "hidden_act", "model llama has silu and no other");
    const bool qwen = type == "qwen2";
    const std::int64_t heads = c.count("num_attention_heads"), width = c.count("hidden_size"),
                       length = c.count("max_position_embeddings");
    check_attention(c, qwen, length);
    c.require(c.has("head_dim") || width % heads == 0, "hidden_size", "is no multiple of num_attention_heads");
    Keys keys("llama");
    for (const auto& [theirs, ours] : kLlamaSizes) keys.add(ours, c.count(theirs));
    keys.add("kv_heads", type == "llama" ? c.count("num_key_value_heads", heads) : c.count("num_key_value_heads"));
    keys.add("head_width", c.count("head_dim", width / heads));
    keys.add("length", length, Kind::at_most);
    keys.add("tied", c.flag("tie_word_embeddings", false));
    keys.add("attention_bias", qwen);
    keys.add("eps", c.number("rms_norm_eps", 1e-6));
    add_rotary(keys, c);
    return keys.take();
}

nlohmann::ordered_json gpt_json(const ExportedModel& exported) {
    const GptOptions& o = exported.model.as<GptOptions>();
    return {{"architectures", nlohmann::json::array({"GPT2LMHeadModel"})},
            {"model_type", "gpt2"},
            {"activation_function", "gelu_new"},
            {"attn_pdrop", o.dropout},
            {"embd_pdrop", o.dropout},
            {"resid_pdrop", o.dropout},
            {"initializer_range", 0.02},
            {"layer_norm_epsilon", 1e-5},
            {"n_embd", o.width},
            {"n_head", o.heads},
            {"n_inner", nullptr},
            {"n_layer", o.layers},
            {"n_positions", exported.length},
            {"scale_attn_by_inverse_layer_idx", false},
            {"scale_attn_weights", true},
            {"tie_word_embeddings", true}};
}

// Qwen 2 is the one of the family that has biases where our model has them.
nlohmann::ordered_json llama_json(const ExportedModel& exported) {
    const LlamaOptions o = resolved(exported.model.as<LlamaOptions>());
    nlohmann::ordered_json rope;
    if (o.rope_scaling != "none") rope = {{"rope_type", o.rope_scaling}, {"factor", o.rope_factor}};
    if (o.rope_scaling == "llama3") {
        rope["low_freq_factor"] = o.rope_low_freq_factor;
        rope["high_freq_factor"] = o.rope_high_freq_factor;
        rope["original_max_position_embeddings"] = o.rope_original_length;
    }
    nlohmann::ordered_json json{
        {"architectures", nlohmann::json::array({o.attention_bias ? "Qwen2ForCausalLM" : "LlamaForCausalLM"})},
        {"model_type", o.attention_bias ? "qwen2" : "llama"},
        {"attention_dropout", 0.0},
        {"head_dim", o.head_width},
        {"hidden_act", "silu"},
        {"hidden_size", o.width},
        {"initializer_range", 0.02},
        {"intermediate_size", o.hidden},
        {"max_position_embeddings", exported.length},
        {"num_attention_heads", o.heads},
        {"num_hidden_layers", o.layers},
        {"num_key_value_heads", o.kv_heads},
        {"rms_norm_eps", o.eps},
        {"rope_scaling", rope},
        {"rope_theta", o.rope_theta},
        {"tie_word_embeddings", o.tied}};
    if (o.attention_bias)
        json["use_sliding_window"] = false;
    else
        json["attention_bias"] = json["mlp_bias"] = false;
    return json;
}

}  // namespace

std::vector<FolderKey> keys_of_config_json(const JsonObject& config) {
    config.require(!config.has("quantization_config"), "quantization_config",
                   "the weights are quantized; take those that are not");
    const std::string type = config.text("model_type");
    if (type == "gpt2") return gpt_keys(config);
    const std::vector<std::string> family{"llama", "mistral", "qwen2"};
    config.require(std::ranges::find(family, type) != family.end(), "model_type",
                   "there is no such model here; there are gpt2, llama, mistral and qwen2");
    return llama_keys(config, type);
}

void check_exportable(const Part& model) {
    check<UsageError>(model.name() == "gpt" || model.name() == "llama",
                      "model {} has no counterpart in Hugging Face's library; gpt and llama can be exported",
                      model.name());
}

nlohmann::ordered_json to_config_json(const ExportedModel& exported) {
    check_exportable(exported.model);
    nlohmann::ordered_json json = exported.model.name() == "gpt" ? gpt_json(exported) : llama_json(exported);
    json["vocab_size"] = exported.vocabulary;
    // Without them a reader would take the tokens of the model that it knows by this name.
    const nlohmann::ordered_json end =
        exported.end_of_text ? nlohmann::ordered_json(*exported.end_of_text) : nlohmann::ordered_json();
    json["eos_token_id"] = end;
    json["bos_token_id"] = exported.model.name() == "gpt" ? end : nullptr;  // GPT-2 begins a text as it ends one
    json["torch_dtype"] = exported.dtype;
    json["use_cache"] = true;
    return json;
}

}  // namespace invar
