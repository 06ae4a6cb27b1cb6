// Byte-pair encoding: a piece of text becomes symbols (bytes, or characters), and neighbours are merged in the order in
// which the merges were learned, until none is left that could be.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "invar/text/added_tokens.h"  // TokenId

namespace invar::text {

inline constexpr TokenId kNoToken = ~TokenId(0);

struct TextHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

// The words of a text mostly come again and again: what they became is kept, so long as there is room.
class WordCache {
  public:
    // Null where the word is not known.
    const std::vector<TokenId>* find(std::string_view word) const;
    void keep(std::string_view word, const TokenId* begin, const TokenId* end);

  private:
    std::unordered_map<std::string, std::vector<TokenId>, TextHash, std::equal_to<>> words_;
};

// Whole numbers to whole numbers, as a table without chains: the merges are asked for at every step of every word.
class NumberTable {
  public:
    void reserve(std::size_t entries);
    void set(std::uint64_t key, std::uint64_t value);  // no key is ~0
    const std::uint64_t* find(std::uint64_t key) const;

  private:
    struct Slot {
        std::uint64_t key = ~std::uint64_t(0), value = 0;
    };
    std::vector<Slot> slots_;
    std::size_t count_ = 0;
};

struct BpeOptions {
    bool byte_level = false;     // symbols are bytes; otherwise characters
    bool byte_fallback = false;  // a character without a token becomes its bytes, <0xE2> <0x82> <0xAC>
    bool fuse_unk = false;       // unknown characters in a row are one token
    bool ignore_merges = false;  // a piece that is a token is that token, whatever the merges make of it
    TokenId unk = kNoToken;
    std::string source;  // the file, for errors
};

class Bpe {
  public:
    explicit Bpe(BpeOptions options);

    // Tokens first, each once and in the alphabet of the options, then the merges.
    void add_token(std::string_view text, TokenId id);
    void prepare_merges(std::size_t merges);
    void add_merge(std::string_view left, std::string_view right);

    // Appends what the piece becomes.
    void encode(std::string_view piece, WordCache& cache, std::vector<TokenId>& out) const;
    // Whether no merge can ever reach over this place, so that both sides may be encoded by themselves.
    bool separable(std::string_view text, std::size_t at) const;

    TokenId find(std::string_view text) const;  // kNoToken where there is none
    const BpeOptions& options() const { return options_; }

  private:
    struct Edges {
        char32_t first = 0, last = 0;  // of a token's text: characters, or bytes
    };
    Edges edges_of(std::string_view text) const;
    // Appends the symbols of the character or byte at the front, and returns how long that is.
    std::size_t append_symbols(std::string_view text, std::vector<TokenId>& symbols) const;
    void encode_word(std::string_view word, WordCache& cache, std::vector<TokenId>& out) const;
    void merge(std::vector<TokenId>& symbols) const;
    bool joinable(TokenId left, TokenId right) const;

    BpeOptions options_;
    std::unordered_map<std::string, TokenId, TextHash, std::equal_to<>> ids_;
    std::vector<Edges> edges_;                          // by id
    std::array<TokenId, 256> bytes_;                    // the symbol of each byte, where it has one
    std::unordered_map<char32_t, TokenId> characters_;  // the symbol of each character
    NumberTable merges_;                                // of a pair: rank and token
    NumberTable seams_;                                 // last and first of what some merge joins
    std::size_t merge_count_ = 0;
};

// "<0x0A>", the token of a byte; -1 for all others.
int byte_of_token(std::string_view name);

}  // namespace invar::text
