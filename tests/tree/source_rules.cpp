#include "tests/tree/source_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <regex>
#include <sstream>

namespace invar::tree {

namespace {

std::vector<std::string> words_of(const std::string& text) {
    std::istringstream in(text);
    return {std::istream_iterator<std::string>(in), {}};
}

}  // namespace

const std::vector<std::string> kFolders = words_of(INVAR_FOLDERS);

namespace {

constexpr int kMaxLines = 500;

std::vector<std::string> lines_of(std::string_view text) {
    std::vector<std::string> lines;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        lines.emplace_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return lines;
}

// "invar/kernels/cpu/x.h" -> "kernels"; "invar/invar.h" -> "", the umbrella that stands above all folders.
std::string folder_of(std::string_view path) {
    path.remove_prefix(std::string_view("invar/").size());
    const std::size_t slash = path.find('/');
    return slash == std::string_view::npos ? "" : std::string(path.substr(0, slash));
}

int rank_of(const std::string& folder) {
    const auto found = std::find(kFolders.begin(), kFolders.end(), folder);
    return found == kFolders.end() ? -1 : int(found - kFolders.begin());
}

bool is_header(std::string_view path) {
    return path.ends_with(".h") || path.ends_with(".cuh");
}

bool is_word(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

}  // namespace

std::string Finding::str() const {
    return fmt::format("{}:{}: {}", file, line, what);
}

Findings check_include_order(std::string_view path, std::string_view text) {
    Findings findings;
    if (!path.starts_with("invar/")) return findings;
    const std::string folder = folder_of(path);
    if (folder.empty()) return findings;
    const int rank = rank_of(folder);
    const auto report = [&](int line, std::string what) { findings.push_back({std::string(path), line, what}); };
    if (rank < 0) report(1, fmt::format("folder '{}' has no place in the order of invar/", folder));

    static const std::regex kInclude(R"(^\s*#\s*include\s*["<]([^">]+)[">])");
    const std::vector<std::string> lines = lines_of(text);
    for (std::size_t i = 0; i < lines.size(); ++i) {
        std::smatch match;
        if (!std::regex_search(lines[i], match, kInclude)) continue;
        const std::string included = match[1];
        const int line = int(i) + 1;
        if (included.find("../") != std::string::npos)
            report(line, fmt::format("includes {} by a relative path", included));
        if (!included.starts_with("invar/")) continue;
        const std::string other = folder_of(included);
        const bool own_door = folder == "cli" && included == "invar/program.h";
        if (other.empty() && !own_door)
            report(line, fmt::format("includes {}, the umbrella for users of the library", included));
        else if (!own_door && rank_of(other) < 0)
            report(line, fmt::format("includes {} from a folder that has no place in the order", included));
        else if (rank >= 0 && rank_of(other) > rank)
            report(line, fmt::format("{}/ includes {}, but {}/ comes after {}/", folder, included, other, folder));
    }
    return findings;
}

Findings check_header(std::string_view path, std::string_view text) {
    Findings findings;
    if (!is_header(path)) return findings;
    const std::vector<std::string> lines = lines_of(text);
    if (lines.empty() || !lines[0].starts_with("// "))
        findings.push_back({std::string(path), 1, "a header opens with a comment that says what it is for"});
    if (std::find(lines.begin(), lines.end(), "#pragma once") == lines.end())
        findings.push_back({std::string(path), 1, "#pragma once is missing"});
    return findings;
}

Findings check_length(std::string_view path, std::string_view text) {
    const int count = int(lines_of(text).size());
    if (count <= kMaxLines) return {};
    return {{std::string(path), count, fmt::format("{} lines; {} is the most, so split it", count, kMaxLines)}};
}

Findings check_silence(std::string_view path, std::string_view text) {
    if (!path.starts_with("invar/") || folder_of(path) == "cli") return {};
    // A call, not a member of the same name (x.exit(), x->abort()), not snprintf or atexit, which do no harm.
    static const std::regex kCall(
        R"((^|[^\w.>])((std|fmt)::)?(printf|fprintf|vprintf|puts|putchar|perror|print|println|)"
        R"(exit|_exit|_Exit|quick_exit|abort|terminate)\s*\()");
    static const std::regex kStream(R"(\bstd::(cout|cerr|clog)\b)");
    Findings findings;
    const std::vector<std::string> lines = lines_of(without_comments_and_strings(text));
    for (std::size_t i = 0; i < lines.size(); ++i) {
        std::smatch match;
        std::string found;
        if (std::regex_search(lines[i], match, kStream)) found = match[0];
        // print() alone may be anyone's; only std::print and fmt::print are known to write to the terminal.
        if (std::regex_search(lines[i], match, kCall) &&
            (match[3].matched || !match[4].str().starts_with("print") || match[4] == "printf"))
            found = match[2].str() + match[4].str();
        if (!found.empty())
            findings.push_back({std::string(path), int(i) + 1,
                                fmt::format("uses {}; the library never prints, exits or aborts", found)});
    }
    return findings;
}

std::vector<DefinedType> types_defined_in(std::string_view text) {
    static const std::regex kNamespace(R"(^\s*(inline )?namespace\s*([\w:]*)\s*\{)");
    static const std::regex kType(
        R"(^\s*(template\s*<.*>\s*)?(struct|class|union|enum class|enum)\s+(\w+)( final)?\s*(:[^:;{]([^;]*))?(\{|$))");
    std::vector<DefinedType> types;
    std::vector<std::string> open;  // the braces that are open: a namespace's name, "" for an anonymous one, or "{"
    const std::vector<std::string> lines = lines_of(without_comments_and_strings(text));
    for (std::size_t i = 0; i < lines.size(); ++i) {
        std::string_view line = lines[i];
        std::smatch match;
        if (std::regex_search(lines[i], match, kNamespace)) {
            open.push_back(match[2]);
            line.remove_prefix(std::size_t(match.length()));
        } else if (std::regex_search(lines[i], match, kType) &&
                   std::ranges::none_of(open, [](const std::string& o) { return o.empty() || o == "{"; })) {
            std::string name;
            for (const std::string& space : open) name += space + "::";
            types.push_back({name + match[3].str(), int(i) + 1});
        }
        for (const char c : line) {
            if (c == '{') open.emplace_back("{");
            if (c == '}' && !open.empty()) open.pop_back();
        }
    }
    return types;
}

std::string without_comments_and_strings(std::string_view text) {
    std::string result(text);
    const auto blank = [&](std::size_t from, std::size_t to) {
        for (std::size_t i = from; i < std::min(to, result.size()); ++i)
            if (result[i] != '\n') result[i] = ' ';
    };
    // The end of a literal that starts at `from`, past the closing quote; it does not run over the end of its line.
    const auto end_of_literal = [&](std::size_t from) {
        const char quote = text[from];
        std::size_t i = from + 1;
        while (i < text.size() && text[i] != quote && text[i] != '\n') i += text[i] == '\\' ? 2 : 1;
        return i + 1;
    };
    std::size_t i = 0;
    while (i < text.size()) {
        const std::string_view rest = text.substr(i);
        std::size_t end = i + 1;
        bool hide = true;
        if (rest.starts_with("//")) {
            end = std::min(text.find('\n', i), text.size());
        } else if (rest.starts_with("/*")) {
            end = std::min(text.find("*/", i + 2), text.size() - 2) + 2;
        } else if (rest.starts_with("R\"") && (i == 0 || !is_word(text[i - 1]))) {
            const std::size_t open = std::min(text.find('(', i), text.size() - 1);
            const std::string close = fmt::format("){}\"", text.substr(i + 2, open - i - 2));
            const std::size_t found = text.find(close, open);
            end = found == std::string_view::npos ? text.size() : found + close.size();
        } else if (text[i] == '"' || (text[i] == '\'' && (i == 0 || !is_word(text[i - 1])))) {  // not 1'000'000
            end = end_of_literal(i);
        } else {
            hide = false;
        }
        if (hide) blank(i, end);
        i = end;
    }
    return result;
}

}  // namespace invar::tree
