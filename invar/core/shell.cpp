#include "invar/core/shell.h"

#include <utility>

namespace invar {

namespace {

std::string& name_of_program() {
    static std::string name = "invar";
    return name;
}

}  // namespace

const std::string& program_name() {
    return name_of_program();
}

void set_program_name(std::string name) {
    name_of_program() = std::move(name);
}

std::string shell_word(std::string_view word) {
    constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%";
    if (!word.empty() && word.find_first_not_of(kPlain) == word.npos) return std::string(word);
    std::string quoted = "'";
    for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
    return quoted + "'";
}

}  // namespace invar
