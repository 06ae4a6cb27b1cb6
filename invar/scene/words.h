// What stands on signs: words that exist and words that only sound like it, prices, hours, phone numbers. So that a
// detector learns what writing looks like, not what is written.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "invar/image/augment.h"

namespace invar::scene {

enum class LetterCase { lower, upper, title };
LetterCase draw_case(RandomDraws& draws);

// Printable ASCII without a space, 1 to `most_letters` letters.
std::string draw_word(RandomDraws& draws, LetterCase letters, std::int64_t most_letters = 10);

// A few lines, of words in one case; `most_words` in all.
std::vector<std::vector<std::string>> draw_lines(RandomDraws& draws, std::int64_t most_lines, std::int64_t most_words);

}  // namespace invar::scene
