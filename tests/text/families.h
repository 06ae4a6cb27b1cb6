// Tokenizers of each family, made by the tests themselves: small ones whose merges are known, as the JSON text that
// Hugging Face's library would have written.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "invar/core/error.h"
#include "invar/core/printable.h"
#include "invar/text/tokenizer.h"
#include "invar/text/tokenizer_parts.h"

namespace invar::text {

using Json = nlohmann::json;
using Ids = std::vector<TokenId>;
using Symbols = std::vector<std::string>;
using Merges = std::vector<std::pair<std::string, std::string>>;

inline const std::string kQwenPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline const std::string kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

inline Json added(TokenId id, const std::string& content, const Json& more = {}) {
    Json token = {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                  {"rstrip", false}, {"normalized", false}, {"special", true}};
    if (more.is_object()) token.update(more);
    return token;
}

// Bytes are 0 to 255, merges follow, <|endoftext|> is last: GPT-2 in small.
inline Json gpt2_json(const Merges& merges, bool pairs = false) {
    Json vocabulary, list = Json::array();
    for (int b = 0; b < 256; ++b) vocabulary[name_of_bytes(std::string(1, char(b)))] = b;
    for (const auto& [a, b] : merges) {
        const std::string left = name_of_bytes(a), right = name_of_bytes(b);
        if (!vocabulary.contains(left + right)) vocabulary[left + right] = vocabulary.size();
        list.push_back(pairs ? Json{left, right} : Json(left + " " + right));
    }
    const TokenId end = TokenId(vocabulary.size());
    vocabulary["<|endoftext|>"] = end;
    return {{"version", "1.0"},
            {"truncation", nullptr},
            {"padding", nullptr},
            {"added_tokens", {added(end, "<|endoftext|>")}},
            {"normalizer", nullptr},
            {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}}},
            {"post_processor", {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", false}}},
            {"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}}},
            {"model",
             {{"type", "BPE"},
              {"dropout", nullptr},
              {"unk_token", nullptr},
              {"continuing_subword_prefix", ""},
              {"end_of_word_suffix", ""},
              {"fuse_unk", false},
              {"vocab", vocabulary},
              {"merges", list}}}};
}

// The same with a pattern of its own before ByteLevel, as Qwen 2 and Llama 3 have it.
inline Json split_json(const Merges& merges, const std::string& pattern) {
    Json json = gpt2_json(merges, true);
    const Json split = {
        {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
    const Json bytes = {
        {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
    json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, bytes}}};
    return json;
}

// <unk>, <s>, </s>, the bytes, then these characters and what the merges make of them: Llama 2 in small.
inline Json llama2_json(const Symbols& characters, const Merges& merges) {
    Json vocabulary = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}}, list = Json::array();
    for (int b = 0; b < 256; ++b) vocabulary[fmt::format("<0x{:02X}>", b)] = 3 + b;
    for (const std::string& character : characters)
        if (!vocabulary.contains(character)) vocabulary[character] = vocabulary.size();
    for (const auto& [a, b] : merges) {
        if (!vocabulary.contains(a + b)) vocabulary[a + b] = vocabulary.size();
        list.push_back({a, b});
    }
    const auto replace = [](const char* from, const char* to) {
        return Json{{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
    };
    return {{"version", "1.0"},
            {"added_tokens", {added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")}},
            {"normalizer",
             {{"type", "Sequence"}, {"normalizers", {{{"type", "Prepend"}, {"prepend", "▁"}}, replace(" ", "▁")}}}},
            {"pre_tokenizer", nullptr},
            {"decoder",
             {{"type", "Sequence"},
              {"decoders",
               {replace("▁", " "),
                {{"type", "ByteFallback"}},
                {{"type", "Fuse"}},
                {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
            {"model",
             {{"type", "BPE"},
              {"dropout", nullptr},
              {"unk_token", "<unk>"},
              {"fuse_unk", true},
              {"byte_fallback", true},
              {"vocab", vocabulary},
              {"merges", list}}}};
}

// The text as characters, each a text of its own.
inline Symbols characters_of(std::string_view text) {
    Symbols all;
    while (!text.empty()) {
        const std::size_t size = std::max<std::size_t>(1, first_character(text).bytes);
        all.emplace_back(text.substr(0, size));
        text.remove_prefix(size);
    }
    return all;
}
inline Symbols bytes_of(std::string_view text) {
    Symbols all;
    for (const char c : text) all.emplace_back(1, c);
    return all;
}

// Byte-pair encoding as one would explain it: look for the pair of the lowest rank everywhere, merge the leftmost,
// begin anew.
inline Symbols reference_bpe(Symbols symbols, const Merges& merges) {
    std::map<std::pair<std::string, std::string>, std::size_t> ranks;
    for (std::size_t i = 0; i < merges.size(); ++i) ranks[merges[i]] = i;
    for (;;) {
        std::size_t best = merges.size(), at = 0;
        for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
            const auto found = ranks.find({symbols[i], symbols[i + 1]});
            if (found != ranks.end() && found->second < best) best = found->second, at = i;
        }
        if (best == merges.size()) return symbols;
        symbols[at] += symbols[at + 1];
        symbols.erase(symbols.begin() + std::ptrdiff_t(at) + 1);
    }
}

// Merges learned from these words as one would explain it: count all pairs, merge the most frequent one (of several the
// first in order) everywhere, begin anew.
inline Merges reference_training(std::vector<Symbols> words, std::size_t count) {
    Merges merges;
    while (merges.size() < count) {
        std::map<std::pair<std::string, std::string>, int> pairs;
        for (const Symbols& word : words)
            for (std::size_t i = 0; i + 1 < word.size(); ++i) ++pairs[{word[i], word[i + 1]}];
        const auto best = std::max_element(pairs.begin(), pairs.end(),
                                           [](const auto& a, const auto& b) { return a.second < b.second; });
        if (best == pairs.end() || best->second < 2) break;
        const auto pair = best->first;
        merges.push_back(pair);
        for (Symbols& word : words)
            for (std::size_t i = 0; i + 1 < word.size(); ++i)
                if (word[i] == pair.first && word[i + 1] == pair.second) {
                    word[i] += word[i + 1];
                    word.erase(word.begin() + std::ptrdiff_t(i) + 1);
                }
    }
    return merges;
}

// Text of which tokenizers are afraid: letters of many scripts, blanks in rows, digits, signs, emoji, and with
// `broken` also bytes that are not UTF-8.
inline std::string odd_text(std::mt19937& random, std::size_t parts, bool broken = false) {
    static const Symbols kParts = {"the",    " the",
                                   " and",   "low",
                                   "er",     "er",
                                   "est",    " ",
                                   "  ",     "   ",
                                   "\n",     "\n\n",
                                   "\r\n",   "\t",
                                   "'s",     "'LL",
                                   "'",      "12",
                                   "3",      "2024",
                                   "é",      "e\u0301",
                                   "ß",      "日本",
                                   "語",     "العربية",
                                   "\u200d", "👩\u200d👩\u200d👧",
                                   "🇩🇪",     "\u00a0",
                                   "\u2003", "...",
                                   "!?",     "<|endoftext|>",
                                   "<|end",  "_",
                                   "\x01",   std::string("\0", 1),
                                   "a",      "b",
                                   "▁",      "\U000e0fff",
                                   "한",     "ﬁ",
                                   "Å",      ":",
                                   "    x"};
    static const Symbols kBroken = {"\xff", "\xc3", "\xe2\x82", "\x80", "\xed\xa0\x80", "\xf8"};
    std::string text;
    for (std::size_t i = 0; i < parts; ++i)
        text += broken && random() % 6 == 0 ? kBroken[random() % kBroken.size()] : kParts[random() % kParts.size()];
    return text;
}

}  // namespace invar::text
