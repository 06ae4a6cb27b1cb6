// A byte-level BPE learned from text: words are cut by GPT-2's pattern, and the pair of neighbours that is most
// frequent becomes a token, again and again. Of equally frequent ones the pair of the lower tokens comes first, so that
// the same text always gives the same tokenizer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "invar/text/bpe.h"  // TextHash
#include "invar/text/file_parts.h"

namespace invar::text {

using WordCounts = std::unordered_map<std::string, std::uint64_t, TextHash, std::equal_to<>>;

// How often each word comes. False from the second where progress has stopped it.
void count_words(std::string_view text, WordCounts& counts);
bool count_words(const std::vector<std::filesystem::path>& files, const FilePartsOptions& options, WordCounts& counts);

// Tokens 0 to 255 are the bytes, the next ones those learned, and <|endoftext|> is last.
struct LearnedBpe {
    std::vector<std::string> tokens;                  // the bytes of 256, 257, ...
    std::vector<std::pair<TokenId, TokenId>> merges;  // what each was made of
    std::size_t vocabulary_size() const { return 256 + tokens.size() + 1; }
};

inline constexpr std::size_t kSmallestVocabulary = 257;

// Fewer than `vocabulary_size` tokens where no pair comes twice any more. `progress` gets the number of tokens so
// far, and stops the training where it returns false.
LearnedBpe train_bpe(const WordCounts& counts, std::size_t vocabulary_size,
                     const std::function<bool(std::size_t)>& progress = {});
LearnedBpe train_bpe(std::span<const std::string> texts, std::size_t vocabulary_size);

// As Hugging Face's library writes and reads it.
std::string tokenizer_json(const LearnedBpe& learned);
void save_tokenizer_json(const std::filesystem::path& path, const LearnedBpe& learned);

}  // namespace invar::text
