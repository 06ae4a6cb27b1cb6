// What goes into a command that people will paste.
#pragma once

#include <string>
#include <string_view>

namespace invar {

// The word as it is where a shell would take it so, else in quotes.
std::string shell_word(std::string_view word);

}  // namespace invar
