#include "invar/cli/console.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>

#include "invar/cli/ranks.h"
#include "invar/tasks/metric.h"

namespace invar::cli {

namespace {

constexpr double kRedrawSeconds = 0.1;

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool set_and_not_empty(const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr && *value != '\0';
}

// Whether the terminal shows more than ASCII, as far as the environment tells.
bool speaks_utf8() {
    static const bool yes = [] {
        for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
            if (!set_and_not_empty(name)) continue;
            std::string value = std::getenv(name);
            std::transform(value.begin(), value.end(), value.begin(), [](unsigned char c) { return std::tolower(c); });
            return value.find("utf-8") != value.npos || value.find("utf8") != value.npos;
        }
        return false;
    }();
    return yes;
}

// Columns a text takes: bytes that begin a character, colour codes left out.
std::size_t columns_of(std::string_view text) {
    std::size_t columns = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '\x1b') {
            while (i < text.size() && text[i] != 'm') ++i;
        } else if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) {
            ++columns;
        }
    }
    return columns;
}

bool is_missing(std::string_view cell) {
    for (const std::string_view missing : {"", "-", "empty", "n/a"})
        if (cell == missing) return true;
    return false;
}

// "-3.5e-05", "12.3 ms", and bounds: "<0.01%", "> 99.99%".
bool is_number(std::string_view cell) {
    if (cell.find_first_of("<>~") == 0) cell.remove_prefix(cell.size() > 1 && cell[1] == ' ' ? 2 : 1);
    if (cell.find_first_of("+-") == 0) cell.remove_prefix(1);
    if (cell.starts_with('.')) cell.remove_prefix(1);
    return !cell.empty() && cell[0] >= '0' && cell[0] <= '9';
}

// A long name keeps its end, which tells it from others. What is coloured is short, and stays.
std::string with_its_end(const std::string& text, std::size_t columns) {
    if (columns < 4 || text.find('\x1b') != text.npos) return text;
    std::size_t begin = 0;
    for (std::size_t left = columns_of(text); begin < text.size() && left > columns - 3; --left) do
            ++begin;
        while (begin < text.size() && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80);
    return "..." + text.substr(begin);
}

// Lines of so many columns, broken between words, and within those that are longer, as paths are.
std::vector<std::string> wrapped(const std::string& text, std::size_t columns) {
    std::vector<std::string> lines{""};
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find(' ', begin), text.size());
        const std::string word = text.substr(begin, end - begin);
        if (!lines.back().empty() && columns_of(lines.back()) + 1 + columns_of(word) > columns) lines.emplace_back();
        lines.back() += lines.back().empty() ? "" : " ";
        for (const char c : word) {
            const bool begins = (static_cast<unsigned char>(c) & 0xc0) != 0x80;
            if (begins && columns_of(lines.back()) >= columns) lines.emplace_back();
            lines.back() += c;
        }
        begin = end + 1;
    }
    return lines;
}

// Takes what is too much from the columns of words, the widest first, which keep a few letters each.
std::vector<std::size_t> shrunk(std::vector<std::size_t> widths, const std::vector<bool>& right, std::size_t room) {
    constexpr std::size_t kLeast = 12;
    std::size_t all = 2 * (widths.size() - 1);
    for (const std::size_t width : widths) all += width;
    while (all > room) {
        std::size_t widest = widths.size();
        for (std::size_t i = 0; i < widths.size(); ++i)
            if (!right[i] && widths[i] > kLeast && (widest == widths.size() || widths[i] > widths[widest])) widest = i;
        if (widest == widths.size()) break;  // numbers are not cut
        --widths[widest], --all;
    }
    return widths;
}

}  // namespace

bool on_terminal() {
    static const bool yes = [] {
        const char* term = std::getenv("TERM");
        return ::isatty(STDOUT_FILENO) == 1 && launcher_has_terminal() &&
               !(term != nullptr && std::string_view(term) == "dumb");
    }();
    return yes;
}

