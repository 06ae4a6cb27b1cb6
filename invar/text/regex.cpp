#include "invar/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <new>
#include <string>

#include "invar/core/error.h"
#include "invar/io/safetensors_header.h"  // Quoted
#include "invar/text/unicode.h"

namespace invar::text {

namespace {

constexpr std::size_t kLongestPattern = 1 << 16;
constexpr std::uint32_t kMostHeap = 1 << 18;  // KiB that a match may take for its way back

// \s and \w as Oniguruma has them: PCRE2 counts U+180E as a space, and which marks belong to words depends on its age.
constexpr std::string_view kSpaces =
    R"(\x{09}-\x{0d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kWords = R"(\p{L}\p{M}\p{Nd}\p{Pc})";

struct Translation {
    std::string pattern;
    bool looks_back = false;
};

// The pattern in PCRE2's words.
Translation translate(std::string_view pattern, std::string_view source) {
    Translation result;
    std::string& out = result.pattern;
    int depth = 0;  // of brackets
    const auto refuse = [&](std::string_view what) {
        fail<IoError>("{}: the pattern {} uses {}, which is not supported", source, Quoted{pattern}, what);
    };
    for (std::size_t i = 0; i < pattern.size(); ++i) {
        const char c = pattern[i];
        if (c == '\\' && i + 1 < pattern.size()) {
            const char kind = pattern[++i];
            const std::string_view set = kind == 's' || kind == 'S' ? kSpaces : kWords;
            if (kind == 's' || kind == 'w') {
                out.append(depth > 0 ? "" : "[").append(set).append(depth > 0 ? "" : "]");
            } else if (kind == 'S' || kind == 'W') {
                if (depth > 0) refuse(kind == 'S' ? "\\S inside brackets" : "\\W inside brackets");
                out.append("[^").append(set).append("]");
            } else if (std::string_view("hHbBGKRX").find(kind) != std::string_view::npos) {
                refuse(std::string("\\") + kind);
            } else {
                result.looks_back = result.looks_back || kind == 'A';
                out.append({c, kind});
            }
            continue;
        }
        if (c == '[') {
            if (depth > 0 && pattern.substr(i, 2) != "[:") refuse("brackets inside brackets");
            if (depth == 0) {
                ++depth;
                out.push_back(c);
                if (pattern.substr(i + 1, 1) == "^") out.push_back(pattern[++i]);
                if (pattern.substr(i + 1, 1) == "]") out.append("\\]"), ++i;  // a bracket that stands for itself
                continue;
            }
            const std::size_t end = pattern.find(":]", i + 2);
            if (end == pattern.npos) refuse("brackets inside brackets");
            out.append(pattern.substr(i, end + 2 - i));
            i = end + 1;
            continue;
        }
        if (depth > 0 && c == '&' && pattern.substr(i, 2) == "&&") refuse("&& inside brackets");
        if (depth > 0 && c == ']') --depth;
        if (depth == 0 && c == '^') result.looks_back = true;
        // Verbs such as (*ACCEPT) are PCRE2's own.
        if (depth == 0 && c == '(' && pattern.substr(i, 2) == "(*") refuse("(*");
        out.push_back(c);
    }
    return result;
}

}  // namespace

struct Regex::Code {
    pcre2_code* code = nullptr;
    pcre2_match_context* limits = nullptr;
    std::string source, pattern;

    Code() = default;
    Code(const Code&) = delete;
    Code& operator=(const Code&) = delete;
    ~Code() {
        pcre2_match_context_free(limits);
        pcre2_code_free(code);
    }
};

Regex::Regex(std::string_view pattern, std::string_view source) {
    check<IoError>(pattern.size() <= kLongestPattern, "{}: a pattern has {} bytes, more than the {} that are allowed",
                   source, pattern.size(), kLongestPattern);
    const Translation translation = translate(pattern, source);
    looks_back_ = translation.looks_back;
    compile(translation.pattern, pattern, false, source);
}

Regex Regex::literal(std::string_view text, std::string_view source) {
    check<IoError>(text.size() <= kLongestPattern, "{}: a pattern has {} bytes, more than the {} that are allowed",
                   source, text.size(), kLongestPattern);
    Regex regex;
    regex.compile(text, text, true, source);
    return regex;
}

void Regex::compile(std::string_view pattern, std::string_view original, bool literal, std::string_view source) {
    check<IoError>(valid_utf8_prefix(pattern) == pattern.size(), "{}: a pattern is not UTF-8", source);
    auto code = std::make_shared<Code>();
    code->source = source;
    code->pattern = original;
    // In Oniguruma ^ and $ mean lines, as they do here with PCRE2_MULTILINE.
    const std::uint32_t options =
        literal ? PCRE2_UTF | PCRE2_LITERAL : PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
    int error = 0;
    PCRE2_SIZE offset = 0;
    code->code =
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), options, &error, &offset, nullptr);
    if (code->code == nullptr) {
        PCRE2_UCHAR text[160];
        pcre2_get_error_message(error, text, sizeof text);
        fail<IoError>("{}: the pattern {} is no regular expression: {}", source, Quoted{original},
                      reinterpret_cast<const char*>(text));
    }
    (void)pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);  // without it, it is slower
    code->limits = pcre2_match_context_create(nullptr);
    if (code->limits == nullptr) throw std::bad_alloc();
    pcre2_set_heap_limit(code->limits, kMostHeap);
    std::uint32_t lookbehind = 0;
    pcre2_pattern_info(code->code, PCRE2_INFO_MAXLOOKBEHIND, &lookbehind);
    looks_back_ = looks_back_ || lookbehind > 0;
    code_ = std::move(code);
}

bool Regex::each_match(std::string_view text, bool open, const Found& found) const {
    const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(pcre2_match_data_create(1, nullptr),
                                                                                    pcre2_match_data_free);
    if (!match) throw std::bad_alloc();
    for (std::size_t base = 0; base < text.size();) {
        const std::string_view run = text.substr(base, valid_utf8_prefix(text.substr(base)));
        const bool run_open = open && base + run.size() == text.size();
        const auto* subject = reinterpret_cast<PCRE2_SPTR>(run.data());
        std::size_t at = 0;
        for (std::size_t last_end = std::string_view::npos; at <= run.size();) {
            std::uint32_t options = PCRE2_NO_UTF_CHECK | (run_open ? PCRE2_PARTIAL_HARD : 0);
            int rc = pcre2_match(code_->code, subject, run.size(), at, options, match.get(), code_->limits);
            if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
                rc = pcre2_match(code_->code, subject, run.size(), at, options | PCRE2_NO_JIT, match.get(),
                                 code_->limits);
            if (rc == PCRE2_ERROR_NOMATCH) break;
            if (rc == PCRE2_ERROR_PARTIAL) return false;
            if (rc == PCRE2_ERROR_NOMEMORY) throw std::bad_alloc();
            check<IoError>(rc >= 0, "{}: the pattern {} takes too long on this text; it tries too many ways to match",
                           code_->source, Quoted{code_->pattern});
            const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(match.get());
            const std::size_t begin = ends[0], end = ends[1];
            if (begin == end && end == last_end) {  // an empty match right behind another one is none
                do ++at;
                while (at < run.size() && (static_cast<unsigned char>(run[at]) & 0xc0) == 0x80);
                continue;
            }
            if (!found(base + begin, base + end)) return true;
            at = last_end = end;
        }
        base += run.size();
        base += invalid_utf8_prefix(text.substr(base));
    }
    return !open;
}

}  // namespace invar::text
