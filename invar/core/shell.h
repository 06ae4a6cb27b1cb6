// What goes into a command that people will paste.
#pragma once

#include <string>
#include <string_view>

namespace invar {

// What this program is called in commands that messages tell people to type: "invar", unless a program of another name
// calls invar::program().
const std::string& program_name();
void set_program_name(std::string name);

// The word as it is where a shell would take it so, else in quotes.
std::string shell_word(std::string_view word);

}  // namespace invar