int terminal_width() {
    winsize size{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    return 80;
}

std::string paint(Colour colour, std::string_view text) {
    static const bool coloured = on_terminal() && !set_and_not_empty("NO_COLOR");
    if (!coloured || colour == Colour::plain) return std::string(text);
    constexpr std::string_view kCodes[] = {"0", "1", "2", "31", "32", "33", "36"};
    return fmt::format("{0}{1}m{2}{0}0m", colour_mark(), kCodes[static_cast<int>(colour)], text);
}

std::string human_seconds(double seconds) {
    if (!(seconds >= 0)) return "-";
    if (seconds < 0.0995) return fmt::format("{:.1f} ms", 1e3 * seconds);
    if (seconds < 9.995) return fmt::format("{:.2f} s", seconds);
    if (seconds < 59.95) return fmt::format("{:.1f} s", seconds);
    const std::int64_t whole = std::llround(seconds);
    if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
    return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

std::string clock_time(double seconds) {
    if (!(seconds >= 0) || seconds > 1e9) return "-:--";
    const std::int64_t whole = std::llround(seconds);
    if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
    return fmt::format("{}:{:02}:{:02}", whole / 3600, whole % 3600 / 60, whole % 60);
}

std::string count_of(std::int64_t n, std::string_view thing) {
    return fmt::format("{} {}{}", human_count(n), thing, n == 1 ? "" : "s");
}

std::string loss_text(double loss) {
    return Metric{}.str(loss);
}

std::string rate_text(const Rate& rate) {
    const std::string text = fmt::format("{} {}/s", human_rate(rate.per_second), rate.unit);
    return rate.mfu > 0 ? fmt::format("{}, MFU {:.1f}%", text, 100 * rate.mfu) : text;
}

void Table::row(std::vector<std::string> cells) {
    for (std::string& cell : cells)
        for (std::size_t at = 0; (at = cell.find('\n', at)) != cell.npos;) cell.replace(at, 1, "\\n");
    rows_.push_back(std::move(cells));
}

std::vector<std::size_t> Table::widths() const {
    std::vector<std::size_t> width;
    const auto measure = [&](const std::vector<std::string>& row) {
        width.resize(std::max(width.size(), row.size()), 0);
        for (std::size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], columns_of(row[i]));
    };
    measure(header_);
    for (const auto& row : rows_) measure(row);
    return width;
}

std::string no_room_for(const std::vector<std::string>& left_out) {
    if (left_out.empty()) return "";
    const std::string text =
        fmt::format("no room for {}: a wider terminal shows more, a pipe and --json all", fmt::join(left_out, ", "));
    return on_terminal() ? fmt::format("{}\n", fmt::join(wrapped(text, std::size_t(terminal_width())), "\n"))
                         : text + "\n";
}

std::string Table::fitted(std::string_view indent, const std::vector<std::string>& dispensable,
                          std::size_t least_of_first, std::vector<std::string>* left_out) const {
    Table table = *this;
    const auto columns = [&] {
        std::vector<std::size_t> widths = table.widths();
        if (!widths.empty()) widths[0] = std::min(widths[0], least_of_first);
        std::size_t all = indent.size();
        for (const std::size_t width : widths) all += width + 2;
        return all - 2;  // no gap after the last one
    };
    for (const std::string& name : dispensable) {
        if (!on_terminal() || columns() <= std::size_t(terminal_width())) break;
        const auto found = std::find(table.header_.begin(), table.header_.end(), name);
        if (found == table.header_.end()) continue;
        if (left_out != nullptr) left_out->push_back(name);
        const auto column = found - table.header_.begin();
        table.header_.erase(found);
        for (auto& row : table.rows_) row.erase(row.begin() + column);
    }
    return table.text(indent);
}

std::vector<bool> Table::flush_right(std::size_t columns) const {
    std::vector<bool> right(columns, false);
    if (header_.empty()) return right;  // a list of names and values
    for (std::size_t i = 1; i < columns; ++i) {
        std::ptrdiff_t more_numbers = 0;
        for (const auto& row : rows_)
            if (i < row.size() && !is_missing(row[i])) more_numbers += is_number(row[i]) ? 1 : -1;
        right[i] = more_numbers >= 0;
    }
    return right;
}

// On a terminal that is too narrow, words in the last column go on below, and longer names lose their beginning; a pipe
// gets all.
std::string Table::text(std::string_view indent) const {
    std::vector<std::size_t> width = widths();
    if (width.empty()) return "";
    const std::vector<bool> right = flush_right(width.size());
    if (const auto columns = std::size_t(terminal_width()); on_terminal() && columns > indent.size())
        width = shrunk(std::move(width), right, columns - indent.size());
    std::string text;
    const auto print = [&](const std::vector<std::string>& row, Colour colour) {
        std::string line, before_last;
        std::vector<std::string> below;  // of the last column
        for (std::size_t i = 0; i < row.size(); ++i) {
            std::string cell = row[i];
            if (columns_of(cell) > width[i]) {
                if (i + 1 == width.size() && i > 0) {
                    below = wrapped(cell, width[i]);
                    cell = below.front();
                    before_last = std::string(columns_of(line) + 2, ' ');
                } else {
                    cell = with_its_end(cell, width[i]);
                }
            }
            const std::size_t columns = columns_of(cell);
            const std::string gap(columns < width[i] ? width[i] - columns : 0, ' ');
            line += i == 0 ? "" : "  ";
            line += right[i] ? gap + cell : cell + gap;
        }
        line.erase(line.find_last_not_of(' ') + 1);
        text += fmt::format("{}{}\n", indent, paint(colour, line));
        for (std::size_t i = 1; i < below.size(); ++i)
            text += fmt::format("{}{}\n", indent, paint(colour, before_last + below[i]));
    };
    if (!header_.empty()) print(header_, Colour::bold);
    for (const auto& row : rows_) print(row, Colour::plain);
    return text;
}

bool LiveLine::due() const {
    return on_terminal() && now() - drawn_at_ >= kRedrawSeconds;
}

void LiveLine::show(const std::vector<std::string>& parts) {
    if (!on_terminal() || parts.empty()) return;
    const std::size_t room = std::size_t(std::max(terminal_width() - 1, 1));  // the last column would wrap
    std::string line;
    std::size_t used = 0;
    for (const std::string& part : parts) {
        const std::size_t more = columns_of(part) + (line.empty() ? 0 : 2);
        if (used + more > room) break;
        line += (line.empty() ? "" : "  ") + part;
        used += more;
    }
    // The cursor goes back to the first column: a terminal that is made narrower breaks the line into several, below
    // where the cursor stays, and the next one erases all of them.
    print_between("\r", line, "\x1b[J\r");
    shown_ = true;
    drawn_at_ = now();
}

void LiveLine::clear() {
    if (!shown_) return;
    shown_ = false;
    print_between("\r", "", "\x1b[J");
}

void LiveLine::above(std::string_view line) {
    clear();
    say(line);
    drawn_at_ = -1.0;
}

std::string bar(double share, int columns) {
    const int filled = std::clamp(int(std::lround(share * columns)), 0, columns);
    std::string full, rest;
    for (int i = 0; i < filled; ++i) full += speaks_utf8() ? "━" : "#";
    for (int i = filled; i < columns; ++i) rest += speaks_utf8() ? "─" : "-";
    return paint(Colour::green, full) + paint(Colour::dim, rest);
}

}  // namespace invar::cli
