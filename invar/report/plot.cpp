#include "invar/report/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "invar/core/printable.h"

namespace invar {

namespace {

constexpr double kWidth = 560, kHeight = 280;
constexpr double kLeft = 62, kRight = 14, kTop = 12, kBottom = 42;
constexpr std::size_t kMaxPoints = 400;  // a line; more cannot be seen on so few pixels
constexpr std::size_t kMarked = 30;      // lines of fewer points show each of them

struct Range {
    double low = std::numeric_limits<double>::infinity(), high = -low;
    void add(double value) { low = std::min(low, value), high = std::max(high, value); }
    bool empty() const { return low > high; }
};

// Where a value lies on an axis that is linear in t(value).
class Axis {
  public:
    Axis(Range range, double from, double to) : range_(range), from_(from), to_(to) {}
    double operator()(double t) const {
        // Halves first: the difference of two huge values may not be a number any more.
        const double share = (t / 2 - range_.low / 2) / (range_.high / 2 - range_.low / 2);
        return from_ + share * (to_ - from_);
    }

  private:
    Range range_;
    double from_, to_;
};

bool drawable(double value, Plot::Scale scale) {
    return std::isfinite(value) && (scale == Plot::Scale::linear || value > 0);
}

double transformed(double value, Plot::Scale scale) {
    return scale == Plot::Scale::log10 ? std::log10(value) : scale == Plot::Scale::log2 ? std::log2(value) : value;
}

// A little room above and below; a range of one value gets some around it.
Range padded(Range range, bool logarithmic) {
    if (range.empty()) return {0.0, 1.0};
    const double size = range.high / 2 - range.low / 2;
    const double room = size > 0 ? size * 0.1 : logarithmic ? 1.0 : std::max(std::fabs(range.low) * 0.1, 1e-3);
    range.low = std::max(range.low - room, -std::numeric_limits<double>::max());
    range.high = std::min(range.high + room, std::numeric_limits<double>::max());
    return range;
}

std::string text_at(double x, double y, std::string_view anchor, std::string_view text) {
    return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>", x, y, anchor, text);
}

std::string line_between(double x1, double y1, double x2, double y2, std::string_view css) {
    return fmt::format("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>", css, x1, y1, x2,
                       y2);
}

std::string power(const char* base, double exponent) {
    return fmt::format("{}<tspan dy=\"-5\" font-size=\"9\">{:.0f}</tspan>", base, exponent);
}

// Ticks of the y axis as positions on it, with their labels.
std::vector<std::pair<double, std::string>> y_ticks(Range range, Plot::Scale scale) {
    std::vector<std::pair<double, std::string>> ticks;
    if (scale == Plot::Scale::linear) {
        const Ticks nice = nice_ticks(range.low, range.high, 5);
        for (const double value : nice.values) ticks.emplace_back(value, nice.label(value));
        return ticks;
    }
    const double every = std::max(1.0, std::ceil((range.high - range.low) / 6));
    for (double e = std::ceil(range.low / every) * every; e <= range.high; e += every)
        ticks.emplace_back(e, power(scale == Plot::Scale::log2 ? "2" : "10", e == 0 ? 0.0 : e));  // no -0
    if (ticks.size() < 3 && scale == Plot::Scale::log10) {  // less than two decades: plain numbers between
        ticks.clear();
        for (double decade = std::floor(range.low); decade <= range.high; ++decade)
            for (const double factor : {1.0, 2.0, 5.0})
                if (const double t = decade + std::log10(factor), value = factor * std::pow(10.0, decade);
                    t >= range.low && t <= range.high && std::isfinite(value))
                    ticks.emplace_back(t, fmt::format("{:g}", value));
    }
    return ticks;
}

class Curve {
  public:
    Curve(const PlotLine& line, Plot::Scale scale, const Axis& x, const Axis& y) : line_(line) {
        const Series series = thinned(line.series, kMaxPoints);
        std::string path;
        bool pen_down = false;
        for (std::size_t i = 0; i < series.y.size(); ++i) {
            if (!std::isfinite(series.x[i])) continue;
            const double px = x(series.x[i]);
            if (!drawable(series.y[i], scale)) {
                pen_down = false;
                if (!std::isfinite(series.y[i])) bad_.push_back(px);
                continue;
            }
            const double py = y(transformed(series.y[i], scale));
            path += fmt::format("{}{:.1f} {:.1f}", pen_down ? "L" : "M", px, py);
            pen_down = true;
            if (line.series.y.size() <= kMarked)
                marks_ += fmt::format("<circle class=\"mark{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"/>", line.colour,
                                      px, py, line.colour == 0 ? "4" : "2.6");
        }
        path_ = path;
    }
    std::string svg() const {
        std::string text = fmt::format("<g><title>{}</title>", html_escaped(line_.label));
        if (!path_.empty()) text += fmt::format("<path class=\"line line{}\" d=\"{}\"/>", line_.colour, path_);
        text += marks_;
        for (const double px : bad_)
            text += fmt::format(
                "<path class=\"bad\" d=\"M{0:.1f} {2:.1f}L{1:.1f} {3:.1f}M{0:.1f} {3:.1f}L{1:.1f} {2:.1f}\"/>", px - 4,
                px + 4, kTop + 2, kTop + 10);
        return text + "</g>";
    }

