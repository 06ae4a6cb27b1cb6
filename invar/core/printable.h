// Text from outside (names in files, paths, values of a configuration) as it may stand on a terminal or in a report:
// what would move the cursor, reorder the line or is no text at all is shown by its number instead of taking effect.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace invar {

// For one line: newlines and tabs are escaped too. What is escaped reads as in JSON (\u202e), but for bytes that are
// not UTF-8 (\xff). What is printable already comes back as it is, so that doing it twice does no harm.
std::string printable(std::string_view text);
// For text of several lines: newlines and tabs stay.
std::string printable_lines(std::string_view text);

// The character at the front of a text that is not empty; of 0 bytes where it is not UTF-8.
struct Character {
    char32_t code = 0;
    std::size_t bytes = 0;
};
Character first_character(std::string_view text);

// Whether it steers rather than shows: control characters, separators of lines, and marks that reorder what follows.
bool is_control(char32_t code);

}  // namespace invar
