// The way back from tokens to text, as the "decoder" of a tokenizer.json describes it: what each token stands for, and
// what is taken off the ends of the whole.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace invar::text {

struct Decoder {
    bool byte_level = false;
    bool byte_fallback = false;
    std::vector<std::pair<std::string, std::string>> replace;
    std::string strip;  // one character, taken off so many times at most
    std::size_t strip_front = 0, strip_back = 0;

    // The bytes that the token of this name stands for.
    std::string text_of(const std::string& name) const;
};

// `byte_level`: whether the pre-tokenizer is. Null gives the names as they are, or their bytes.
Decoder parse_decoder(const nlohmann::json& json, bool byte_level, std::string_view source);

}  // namespace invar::text
