#include "invar/text/unicode.h"

#include <utf8proc.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "invar/core/error.h"
#include "invar/core/printable.h"

namespace invar::text {

namespace {

bool is_continuation(char c) {
    return (static_cast<unsigned char>(c) & 0xc0) == 0x80;
}

std::size_t ascii_prefix(std::string_view text) {
    std::size_t i = 0;
    for (std::uint64_t eight; i + 8 <= text.size(); i += 8) {
        std::memcpy(&eight, text.data() + i, 8);
        if ((eight & 0x8080808080808080u) != 0) break;
    }
    while (i < text.size() && static_cast<unsigned char>(text[i]) < 0x80) ++i;
    return i;
}

// The last character; of 0 bytes where the text does not end with one.
Character last_character(std::string_view text) {
    std::size_t begin = text.size();
    while (begin > 0 && text.size() - begin < 4 && is_continuation(text[begin - 1])) --begin;
    if (begin == 0) return {};
    const Character c = first_character(text.substr(begin - 1));
    return c.bytes == text.size() - begin + 1 ? c : Character{};
}

// Characters below U+0300 are in normal form C: they neither decompose for good nor combine with each other.
bool surely_nfc(std::string_view text) {
    for (const char c : text)
        if (static_cast<unsigned char>(c) >= 0xcc) return false;
    return true;
}

void append_normalized(std::string& out, std::string_view text, NormalForm form) {
    if (ascii_prefix(text) == text.size() || (form == NormalForm::nfc && surely_nfc(text))) {
        out.append(text);
        return;
    }
    int options = UTF8PROC_STABLE;
    options |= form == NormalForm::nfc || form == NormalForm::nfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
    if (form == NormalForm::nfkc || form == NormalForm::nfkd) options |= UTF8PROC_COMPAT;
    utf8proc_uint8_t* made = nullptr;
    const utf8proc_ssize_t size =
        utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                     &made, static_cast<utf8proc_option_t>(options));
    const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(made, std::free);
    if (size == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
    check(size >= 0, "cannot normalize a text: {}", utf8proc_errmsg(size));
    out.append(reinterpret_cast<const char*>(made), static_cast<std::size_t>(size));
}

}  // namespace

std::size_t valid_utf8_prefix(std::string_view text) {
    for (std::size_t at = 0;;) {
        at += ascii_prefix(text.substr(at));
        if (at == text.size()) return at;
        const Character c = first_character(text.substr(at));
        if (c.bytes == 0) return at;
        at += c.bytes;
    }
}

std::size_t invalid_utf8_prefix(std::string_view text) {
    std::size_t at = 0;
    while (at < text.size() && first_character(text.substr(at)).bytes == 0) ++at;
    return at;
}

std::string replace_invalid_utf8(std::string_view text) {
    std::string out;
    for (;;) {
        const std::size_t valid = valid_utf8_prefix(text);
        out.append(text.substr(0, valid));
        text.remove_prefix(valid);
        if (text.empty()) return out;
        // A character that was begun rightly takes with it all that could have belonged to it: finishing what is there
        // by the lowest or the highest continuation makes a character.
        std::size_t taken = 1;
        for (std::size_t length = 2; length <= 4; ++length)
            for (std::size_t have = 1; have < length && have <= text.size(); ++have)
                for (const char filler : {'\x80', '\xbf'}) {
                    std::string tried(text.substr(0, have));
                    tried.append(length - have, filler);
                    if (first_character(tried).bytes == length && have > taken) taken = have;
                }
        append_utf8(out, 0xfffd);
        text.remove_prefix(taken);
    }
}

std::string normalized(std::string_view text, NormalForm form) {
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
        const std::size_t valid = valid_utf8_prefix(text);
        append_normalized(out, text.substr(0, valid), form);
        text.remove_prefix(valid);
        const std::size_t invalid = invalid_utf8_prefix(text);
        out.append(text.substr(0, invalid));
        text.remove_prefix(invalid);
    }
    return out;
}

void append_utf8(std::string& text, char32_t code) {
    utf8proc_uint8_t bytes[4];
    const utf8proc_ssize_t size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code), bytes);
    text.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size));
}

bool is_space(char32_t code) {
    return (code >= 9 && code <= 13) || code == 0x20 || code == 0x85 || code == 0xa0 || code == 0x1680 ||
           (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f ||
           code == 0x3000;
}

bool is_word(char32_t code) {
    switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
        case UTF8PROC_CATEGORY_LU:
        case UTF8PROC_CATEGORY_LL:
        case UTF8PROC_CATEGORY_LT:
        case UTF8PROC_CATEGORY_LM:
        case UTF8PROC_CATEGORY_LO:
        case UTF8PROC_CATEGORY_MN:
        case UTF8PROC_CATEGORY_MC:
        case UTF8PROC_CATEGORY_ME:
        case UTF8PROC_CATEGORY_ND:
        case UTF8PROC_CATEGORY_NL:
        case UTF8PROC_CATEGORY_PC:
            return true;
        default:
            return code == 0x200c || code == 0x200d;  // joiners, which stand inside words
    }
}

std::size_t leading_space(std::string_view text) {
    std::size_t at = 0;
    while (at < text.size()) {
        const Character c = first_character(text.substr(at));
        if (c.bytes == 0 || !is_space(c.code)) break;
        at += c.bytes;
    }
    return at;
}

std::size_t trailing_space_begin(std::string_view text) {
    while (!text.empty()) {
        const Character c = last_character(text);
        if (c.bytes == 0 || !is_space(c.code)) break;
        text.remove_suffix(c.bytes);
    }
    return text.size();
}

bool begins_with_word(std::string_view text) {
    if (text.empty()) return false;
    const Character c = first_character(text);
    return c.bytes > 0 && is_word(c.code);
}

bool ends_with_word(std::string_view text) {
    if (text.empty()) return false;
    const Character c = last_character(text);
    return c.bytes > 0 && is_word(c.code);
}

}  // namespace invar::text
