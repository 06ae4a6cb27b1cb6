// Plots as SVG text for HTML reports: lines over steps, and intervals against limits. No script and no file beside
// them; colours are CSS classes (line0 is the baseline, line1, line2, ... the candidates), so that a page can be light
// or dark.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "invar/validate/run_log.h"
#include "invar/validate/statistics.h"

namespace invar {

struct PlotLine {
    std::string label;
    int colour = 0;
    Series series;
};

struct Plot {
    enum class Scale { linear, log10, log2 };
    std::string title;
    std::string x_label = "step";
    bool x_doubles = false;  // x is the power of two that the axis names
    Scale scale = Scale::linear;
    std::vector<PlotLine> lines;
};
// Values that are not finite, or not positive on a logarithmic scale, break the line; NaN and Inf are marked by a
// cross.
std::string svg_plot(const Plot& plot);

struct IntervalRow {
    std::string label;
    int colour = 1;
    double difference = 0.0;
    Interval ninety, ninety_five;  // both empty for a single run
};
// Relative differences against the margin and the limit of harm.
std::string svg_intervals(const std::vector<IntervalRow>& rows, const Limits& limits);

// A linear axis: steps of 1, 2 or 5 times a power of ten, about `count` of them between low and high.
struct Ticks {
    double step = 1.0;
    std::vector<double> values;
    std::string label(double value) const;  // all with the same number of decimals; "12k", "3e-7"
};
Ticks nice_ticks(double low, double high, int count);

// At most about `points` points that show the same extremes as all of them.
Series thinned(const Series& series, std::size_t points);

std::string html_escaped(std::string_view text);

}  // namespace invar
