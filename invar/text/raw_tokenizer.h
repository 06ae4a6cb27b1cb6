// A tokenizer.json as it stands, before anybody asks what it means. Read without building a tree of its vocabulary and
// its merges, and within limits, so that a hostile file costs no more memory than its own size.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace invar::text {

struct RawTokenizer {
    nlohmann::json rest;  // all but the two that follow
    std::vector<std::pair<std::string, std::uint32_t>> vocabulary;
    std::vector<std::pair<std::string, std::string>> merges;
    bool has_merges = false;
    // Why the vocabulary or the merges are not those of a BPE model; "" where they may be.
    std::string problem;
};

inline constexpr std::uint64_t kMostTokenizerBytes = std::uint64_t(1) << 28;

// IoError on text that is not JSON, nested too deeply, too large or with a key twice.
RawTokenizer parse_raw_tokenizer(std::string_view json, std::string_view source);

}  // namespace invar::text
