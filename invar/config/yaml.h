// YAML as the configuration needs it: a bounded tree with line numbers, read without aliases, tags or surprises.
// yaml-cpp stays behind this door.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace invar {

struct YamlNode {
    enum class Kind { null, scalar, list, map };
    Kind kind = Kind::null;
    std::string text;               // of a scalar
    std::vector<std::string> keys;  // of a map: what each item is called, in the order of the file
    std::vector<YamlNode> items;    // of a list or a map
    int line = 1;
};

inline constexpr std::size_t kMaxConfigBytes = 256 * 1024;
inline constexpr int kMaxConfigDepth = 12;

// One document. Anything else (broken, binary, too deep, too large, duplicate keys, aliases) throws a UsageError that
// starts with origin:line.
YamlNode parse_yaml(std::string_view text, const std::string& origin);

// A YAML scalar that reads back as exactly this text.
std::string quote_yaml(const std::string& text);

// The byte where `text` stops being UTF-8 without control characters (tab and line ends aside); npos when it is good.
std::size_t find_non_text(std::string_view text);

}  // namespace invar
