#include "invar/report/text.h"

#include <algorithm>
#include <cmath>

#include "invar/core/error.h"

namespace invar {

namespace {

// Characters as a reader counts them: the bytes that begin one.
std::size_t width_of(std::string_view text) {
    return std::size_t(
        std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string escaped(const std::string& cell) {
    std::string out;
    for (const char c : cell) {
        if (c == '|') out += '\\';
        out += c == '\n' ? ' ' : c;
    }
    return out;
}

}  // namespace

std::string human_bytes(double bytes) {
    constexpr std::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    std::size_t unit = 0;
    while (std::abs(bytes) >= 1023.95 && unit + 1 < std::size(kUnits)) bytes /= 1024, ++unit;
    return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

std::string human_count(std::int64_t n) {
    std::string digits = std::to_string(n);
    for (std::ptrdiff_t i = std::ptrdiff_t(digits.size()) - 3; i > (n < 0 ? 1 : 0); i -= 3)
        digits.insert(std::size_t(i), 1, ',');
    return digits;
}

std::string human_rate(double per_second) {
    if (!(per_second >= 0) || per_second > 1e15) return "-";
    if (per_second < 9.995) return fmt::format("{:.2f}", per_second);
    if (per_second < 9999.5) return fmt::format("{:.0f}", per_second);
    if (per_second < 999.95e3) return fmt::format("{:.1f}k", per_second / 1e3);
    return fmt::format("{:.1f}M", per_second / 1e6);
}

std::string report_duration(double seconds) {
    if (!std::isfinite(seconds)) return "n/a";
    if (seconds < 60) return fmt::format("{:.2f} s", seconds);
    const auto whole = std::int64_t(std::llround(seconds));
    if (whole < 3600) return fmt::format("{}m {:02}s", whole / 60, whole % 60);
    return fmt::format("{}h {:02}m {:02}s", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string report_change(double from, double to) {
    if (!std::isfinite(from) || !std::isfinite(to)) return "n/a";
    if (from == to) return "0.00%";
    if (from == 0) return "n/a";
    const double percent = 100.0 * (to - from) / std::fabs(from);
    return std::fabs(percent) < 0.005 ? "0.00%" : fmt::format("{:+.2f}%", percent);
}

std::string report_number(double value) {
    if (!std::isfinite(value)) return std::isnan(value) ? "NaN" : value > 0 ? "Inf" : "-Inf";
    const double size = std::fabs(value);
    return size != 0 && (size < 1e-3 || size >= 1e6) ? fmt::format("{:.3e}", value)
           : size < 10                               ? fmt::format("{:.4f}", value)
           : size < 1000                             ? fmt::format("{:.1f}", value)
                                                     : fmt::format("{:.0f}", value);
}

MarkdownTable& MarkdownTable::row(std::vector<std::string> cells) {
    check(cells.size() == header_.size(), "a table of {} columns was given a row of {}", header_.size(), cells.size());
    for (std::string& cell : cells) cell = escaped(cell);
    rows_.push_back(std::move(cells));
    return *this;
}

std::string MarkdownTable::str() const {
    std::vector<std::size_t> widths;
    for (std::size_t i = 0; i < header_.size(); ++i) {
        widths.push_back(std::max<std::size_t>(width_of(header_[i]), 3));
        for (const auto& row : rows_) widths[i] = std::max(widths[i], width_of(row[i]));
    }
    // The first column names things and starts at the left, figures end at the right.
    const auto line = [&](const std::vector<std::string>& cells) {
        std::string text = "|";
        for (std::size_t i = 0; i < cells.size(); ++i) {
            const std::string pad(widths[i] - width_of(cells[i]), ' ');
            text += i == 0 ? " " + cells[i] + pad + " |" : " " + pad + cells[i] + " |";
        }
        return text + "\n";
    };
    std::string text = line(header_) + "|";
    for (std::size_t i = 0; i < widths.size(); ++i)
        text += i == 0 ? std::string(widths[i] + 2, '-') + "|" : std::string(widths[i] + 1, '-') + ":|";
    text += "\n";
    for (const auto& row : rows_) text += line(row);
    return text;
}

}  // namespace invar
