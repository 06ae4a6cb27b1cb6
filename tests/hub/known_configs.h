// The config.json files of models that everyone knows: the numbers are facts about those models.
#pragma once

#include <nlohmann/json.hpp>

namespace invar::known {

inline nlohmann::json gpt2() {
    return {{"activation_function", "gelu_new"},
            {"architectures", nlohmann::json::array({"GPT2LMHeadModel"})},
            {"attn_pdrop", 0.1},
            {"bos_token_id", 50256},
            {"embd_pdrop", 0.1},
            {"eos_token_id", 50256},
            {"initializer_range", 0.02},
            {"layer_norm_epsilon", 1e-05},
            {"model_type", "gpt2"},
            {"n_ctx", 1024},
            {"n_embd", 768},
            {"n_head", 12},
            {"n_layer", 12},
            {"n_positions", 1024},
            {"resid_pdrop", 0.1},
            {"summary_type", "cls_index"},
            {"vocab_size", 50257}};
}

inline nlohmann::json tiny_llama() {
    return {{"architectures", nlohmann::json::array({"LlamaForCausalLM"})},
            {"bos_token_id", 1},
            {"eos_token_id", 2},
            {"hidden_act", "silu"},
            {"hidden_size", 2048},
            {"initializer_range", 0.02},
            {"intermediate_size", 5632},
            {"max_position_embeddings", 2048},
            {"model_type", "llama"},
            {"num_attention_heads", 32},
            {"num_hidden_layers", 22},
            {"num_key_value_heads", 4},
            {"pretraining_tp", 1},
            {"rms_norm_eps", 1e-05},
            {"rope_scaling", nullptr},
            {"tie_word_embeddings", false},
            {"vocab_size", 32000}};
}

inline nlohmann::json llama_3_2_1b() {
    return {{"architectures", nlohmann::json::array({"LlamaForCausalLM"})},
            {"attention_bias", false},
            {"attention_dropout", 0.0},
            {"head_dim", 64},
            {"hidden_act", "silu"},
            {"hidden_size", 2048},
            {"intermediate_size", 8192},
            {"max_position_embeddings", 131072},
            {"mlp_bias", false},
            {"model_type", "llama"},
            {"num_attention_heads", 32},
            {"num_hidden_layers", 16},
            {"num_key_value_heads", 8},
            {"rms_norm_eps", 1e-05},
            {"rope_scaling",
             {{"factor", 32.0},
              {"high_freq_factor", 4.0},
              {"low_freq_factor", 1.0},
              {"original_max_position_embeddings", 8192},
              {"rope_type", "llama3"}}},
            {"rope_theta", 500000.0},
            {"tie_word_embeddings", true},
            {"vocab_size", 128256}};
}

inline nlohmann::json qwen_2_5_half_b() {
    return {{"architectures", nlohmann::json::array({"Qwen2ForCausalLM"})},
            {"attention_dropout", 0.0},
            {"hidden_act", "silu"},
            {"hidden_size", 896},
            {"intermediate_size", 4864},
            {"max_position_embeddings", 32768},
            {"max_window_layers", 24},
            {"model_type", "qwen2"},
            {"num_attention_heads", 14},
            {"num_hidden_layers", 24},
            {"num_key_value_heads", 2},
            {"rms_norm_eps", 1e-06},
            {"rope_theta", 1000000.0},
            {"sliding_window", 32768},
            {"tie_word_embeddings", true},
            {"use_sliding_window", false},
            {"vocab_size", 151936}};
}

inline nlohmann::json mistral_7b() {
    return {{"architectures", nlohmann::json::array({"MistralForCausalLM"})},
            {"hidden_act", "silu"},
            {"hidden_size", 4096},
            {"intermediate_size", 14336},
            {"max_position_embeddings", 32768},
            {"model_type", "mistral"},
            {"num_attention_heads", 32},
            {"num_hidden_layers", 32},
            {"num_key_value_heads", 8},
            {"rms_norm_eps", 1e-05},
            {"rope_theta", 1000000.0},
            {"sliding_window", nullptr},
            {"tie_word_embeddings", false},
            {"vocab_size", 32768}};
}

}  // namespace invar::known
