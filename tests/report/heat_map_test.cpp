#include "invar/report/heat_map.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <span>

namespace invar {
namespace {

Tally tally_of(const std::vector<float>& values) {
    Tally tally(1);
    const Dtype format = Dtype::f16;
    tally_values(Dtype::f32, values.data(), values.size(), std::span(&format, 1), tally);
    return tally;
}

std::size_t count(const std::string& text, const std::string& part) {
    std::size_t n = 0;
    for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
    return n;
}

TEST(HeatMap, HasACellForEachPowerOfTwoThatOccurs) {
    const Tally a = tally_of({1.0f, 1.5f, 0.25f, 0.0f}), b = tally_of({0x1p-30f, 70000.0f});
    const std::string svg = svg_heat_map({{"fc1", &a}, {"a<b", &b}}, Dtype::f16);
    EXPECT_EQ(count(svg, "<rect"), 4u);
    EXPECT_NE(svg.find(">fc1</text>"), svg.npos);
    EXPECT_NE(svg.find("a&lt;b"), svg.npos);
    for (const char* limit : {"vanishes", "subnormal", "overflows"}) EXPECT_NE(svg.find(limit), svg.npos) << limit;
}

TEST(HeatMap, DrawsItsLimitsWhereRoundingChangesItsMind) {
    const Tally tally = tally_of({0x1p-30f, 1.0f, 0x1p20f});
    const std::string svg = svg_heat_map({{"fc1", &tally}}, Dtype::f16);
    const auto x_of = [&](int exponent) { return 210 + (exponent + 30) * 14; };
    // FP16 loses what lies below 2^-25, is subnormal below 2^-14 and infinite from 2^16 on.
    for (const int exponent : {-25, -14, 16})
        EXPECT_EQ(count(svg, fmt::format("<line class=\"limit\" x1=\"{}\"", x_of(exponent))), 1u) << exponent;
    for (const int exponent : {-30, 0, 20})
        EXPECT_EQ(count(svg, fmt::format("<rect class=\"heat\" x=\"{}\"", x_of(exponent))), 1u) << exponent;
    const std::string scaled = svg_heat_map({{"fc1", &tally}}, Dtype::f16, 4);
    EXPECT_EQ(count(scaled, fmt::format("<line class=\"limit\" x1=\"{}\"", x_of(12))), 1u)
        << "all limits move with the scale";
}

TEST(HeatMap, HasRoomForTheNamesOfItsLimits) {
    const Tally tally = tally_of({1.0f, 70000.0f});
    const std::string svg = svg_heat_map({{"fc1", &tally}}, Dtype::f16);
    const double width = std::stod(svg.substr(svg.find("viewBox=\"0 0 ") + 13));
    const std::size_t text = svg.rfind("<text x=\"", svg.find("overflows"));
    EXPECT_LE(std::stod(svg.substr(text + 9)) + 55, width) << svg;
}

TEST(HeatMap, IsEmptyWhereThereIsNothingButZeros) {
    const Tally none = tally_of({0.0f, 0.0f});
    EXPECT_EQ(svg_heat_map({{"fc1", &none}}, Dtype::f16), "");
    EXPECT_EQ(svg_heat_map({}, Dtype::f16), "");
}

}  // namespace
}  // namespace invar
