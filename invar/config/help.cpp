#include "invar/config/help.h"

#include <fmt/ranges.h>

#include <set>

#include "invar/config/table.h"

namespace invar {

namespace {

constexpr const char* kHead =
    "| key | type | default | what it does | allowed | also written |\n|---|---|---|---|---|---|\n";

std::string row_of(const KeyInfo& key) {
    std::string aliases;
    for (const std::string& alias : key.aliases) aliases += fmt::format("{}`{}`", aliases.empty() ? "" : " ", alias);
    return fmt::format("| `{}` | {} | `{}` | {} | {} | {} |\n", key.key, key.type, key.default_value, key.help,
                       key.allowed, aliases);
}

std::string section_of(const KeyInfo& key) {
    const std::size_t dot = key.key.find('.');
    return dot == key.key.npos ? "" : key.key.substr(0, dot);
}

// The section's own keys, then those of each of its parts.
std::string section_markdown(const std::string& section, const std::vector<KeyInfo>& keys) {
    std::string text = fmt::format("### {}\n\n{}", section.empty() ? "The run" : section, kHead);
    for (const KeyInfo& key : keys)
        if (section_of(key) == section && key.part.empty()) text += row_of(key);
    for (const PartInfo* part : parts_of(section)) {
        text += fmt::format("\n**`{}={}`** {}\n", section, part->name, part->about);
        if (!part->keys.empty()) text += fmt::format("\n{}", kHead);
        for (const KeyInfo& key : keys)
            if (section_of(key) == section && key.part == part->name) text += row_of(key);
    }
    return text;
}

}  // namespace

std::string parts_help() {
    const std::vector<KeyInfo> keys = config_keys();
    std::string text = "Chosen by name, as in model=mlp, each with keys of its own:\n";
    for (const std::string& section : config_sections()) {
        for (const PartInfo* part : parts_of(section)) {
            text += fmt::format("  {:<30}  {}\n", section + "=" + part->name, part->about);
            std::vector<std::string> words;
            for (const KeyInfo& key : keys)
                if (section_of(key) == section && key.part == part->name)
                    words.push_back(key.key + "=" + key.default_value);
            if (!words.empty()) text += fmt::format("  {:<30}  {}\n", "", fmt::join(words, " "));
        }
    }
    return text;
}

std::string keys_markdown() {
    const std::vector<KeyInfo> keys = config_keys();
    std::string text = section_markdown("", keys);
    for (const std::string& section : config_sections()) text += fmt::format("\n{}", section_markdown(section, keys));
    return text;
}

}  // namespace invar
