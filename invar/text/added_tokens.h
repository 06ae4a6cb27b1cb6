// Tokens that are found in a text before anything else happens to it, such as <|endoftext|>: at each place the longest.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace invar::text {

using TokenId = std::uint32_t;

struct AddedToken {
    TokenId id = 0;
    std::string content;
    bool special = false;                 // may be left out of decoded text
    bool normalized = false;              // is looked for in the normalized text
    bool single_word = false;             // not as a part of a word
    bool lstrip = false, rstrip = false;  // takes the whitespace on that side with it
};

class AddedTokens {
  public:
    AddedTokens() = default;
    // `contents` are what to look for, one for each token.
    AddedTokens(std::vector<AddedToken> tokens, std::vector<std::string> contents);

    // Calls part(begin, end, id) for each token that is found and, without an id, for the text between them, from left
    // to right until that returns false.
    using Part = std::function<bool(std::size_t, std::size_t, std::optional<TokenId>)>;
    bool split(std::string_view text, const Part& part) const;

    // So many bytes behind a place decide whether one of them begins there.
    std::size_t reach() const { return reach_; }
    // Whether one of them depends on the character before it.
    bool looks_back() const { return looks_back_; }

  private:
    struct Entry {
        std::string content;
        AddedToken token;
    };
    const Entry* longest_at(std::string_view text) const;

    std::vector<Entry> entries_;  // sorted by content
    std::array<bool, 256> begins_{};
    std::size_t reach_ = 0;
    bool looks_back_ = false;
};

}  // namespace invar::text
