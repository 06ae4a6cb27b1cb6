// Plots as text: axes people can read, curves that stay inside of their picture, and values that cannot be drawn.
#include "invar/report/plot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <regex>

#include "tests/io/scratch.h"

namespace invar {
namespace {

std::vector<std::string> labels(double low, double high, int count) {
    const Ticks ticks = nice_ticks(low, high, count);
    std::vector<std::string> texts;
    for (const double value : ticks.values) texts.push_back(ticks.label(value));
    return texts;
}
using Texts = std::vector<std::string>;

// Every coordinate of a path or circle.
void expect_inside(const std::string& svg, double width, double height) {
    const std::regex pair("[ML](-?[0-9.naif]+) (-?[0-9.naif]+)");
    for (auto m = std::sregex_iterator(svg.begin(), svg.end(), pair); m != std::sregex_iterator(); ++m) {
        const double x = std::stod((*m)[1]), y = std::stod((*m)[2]);
        EXPECT_TRUE(x >= 0 && x <= width && y >= 0 && y <= height) << (*m)[0];
    }
}

std::size_t count(const std::string& text, const std::string& part) {
    std::size_t n = 0;
    for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
    return n;
}

TEST(Ticks, AreRoundNumbersWithTheSameDecimals) {
    EXPECT_EQ(labels(0, 1, 5), (Texts{"0", "0.2", "0.4", "0.6", "0.8", "1.0"}));
    EXPECT_EQ(labels(0.8811, 0.8912, 5), (Texts{"0.882", "0.884", "0.886", "0.888", "0.890"}));
    EXPECT_EQ(labels(-2.1, 2.1, 4), (Texts{"-2", "-1", "0", "1", "2"}));
    EXPECT_EQ(labels(0, 12000, 6), (Texts{"0", "2k", "4k", "6k", "8k", "10k", "12k"}));
    EXPECT_EQ(labels(0, 3e6, 3), (Texts{"0", "1M", "2M", "3M"}));
    EXPECT_EQ(labels(0, 938, 6), (Texts{"0", "200", "400", "600", "800"}));
    EXPECT_EQ(labels(0, 3e-8, 3), (Texts{"0", "1e-08", "2e-08", "3e-08"}));
}

TEST(Ticks, SurviveRangesWithoutRoom) {
    for (const auto& [low, high] :
         {std::pair(1.0, 1.0), {2.0, 1.0}, {0.0, 5e-324}, {-1e308, 1e308}, {1e300, 1.0001e300}}) {
        const Ticks ticks = nice_ticks(low, high, 5);
        EXPECT_LE(ticks.values.size(), 15u);
        for (const double value : ticks.values) EXPECT_FALSE(ticks.label(value).empty());
    }
}

TEST(Thinned, KeepsTheExtremesAndTheEnd) {
    Series series;
    for (int i = 0; i < 10'000; ++i) {
        series.x.push_back(i);
        series.y.push_back(i == 777 ? 50.0 : i == 7777 ? -50.0 : i == 5000 ? NAN : 0.0);
    }
    const Series thin = thinned(series, 100);
    EXPECT_LE(thin.y.size(), 102u);
    EXPECT_EQ(std::count(thin.y.begin(), thin.y.end(), 50.0), 1);
    EXPECT_EQ(std::count(thin.y.begin(), thin.y.end(), -50.0), 1);
    EXPECT_EQ(std::count_if(thin.y.begin(), thin.y.end(), [](double y) { return std::isnan(y); }), 1);
    EXPECT_EQ(thin.x.back(), 9999);
    EXPECT_TRUE(std::is_sorted(thin.x.begin(), thin.x.end()));
    EXPECT_EQ(thinned(series, 20'000).y.size(), 10'000u);
}

TEST(SvgPlot, DrawsEveryLineInsideOfItsPicture) {
    Plot plot;
    plot.title = "loss <&> \"x\"";
    plot.lines = {{"FP32, seed 0", 0, {{1, 2, 3}, {3, 2, 1}}}, {"16-mixed", 1, {{1, 2, 3}, {3.1, 2.1, 0.9}}}};
    const std::string svg = svg_plot(plot);
    EXPECT_EQ(count(svg, "<path class=\"line line0\""), 1u);
    EXPECT_EQ(count(svg, "<path class=\"line line1\""), 1u);
    EXPECT_EQ(count(svg, "<circle"), 6u) << "few points are marked";
    EXPECT_TRUE(has(svg, "aria-label=\"loss &lt;&amp;&gt; &quot;x&quot;\""));
    expect_inside(svg, 560, 280);
}

TEST(SvgPlot, BreaksTheLineAndMarksWhatIsNotFinite) {
    Plot plot;
    plot.lines = {{"a", 1, {{1, 2, 3, 4}, {1, NAN, 2, INFINITY}}}};
    const std::string svg = svg_plot(plot);
    EXPECT_EQ(count(svg, "class=\"bad\""), 2u);
    const std::string d = svg.substr(svg.find("<path class=\"line line1\""));
    EXPECT_EQ(count(d.substr(0, d.find("/>")), "M"), 2u);
    EXPECT_FALSE(has(svg, "nan") || has(svg, "inf"));
}

TEST(SvgPlot, LabelsALogarithmicAxisByPowers) {
    Plot plot;
    plot.scale = Plot::Scale::log2;
    plot.lines = {{"a", 1, {{1, 2, 3}, {65536, 32768, 0}}}};
    const std::string svg = svg_plot(plot);
    EXPECT_TRUE(has(svg, "2<tspan dy=\"-5\" font-size=\"9\">16</tspan>")) << svg;
    EXPECT_EQ(count(svg, "<circle"), 2u) << "zero has no logarithm";
    plot.scale = Plot::Scale::log10;
    plot.lines[0].series = {{1, 2}, {1e-3, 10}};
    EXPECT_TRUE(has(svg_plot(plot), "10<tspan dy=\"-5\" font-size=\"9\">-2</tspan>"));
}

TEST(SvgPlot, SurvivesWhatCannotBePlotted) {
    const double huge = std::numeric_limits<double>::max();
    for (const Series& series :
         {Series{}, Series{{1}, {1}}, Series{{1, 2}, {NAN, NAN}}, Series{{1, 1}, {5, 5}}, Series{{1, 2}, {-huge, huge}},
          Series{{-huge, huge}, {1, 2}}, Series{{NAN, INFINITY}, {1, 2}}, Series{{1, 2}, {0, 0}},
          Series{{1, 2}, {5e-324, 0}}, Series{{1, 2}, {-1, -2}}})
        for (const auto scale : {Plot::Scale::linear, Plot::Scale::log10, Plot::Scale::log2}) {
            Plot plot;
            plot.scale = scale;
            plot.lines = {{"a", 0, series}};
            const std::string svg = svg_plot(plot);
            EXPECT_FALSE(has(svg, "nan") || has(svg, "inf")) << svg;
            EXPECT_LT(svg.size(), 20'000u);
            expect_inside(svg, 560, 280);
        }
}

TEST(SvgIntervals, PutsEachRowBetweenItsLimits) {
    const std::string svg =
        svg_intervals({{"16-mixed", 1, -0.002, {-0.004, 0.001}, {-0.006, 0.002}}, {"<b>", 2, 5.0, {}, {}}}, {});
    EXPECT_TRUE(has(svg, "&lt;b&gt;"));
    EXPECT_EQ(count(svg, "class=\"thick line1\""), 1u);
    EXPECT_EQ(count(svg, "class=\"thick line2\""), 0u) << "one run has no interval";
    EXPECT_EQ(count(svg, "<circle"), 1u) << "what lies outside is not drawn as if it were at the edge";
    EXPECT_TRUE(has(svg, ">+500.0%<")) << svg;
    EXPECT_EQ(count(svg, "class=\"arrow\""), 1u);
    EXPECT_TRUE(has(svg, ">within 1%<"));
}

TEST(SvgIntervals, MarksWhatItCutsWithAnArrowAndTheFigure) {
    const std::string svg = svg_intervals({{"a", 1, -0.37, {-0.40, -0.34}, {-0.45, -0.3}}}, {});
    EXPECT_EQ(count(svg, "<circle"), 0u);
    EXPECT_TRUE(has(svg, ">-37.0%<")) << svg;
    const std::string wide = svg_intervals({{"a", 1, 0.0, {-0.1, 0.1}, {-0.5, 0.7}}}, {});
    EXPECT_EQ(count(wide, "<circle"), 1u);
    EXPECT_TRUE(has(wide, ">-50.0%<") && has(wide, ">+70.0%<")) << wide;
}

}  // namespace
}  // namespace invar
