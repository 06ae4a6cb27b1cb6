#include "invar/validate/command_line.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "invar/core/shell.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

// Configurations know plug-ins by their whole paths, which nobody would type for a file nearby.
std::string from_here(const std::string& file) {
    std::error_code error;
    const fs::path near = fs::relative(file, error);
    return error || near.empty() || *near.begin() == ".." ? file : near.string();
}

bool is_named_in(const std::vector<std::string>& words, const std::string& plugin) {
    const std::string name = fs::path(plugin).filename().string();
    return std::ranges::any_of(
        words, [&](const std::string& word) { return word.starts_with("plugins=") && word.find(name) != word.npos; });
}

}  // namespace

std::vector<std::string> plugin_words(const std::vector<std::string>& plugins) {
    std::vector<std::string> words;
    for (const std::string& file : plugins) words.insert(words.end(), {"--plugin", from_here(file)});
    return words;
}

std::string command_line(const std::string& verb, const std::string& config, const std::vector<std::string>& words,
                         const std::vector<std::string>& plugins) {
    std::vector<std::string> needed = plugins;
    std::erase_if(needed, [&](const std::string& plugin) { return is_named_in(words, plugin); });
    std::vector<std::string> all = {program_name()};
    for (const std::string& word : plugin_words(needed)) all.push_back(shell_word(word));
    all.push_back(verb);
    if (!config.empty()) all.push_back(shell_word(config));
    for (const std::string& word : words) all.push_back(shell_word(word));
    return fmt::format("{}", fmt::join(all, " "));
}

}  // namespace invar
