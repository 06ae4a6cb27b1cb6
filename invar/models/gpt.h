// GPT-2 as C++ calls it; models/registry.h makes it by name.
#pragma once

#include <memory>

#include "invar/models/language_model.h"

namespace invar {

// GPT-2's four sizes have 12, 24, 36 and 48 layers, 12, 16, 20 and 25 heads, and a width of 768, 1024, 1280 and 1600.
struct GptOptions {
    std::int64_t layers = 6, heads = 6, width = 384;
    std::int64_t vocabulary = 0, length = 0;  // 0: as the data have it
    double dropout = 0.0;
};
std::unique_ptr<LanguageModel> make_gpt(const GptOptions& options);

}  // namespace invar
