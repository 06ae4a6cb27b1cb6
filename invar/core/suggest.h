// The nearest known word to one that is not known: what error messages put after "did you mean".
// Differences in case, and swapped neighbours, count as small slips.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace invar {

// The known word that takes the fewest edits to reach from `word`; "" when nothing is near enough to be meant.
std::string nearest(std::string_view word, std::span<const std::string> known);

// " (did you mean 'X'?)", or "" when nothing is near: to be put straight into a message.
std::string did_you_mean(std::string_view word, std::span<const std::string> known);

}  // namespace invar
