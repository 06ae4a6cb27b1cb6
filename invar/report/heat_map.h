// A heat map of exponents as SVG text for HTML reports: a row a layer, a column a power of two, with the limits of a
// number format drawn across. Colours are CSS classes, as in plot.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "invar/formats/format_tally.h"

namespace invar {

struct HeatRow {
    std::string label;
    const Tally* tally = nullptr;
};

// Each row is shaded by its own shares. An empty text where no row holds a value but zero.
std::string svg_heat_map(const std::vector<HeatRow>& rows, Dtype format, int shift = 0);
// The same as a figure of a page, of what passes forward or of gradients; "" where there is nothing to draw.
std::string heat_figure(const std::vector<HeatRow>& rows, Dtype format, bool forward);

// The rules that the map's classes need, beside report/style.h.
extern const std::string_view kHeatStyle;

}  // namespace invar
