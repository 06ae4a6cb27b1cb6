#include "invar/core/printable.h"

#include <fmt/format.h>

namespace invar {

namespace {

std::string escape(char32_t code) {
    return code == '\n'   ? "\\n"
           : code == '\t' ? "\\t"
           : code == '\r' ? "\\r"
                          : fmt::format("\\u{:04x}", static_cast<unsigned>(code));
}

std::string escaped(std::string_view text, std::string_view kept) {
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
        const Character c = first_character(text);
        if (c.bytes == 0)
            out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
        else if (is_control(c.code) && kept.find(text[0]) == kept.npos)
            out += escape(c.code);
        else
            out.append(text.substr(0, c.bytes));
        text.remove_prefix(c.bytes == 0 ? 1 : c.bytes);
    }
    return out;
}

}  // namespace

Character first_character(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned char first = byte(0);
    if (first < 0x80) return {first, 1};
    const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || text.size() < length) return {};
    char32_t code = first & (0x7fu >> length);
    for (std::size_t i = 1; i < length; ++i) {
        if ((byte(i) & 0xc0) != 0x80) return {};
        code = code << 6 | (byte(i) & 0x3fu);
    }
    const bool overlong = code < (length == 4 ? 0x10000u : length == 3 ? 0x800u : 0x80u);
    const bool surrogate = code >= 0xd800 && code < 0xe000;
    return overlong || surrogate || code > 0x10ffff ? Character{} : Character{code, length};
}

bool is_control(char32_t code) {
    const auto within = [&](char32_t first, char32_t last) { return code >= first && code <= last; };
    return code < 0x20 || within(0x7f, 0x9f) || code == 0x61c || within(0x200e, 0x200f) || within(0x2028, 0x202e) ||
           within(0x2066, 0x2069) || code == 0xfeff;
}

std::string printable(std::string_view text) {
    return escaped(text, "");
}
std::string printable_lines(std::string_view text) {
    return escaped(text, "\n\t");
}

}  // namespace invar
