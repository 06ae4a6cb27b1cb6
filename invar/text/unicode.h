// What tokenizers need of Unicode: where bytes are UTF-8 and where they are not, normal forms, kinds of characters.
// Text comes from anywhere, so nothing here takes for granted that it is UTF-8.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace invar::text {

// How many bytes from the front are UTF-8.
std::size_t valid_utf8_prefix(std::string_view text);
// How many bytes from the front are not: up to the next that begins a character.
std::size_t invalid_utf8_prefix(std::string_view text);

// U+FFFD for each character that was begun and not finished, and for each byte that begins none, as Python and Rust
// decode "with replacement".
std::string replace_invalid_utf8(std::string_view text);

enum class NormalForm { nfc, nfd, nfkc, nfkd };
// Bytes that are not UTF-8 stay as they are.
std::string normalized(std::string_view text, NormalForm form);

void append_utf8(std::string& text, char32_t code);

// The property White_Space: what \s means in the patterns of tokenizers.
bool is_space(char32_t code);
// Letters, marks, digits and connectors: what \w means there.
bool is_word(char32_t code);

// Where the whitespace ends that `text` begins with, and where that begins that it ends with.
std::size_t leading_space(std::string_view text);
std::size_t trailing_space_begin(std::string_view text);
// Whether the text begins or ends with a character of a word.
bool begins_with_word(std::string_view text);
bool ends_with_word(std::string_view text);

}  // namespace invar::text