  private:
    const PlotLine& line_;
    std::string path_, marks_;
    std::vector<double> bad_;
};

}  // namespace

std::string html_escaped(std::string_view text) {
    std::string out;
    for (const char c : printable_lines(text)) {
        if (c == '&')
            out += "&amp;";
        else if (c == '<')
            out += "&lt;";
        else if (c == '>')
            out += "&gt;";
        else if (c == '"')
            out += "&quot;";
        else if (c == '\'')
            out += "&#39;";
        else
            out += c;
    }
    return out;
}

Ticks nice_ticks(double low, double high, int count) {
    Ticks ticks;
    const double size = high - low;
    if (!(size > 0) || !std::isfinite(size)) return {1.0, {low}};
    const double raw = size / count, decade = std::pow(10.0, std::floor(std::log10(raw)));
    const double share = raw / decade;
    ticks.step = decade * (share < 1.5 ? 1 : share < 3.5 ? 2 : share < 7.5 ? 5 : 10);
    if (!(ticks.step > 0)) return {1.0, {low}};
    const double first = std::ceil(low / ticks.step - 1e-9);
    for (int i = 0; i < 3 * count; ++i) {
        const double value = (first + i) * ticks.step;
        if (value > high + ticks.step * 1e-9) break;
        ticks.values.push_back(value == 0 ? 0.0 : value);  // no -0
    }
    return ticks;
}

std::string Ticks::label(double value) const {
    if (value == 0) return "0";
    const double size = std::fabs(value);
    if (step >= 1e3 && size < 1e15) {
        for (const auto& [unit, name] : {std::pair(1e9, "G"), std::pair(1e6, "M"), std::pair(1e3, "k")})
            if (size >= unit && step >= unit / 10)
                return fmt::format("{:g}{}", std::round(value / unit * 1e6) / 1e6, name);
    }
    const int decimals = std::max(0, int(std::ceil(-std::log10(step) - 1e-9)));
    if (decimals > 6 || size >= 1e7) return fmt::format("{:.3g}", value);
    return fmt::format("{:.{}f}", value, decimals);
}

Series thinned(const Series& series, std::size_t points) {
    const std::size_t n = series.y.size();
    if (n <= points || points < 4) return series;
    // The smallest and the largest of each piece, in their order; one that is not finite counts as both.
    Series out;
    const std::size_t pieces = points / 2;
    const auto keep = [&](std::size_t i) {
        out.x.push_back(series.x[i]);
        out.y.push_back(series.y[i]);
    };
    for (std::size_t piece = 0; piece < pieces; ++piece) {
        const std::size_t begin = piece * n / pieces, end = (piece + 1) * n / pieces;
        std::size_t low = begin, high = begin;
        for (std::size_t i = begin; i < end; ++i) {
            if (!std::isfinite(series.y[i])) {
                low = high = i;
                break;
            }
            if (series.y[i] < series.y[low]) low = i;
            if (series.y[i] > series.y[high]) high = i;
        }
        keep(std::min(low, high));
        if (low != high) keep(std::max(low, high));
    }
    if (out.x.back() != series.x.back()) keep(n - 1);
    return out;
}

std::string svg_plot(const Plot& plot) {
    Range xs, ys;
    for (const PlotLine& line : plot.lines)
        for (std::size_t i = 0; i < line.series.y.size(); ++i) {
            if (!std::isfinite(line.series.x[i])) continue;
            xs.add(line.series.x[i]);
            if (drawable(line.series.y[i], plot.scale)) ys.add(transformed(line.series.y[i], plot.scale));
        }
    ys = padded(ys, plot.scale != Plot::Scale::linear);
    if (xs.empty() || !(xs.high > xs.low)) xs = padded(xs, false);
    const Axis x(xs, kLeft, kWidth - kRight), y(ys, kHeight - kBottom, kTop);

    std::string svg = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">", kWidth, kHeight,
                                  html_escaped(plot.title));
    for (const auto& [at, label] : y_ticks(ys, plot.scale)) {
        svg += line_between(kLeft, y(at), kWidth - kRight, y(at), "grid");
        svg += text_at(kLeft - 8, y(at) + 4, "end", label);
    }
    const Ticks ticks = nice_ticks(xs.low, xs.high, 6);
    for (const double value : ticks.values) {
        if (plot.x_doubles && value != std::round(value)) continue;
        svg += line_between(x(value), kHeight - kBottom, x(value), kHeight - kBottom + 4, "axis");
        // A label at the very edge stays inside of the picture.
        const bool at_edge = x(value) > kWidth - kRight - 12;
        svg += text_at(at_edge ? kWidth - 2 : x(value), kHeight - kBottom + 18, at_edge ? "end" : "middle",
                       plot.x_doubles ? fmt::format("{:g}", std::exp2(value)) : ticks.label(value));
    }
    svg += line_between(kLeft, kHeight - kBottom, kWidth - kRight, kHeight - kBottom, "axis");
    svg += text_at((kLeft + kWidth - kRight) / 2, kHeight - 6, "middle", html_escaped(plot.x_label));
    for (const PlotLine& line : plot.lines) svg += Curve(line, plot.scale, x, y).svg();
    return svg + "</svg>";
}

