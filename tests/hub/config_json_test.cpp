// config.json of models that everyone knows, as keys of ours; what our models lack, by its name; and back.
#include "invar/hub/config_json.h"

#include <gtest/gtest.h>

#include "invar/core/error.h"
#include "invar/models/gpt.h"
#include "invar/models/llama.h"
#include "tests/core/expect_error.h"
#include "tests/hub/known_configs.h"

namespace invar {
namespace {

using Json = nlohmann::json;

// As `invar train init_from=FOLDER` would take them.
Config config_of(const std::vector<FolderKey>& keys) {
    Config config;
    config.model.choose(keys.at(0).value);
    EXPECT_EQ(keys[0].key, "model.name");
    for (std::size_t i = 1; i < keys.size(); ++i) config.model.set(keys[i].key.substr(6), keys[i].value);
    return config;
}

Config read(const Json& json) {
    return config_of(keys_of_config_json(JsonObject::parse(json.dump(), "config.json")));
}

TEST(ConfigJson, OfGpt2IsAGptOfItsNumbers) {
    const GptOptions o = read(known::gpt2()).model.as<GptOptions>();
    EXPECT_EQ(o.layers, 12);
    EXPECT_EQ(o.heads, 12);
    EXPECT_EQ(o.width, 768);
    EXPECT_EQ(o.vocabulary, 50257);
    EXPECT_EQ(o.length, 1024);
    EXPECT_EQ(o.dropout, 0.1);
}

TEST(ConfigJson, OfTinyLlamaIsALlamaWithAHeadOfItsOwn) {
    const LlamaOptions o = read(known::tiny_llama()).model.as<LlamaOptions>();
    EXPECT_EQ(o.layers, 22);
    EXPECT_EQ(o.heads, 32);
    EXPECT_EQ(o.kv_heads, 4);
    EXPECT_EQ(o.width, 2048);
    EXPECT_EQ(o.hidden, 5632);
    EXPECT_EQ(o.head_width, 64);
    EXPECT_EQ(o.vocabulary, 32000);
    EXPECT_EQ(o.length, 2048);
    EXPECT_FALSE(o.tied || o.attention_bias);
    EXPECT_EQ(o.eps, 1e-5);
    EXPECT_EQ(o.rope_theta, 10000);
    EXPECT_EQ(o.rope_scaling, "none");
}

TEST(ConfigJson, OfLlama32HasItsRotaryScaling) {
    const LlamaOptions o = read(known::llama_3_2_1b()).model.as<LlamaOptions>();
    EXPECT_TRUE(o.tied);
    EXPECT_EQ(o.rope_theta, 500000);
    EXPECT_EQ(o.rope_scaling, "llama3");
    EXPECT_EQ(o.rope_factor, 32);
    EXPECT_EQ(o.rope_low_freq_factor, 1);
    EXPECT_EQ(o.rope_high_freq_factor, 4);
    EXPECT_EQ(o.rope_original_length, 8192);
    Json newer = known::llama_3_2_1b();  // the same as later versions of the library write it
    newer["rope_parameters"] = newer["rope_scaling"];
    newer["rope_parameters"]["rope_theta"] = newer["rope_theta"];
    newer.erase("rope_scaling");
    newer.erase("rope_theta");
    EXPECT_EQ(read(newer), read(known::llama_3_2_1b()));
}

TEST(ConfigJson, OfQwen25HasBiasesAndOfMistralHasNone) {
    const LlamaOptions qwen = read(known::qwen_2_5_half_b()).model.as<LlamaOptions>();
    EXPECT_TRUE(qwen.attention_bias && qwen.tied);
    EXPECT_EQ(qwen.kv_heads, 2);
    EXPECT_EQ(qwen.head_width, 64);
    EXPECT_EQ(qwen.rope_theta, 1e6);
    EXPECT_FALSE(read(known::mistral_7b()).model.as<LlamaOptions>().attention_bias);
}

TEST(ConfigJson, LetsALlamaBeShorterAndAGptNot) {
    const auto kind_of = [](const Json& json, const char* name) {
        for (const FolderKey& key : keys_of_config_json(JsonObject::parse(json.dump(), "config.json")))
            if (key.key == name) return key.kind;
        return FolderKey::Kind::start;
    };
    EXPECT_EQ(kind_of(known::tiny_llama(), "model.length"), FolderKey::Kind::at_most);
    EXPECT_EQ(kind_of(known::gpt2(), "model.length"), FolderKey::Kind::fixed);
    EXPECT_EQ(kind_of(known::gpt2(), "model.dropout"), FolderKey::Kind::start);
}

TEST(ConfigJson, RefusesByNameWhatTheModelLacks) {
    const auto refuses = [](Json json, const char* key, const Json& value) {
        json[key] = value;
        EXPECT_ERROR(read(json), IoError, std::string("config.json: ") + key + " = ");
    };
    const Json gpt = known::gpt2(), llama = known::tiny_llama(), qwen = known::qwen_2_5_half_b();
    refuses(gpt, "model_type", "gpt_neox");
    refuses(gpt, "activation_function", "relu");
    refuses(gpt, "layer_norm_epsilon", 1e-6);
    refuses(gpt, "scale_attn_by_inverse_layer_idx", true);
    refuses(gpt, "scale_attn_weights", false);
    refuses(gpt, "add_cross_attention", true);
    refuses(gpt, "tie_word_embeddings", false);
    refuses(gpt, "n_inner", 3000);
    refuses(gpt, "resid_pdrop", 0.2);
    refuses(gpt, "quantization_config", {{"bits", 4}});
    refuses(llama, "hidden_act", "gelu");
    refuses(llama, "attention_bias", true);
    refuses(llama, "mlp_bias", true);
    refuses(llama, "attention_dropout", 0.1);
    refuses(llama, "partial_rotary_factor", 0.5);
    refuses(llama, "hidden_size", 2047);
    refuses(known::mistral_7b(), "sliding_window", 4096);
    refuses(qwen, "use_sliding_window", true);
    refuses(qwen, "layer_types", {"full_attention", "sliding_attention"});
    Json scaled = llama;
    for (const char* type : {"yarn", "dynamic", "longrope"}) {
        scaled["rope_scaling"] = {{"type", type}, {"factor", 2.0}};
        EXPECT_ERROR(read(scaled), IoError, std::string("type = \"") + type + "\": model llama has linear and llama3");
    }
    scaled["rope_scaling"] = {{"type", "linear"}};
    EXPECT_ERROR(read(scaled), IoError, "\"factor\" is missing");
}

TEST(ConfigJson, TellsWhatIsMissingOrNoNumberAtAll) {
    for (const Json& good : {known::gpt2(), known::tiny_llama()})
        for (const auto& [key, value] : good.items()) {
            if (!value.is_number_integer()) continue;
            for (const Json& bad :
                 {Json(-3), Json(0), Json("12"), Json(1.5), Json(18446744073709551615u), Json::array()}) {
                Json json = good;
                json[key] = bad;
                if (key == "bos_token_id" || key == "eos_token_id" || key == "pretraining_tp" || key == "n_ctx")
                    continue;
                EXPECT_ERROR(read(json), IoError, std::string("config.json: ") + key + " = ");
            }
        }
    Json json = known::gpt2();
    json.erase("n_layer");
    EXPECT_ERROR(read(json), IoError, "config.json: \"n_layer\" is missing");
    json.erase("model_type");
    EXPECT_ERROR(read(json), IoError, "config.json: \"model_type\" is missing");
}

TEST(ConfigJson, ThatIsNoJsonIsToldInOneLine) {
    const auto refuses = [](const std::string& text, const char* says) {
        EXPECT_ERROR(JsonObject::parse(text, "config.json"), IoError, says);
    };
    refuses("", "config.json: is not JSON");
    refuses("{\"a\": ", "config.json: is not JSON");
    refuses("{\"a\": \"\xff\"}", "config.json: is not JSON");
    refuses("[1]", "config.json: is not a JSON object");
    refuses("{\"a\": 1, \"a\": 2}", "the key \"a\" is there twice");
    refuses("{\"a\": 1e999}", "a number that is too large");
    refuses("{\"a\": " + std::string(1'000'000, '[') + "}", "nested deeper than 32 levels");
}

TEST(ConfigJson, IsWrittenSoThatItReadsBackTheSame) {
    for (const Json& known :
         {known::gpt2(), known::tiny_llama(), known::llama_3_2_1b(), known::qwen_2_5_half_b(), known::mistral_7b()}) {
        const Config config = read(known);
        const bool gpt = config.model.name() == "gpt";
        const auto sizes = [&](const auto& o) { return std::pair(o.vocabulary, o.length); };
        const auto [vocabulary, length] =
            gpt ? sizes(config.model.as<GptOptions>()) : sizes(config.model.as<LlamaOptions>());
        const Json written = to_config_json({config.model, vocabulary, length, "bfloat16", 7});
        EXPECT_EQ(read(written), config) << written;
        EXPECT_EQ(written.at("torch_dtype"), "bfloat16");
        EXPECT_EQ(written.at("eos_token_id"), 7);
        for (const auto& [key, value] : known.items()) {  // what we write of it is what was there
            const bool ours = key.ends_with("_id") || known.at("model_type") == "mistral" || !written.contains(key);
            EXPECT_TRUE(ours || written.at(key) == value) << key;
        }
    }
}

TEST(ConfigJson, IsNotWrittenForModelsThatNobodyElseHas) {
    const Config config;
    EXPECT_ERROR(to_config_json({config.model, 1, 1, "float32", {}}), UsageError,
                 "model convnet has no counterpart in Hugging Face's library; gpt and llama can be exported");
}

}  // namespace
}  // namespace invar
