#include "invar/report/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "invar/core/format_info.h"
#include "invar/report/plot.h"

namespace invar {

namespace {

constexpr int kCell = 14, kRow = 18, kTop = 22, kLabel = 210, kMostColumns = 64;
constexpr int kLimit = 64;  // what the name of a limit takes

int exponent_of(std::size_t bin) {
    return int(bin) - 127;
}

// The exponents that any row uses; where they are too many the smallest are left out.
struct Columns {
    int first = 0, last = -1;
    int x(int exponent) const { return kLabel + (exponent - first) * kCell; }
    int width() const { return kLabel + (last - first + 1) * kCell + kLimit; }
};

Columns columns_of(const std::vector<HeatRow>& rows) {
    Columns columns{127, -128};
    for (const HeatRow& row : rows)
        for (std::size_t i = 0; i < row.tally->exponents.size(); ++i)
            if (row.tally->exponents[i] > 0) {
                columns.first = std::min(columns.first, exponent_of(i));
                columns.last = std::max(columns.last, exponent_of(i));
            }
    columns.first = std::max(columns.first, columns.last - kMostColumns + 1);
    return columns;
}

std::string short_label(const std::string& label) {
    constexpr std::size_t kMost = 30;
    return label.size() <= kMost ? label : "..." + label.substr(label.size() - kMost + 3);
}

std::string limit_line(const Columns& columns, int exponent, int height, const char* what, int down = 0) {
    if (exponent < columns.first || exponent > columns.last + 1) return "";
    const int x = columns.x(exponent);
    return fmt::format(
        "<line class=\"limit\" x1=\"{0}\" y1=\"{1}\" x2=\"{0}\" y2=\"{2}\"/><text x=\"{3}\" y=\"{4}\">{5}</text>\n", x,
        kTop - 4, height, x + 3, height + 26 + down, what);
}

}  // namespace

const std::string_view kHeatStyle = R"(
pre { white-space: pre-wrap; }
.heat { fill: var(--c2); } .heatmap text { font-size: 11px; } .heatmap svg { width: auto; max-width: max(100%, 720px); height: auto; }
.heatmap { overflow-x: auto; margin-bottom: 18px; }
)";

std::string svg_heat_map(const std::vector<HeatRow>& rows, Dtype format, int shift) {
    const Columns columns = columns_of(rows);
    if (columns.last < columns.first) return "";
    const int height = kTop + int(rows.size()) * kRow;
    std::string svg = fmt::format("<svg viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\">\n",
                                  columns.width(), height + 44);
    for (std::size_t r = 0; r < rows.size(); ++r) {
        const int y = kTop + int(r) * kRow;
        svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n", kLabel - 8, y + 13,
                           html_escaped(short_label(rows[r].label)));
        const double counted = double(std::max<std::int64_t>(1, rows[r].tally->counted()));
        for (int e = columns.first; e <= columns.last; ++e) {
            const double share = double(rows[r].tally->exponents[std::size_t(e + 127)]) / counted;
            if (share == 0) continue;
            // The square root, so that a share of one in a thousand can still be seen.
            svg += fmt::format(
                "<rect class=\"heat\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" opacity=\"{:.2f}\"><title>{}: "
                "{:.3g}% from 2^{}</title></rect>\n",
                columns.x(e), y + 1, kCell - 1, kRow - 2, std::clamp(1.6 * std::sqrt(share), 0.06, 1.0),
                html_escaped(rows[r].label), 100 * share, e);
        }
    }
    for (int e = columns.first; e <= columns.last; ++e)
        if (e % 8 == 0) svg += fmt::format("<text x=\"{}\" y=\"{}\">{}</text>\n", columns.x(e), height + 13, e);
    const FormatInfo info = format_info(format);
    // What is more than half of the smallest subnormal number is rounded up to it.
    const int vanish = std::ilogb(info.smallest_subnormal) - 1 - shift;
    const int subnormal = std::ilogb(info.smallest_normal) - shift;
    const bool narrow = (subnormal - vanish) * kCell < kLimit;  // the names would run into each other
    svg += limit_line(columns, vanish, height, "vanishes");
    svg += limit_line(columns, subnormal, height, "subnormal", narrow ? 12 : 0);
    svg += limit_line(columns, std::ilogb(info.max) + 1 - shift, height, "overflows");
    return svg + "</svg>\n";
}

std::string heat_figure(const std::vector<HeatRow>& rows, Dtype format, bool forward) {
    const std::string map = svg_heat_map(rows, format);
    if (map.empty()) return "";
    return fmt::format("<figure class=\"heatmap\"><figcaption>{}</figcaption>\n{}</figure>\n",
                       forward ? "Forward: share of values by power of two" : "Backward, before the loss is scaled",
                       map);
}

}  // namespace invar
