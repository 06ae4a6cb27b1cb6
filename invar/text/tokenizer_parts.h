// What a tokenizer is made of, once its file has been read and found sound.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "invar/text/added_tokens.h"
#include "invar/text/bpe.h"
#include "invar/text/steps.h"

namespace invar::text {

// The texts of all tokens, in one piece: ids may have gaps, which then cost four bytes.
class TokenTexts {
  public:
    TokenTexts() = default;
    // In the order of their ids.
    explicit TokenTexts(const std::vector<std::pair<TokenId, std::string>>& texts);
    std::size_t size() const { return begins_.empty() ? 0 : begins_.size() - 1; }
    std::string_view operator[](TokenId id) const {
        return std::string_view(all_).substr(begins_[id], begins_[id + 1] - begins_[id]);
    }

  private:
    std::string all_;
    std::vector<std::uint32_t> begins_;
};

struct TokenizerParts {
    explicit TokenizerParts(BpeOptions options) : bpe(std::move(options)) {}

    std::string name;
    std::vector<RewriteStep> normalizer;
    PreTokenizer pre_tokenizer;
    Bpe bpe;
    std::vector<AddedToken> added;
    AddedTokens in_text, in_normalized_text;  // the same, to be found
    std::vector<bool> special;                // by id
    TokenTexts texts;                         // what each token stands for
    // Taken off the ends of decoded text: so many of this character.
    std::string strip;
    std::size_t strip_front = 0, strip_back = 0;
};

// The bytes that GPT-2's alphabet writes as this name: every byte as a printable character. Nothing where it holds
// another character.
std::optional<std::string> bytes_of_name(std::string_view name);
std::string name_of_bytes(std::string_view bytes);

// More tokens or higher ids are refused: the largest vocabularies have a quarter of a million.
inline constexpr std::size_t kMostTokens = std::size_t(1) << 22;

}  // namespace invar::text