std::string svg_intervals(const std::vector<IntervalRow>& rows, const Limits& limits) {
    constexpr double kWide = 860, kRow = 34, kHead = 26, kFoot = 44, kNames = 150;
    Range range{-1.25 * limits.harm, 1.25 * limits.harm};
    for (const IntervalRow& row : rows)
        for (const double value : {row.difference, row.ninety_five.low, row.ninety_five.high})
            if (std::isfinite(value)) range.add(std::clamp(value, -10 * limits.harm, 10 * limits.harm));
    const double room = (range.high - range.low) * 0.03;
    range.low -= room, range.high += room;
    const double height = kHead + kRow * double(rows.size()) + kFoot, bottom = height - kFoot;
    const Axis x(range, kNames, kWide - 20);
    const auto at = [&](double value) { return std::clamp(x(value), kNames, kWide - 20); };

    std::string svg = fmt::format(
        "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"differences and their intervals\">", kWide, height);
    svg += fmt::format("<rect class=\"within\" x=\"{:.1f}\" y=\"{}\" width=\"{:.1f}\" height=\"{:.1f}\"/>",
                       at(-limits.margin), kHead - 6, at(limits.margin) - at(-limits.margin), bottom - kHead + 6);
    svg += text_at(at(0), kHead - 11, "middle", fmt::format("within {:.3g}%", 100 * limits.margin));
    for (const double value : {-limits.harm, limits.harm})
        svg += line_between(at(value), kHead - 6, at(value), bottom, "limit");
    svg += line_between(at(0), kHead - 6, at(0), bottom, "axis");
    const Ticks ticks = nice_ticks(100 * range.low, 100 * range.high, 8);
    for (const double value : ticks.values) {
        svg += line_between(at(value / 100), bottom, at(value / 100), bottom + 4, "axis");
        svg += text_at(at(value / 100), bottom + 18, "middle", ticks.label(value) + "%");
    }
    svg += line_between(kNames, bottom, kWide - 20, bottom, "axis");
    svg += text_at((kNames + kWide - 20) / 2, height - 6, "middle", "difference from the baseline");
    double y = kHead + kRow / 2;
    for (const IntervalRow& row : rows) {
        svg += text_at(kNames - 12, y + 4, "end",
                       html_escaped(row.label.size() > 22 ? "…" + row.label.substr(row.label.size() - 20) : row.label));
        const bool tested = row.ninety.low != 0 || row.ninety.high != 0;
        if (tested) {
            const auto bar = [&](const char* css, Interval i) {
                return line_between(at(i.low), y, at(i.high), y, fmt::format("{} line{}", css, row.colour));
            };
            svg += bar("thin", row.ninety_five) + bar("thick", row.ninety);
        }
        if (row.difference >= range.low && row.difference <= range.high)
            svg += fmt::format("<circle class=\"mark{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\"/>", row.colour,
                               at(row.difference), y);
        // What lies outside of the picture: an arrow at its edge, and how far it goes.
        const auto cut = [&](double edge, double end, int side) {
            const auto outside = [&](double value) { return side < 0 ? value < edge : value > edge; };
            if (!outside(row.difference) && !outside(end)) return;
            const double tip = at(edge) + side * 6, back = at(edge) - side * 4;
            svg += fmt::format(
                "<g class=\"arrow\"><path class=\"mark{}\" d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}L{:.1f} {:.1f}Z\"/>",
                row.colour, tip, y, back, y - 6, back, y + 6);
            svg += text_at(back, y - 9, side < 0 ? "start" : "end",
                           fmt::format("{:+.1f}%", 100 * (outside(row.difference) ? row.difference : end))) +
                   "</g>";
        };
        cut(range.low, row.ninety_five.low, -1);
        cut(range.high, row.ninety_five.high, 1);
        y += kRow;
    }
    return svg + "</svg>";
}

}  // namespace invar
