// Llama as C++ calls it; models/registry.h makes it by name.
#pragma once

#include <memory>
#include <string>

#include "invar/models/language_model.h"
#include "invar/ops/rotary.h"

namespace invar {

// RMS norms, rotary positions, grouped queries, SwiGLU: Llama 2 and 3, Qwen 2 and 2.5, TinyLlama, by their numbers.
struct LlamaOptions {
    std::int64_t layers = 6, heads = 6, kv_heads = 0, width = 384;  // kv_heads 0: as many as heads
    std::int64_t hidden = 0;                                        // of the layer between; 0: 8/3 of the width, in 64s
    std::int64_t head_width = 0;                                    // 0: width / heads
    std::int64_t vocabulary = 0, length = 0;                        // 0: as the data have it
    bool tied = true;                                               // the head is the embedding of the tokens
    bool attention_bias = false;                                    // on q, k and v, as in Qwen
    double eps = 1e-6;
    double rope_theta = 10000;          // the base of ops::RotarySpeeds, whose other members these are
    std::string rope_scaling = "none";  // linear, llama3
    double rope_factor = 1, rope_low_freq_factor = 1, rope_high_freq_factor = 4;
    std::int64_t rope_original_length = 8192;
};
// With numbers for what is left to follow from others. Throws UsageError where they do not go together.
LlamaOptions resolved(LlamaOptions options);
std::unique_ptr<LanguageModel> make_llama(const LlamaOptions& options);

}  // namespace invar
