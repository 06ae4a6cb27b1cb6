#include "invar/detect/label_maps.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "invar/detect/raster.h"
#include "shapes.h"

namespace invar::detect {

using namespace testing;

namespace {

std::vector<TextRegion> texts_of(const std::vector<Polygon>& polygons) {
    std::vector<TextRegion> texts;
    for (const Polygon& polygon : polygons) texts.push_back({polygon});
    return texts;
}

Fate fate_of(const TextRegion& text, std::int64_t size = 64, const LabelOptions& options = {}) {
    LabelMaps maps(size, size);
    return draw_labels(std::vector{text}, maps.planes(), options).at(0).fate;
}

// One line a row; # for 1.
std::string picture(const std::vector<float>& map, std::int64_t width) {
    std::string text;
    for (std::size_t i = 0; i < map.size(); ++i) {
        text += map[i] == 1 ? '#' : '.';
        if ((i + 1) % std::size_t(width) == 0) text += '\n';
    }
    return text;
}

double sum(const std::vector<float>& map) {
    double total = 0;
    for (const float value : map) total += double(value);
    return total;
}

}  // namespace

TEST(Raster, TakesPixelsWhoseCentresAreInside) {
    std::int64_t pixels = 0;
    for (const Span& span : spans_of(box(1, 1, 4, 3), 10, 10)) {
        EXPECT_EQ(span.first, 1);
        EXPECT_EQ(span.last, 4);
        pixels += span.last - span.first;
    }
    EXPECT_EQ(pixels, 6);
    EXPECT_TRUE(spans_of(box(1.6, 1.6, 2.4, 2.4), 10, 10).empty()) << "between the centres";
    EXPECT_EQ(spans_of(box(-100, -100, 100, 100), 10, 10).size(), 10u) << "cut at the image";
    EXPECT_TRUE(spans_of(box(20, 20, 30, 30), 10, 10).empty());
    EXPECT_TRUE(spans_of(box(1, 1, 4, 3), 0, 0).empty());
}

TEST(Raster, GivesEachPixelToOneOfTwoNeighbours) {
    const Polygon left = {{0, 0}, {7.5, 0.5}, {3.5, 10}, {0, 10}}, right = {{7.5, 0.5}, {12, 0}, {12, 10}, {3.5, 10}};
    std::vector<int> taken(12 * 12);
    for (const Polygon& half : {left, right})
        for (const Span& span : spans_of(half, 12, 12))
            for (std::int64_t x = span.first; x < span.last; ++x) ++taken[std::size_t(span.row * 12 + x)];
    EXPECT_EQ(*std::max_element(taken.begin(), taken.end()), 1);
    EXPECT_EQ(taken[5 * 12 + 5], 1);
}

TEST(Raster, AgreesWithEachPointAskedAlone) {
    Numbers random(3);
    std::vector<Polygon> shapes = {{{0, 0}, {60, 60}, {60, 0}, {0, 60}}, kEll};
    for (int i = 0; i < 20; ++i) shapes.push_back(star(random, 35, 30, 3 + i));
    for (const Polygon& shape : shapes) {
        std::vector<bool> taken(64 * 64);
        for (const Span& span : spans_of(shape, 64, 64))
            for (std::int64_t x = span.first; x < span.last; ++x) taken[std::size_t(span.row * 64 + x)] = true;
        for (int y = 0; y < 64; ++y)
            for (int x = 0; x < 64; ++x)
                if (distance_to_border(shape, {x + 0.5, y + 0.5}) > 1e-9) {
                    EXPECT_EQ(taken[std::size_t(y * 64 + x)], contains(shape, {x + 0.5, y + 0.5})) << x << ' ' << y;
                }
    }
}

// 10 x 10: A = 100, L = 40, D = 100 * 0.84 / 40 = 2.1, so that [4, 14]^2 becomes [6.1, 11.9]^2: centres 6.5 to 11.5.
TEST(LabelMaps, OfASquareAreWhatOneWorksOutByHand) {
    const LabelMaps maps = make_label_maps(texts_of({box(4, 4, 14, 14)}), 18, 18);
    for (int y = 0; y < 18; ++y)
        for (int x = 0; x < 18; ++x) {
            const std::size_t at = std::size_t(y * 18 + x);
            EXPECT_EQ(maps.probability[at], y >= 6 && y <= 11 && x >= 6 && x <= 11 ? 1 : 0) << x << ' ' << y;
            EXPECT_EQ(maps.probability_mask[at], 1);
        }
    const auto threshold = [&](int x, int y) { return maps.threshold[std::size_t(y * 18 + x)]; };
    EXPECT_NEAR(threshold(9, 3), 0.3 + 0.4 * (1 - 0.5 / 2.1), 1e-6) << "half a pixel above the upper border";
    EXPECT_NEAR(threshold(9, 4), 0.3 + 0.4 * (1 - 0.5 / 2.1), 1e-6) << "and below it";
    EXPECT_NEAR(threshold(9, 2), 0.3 + 0.4 * (1 - 1.5 / 2.1), 1e-6);
    EXPECT_NEAR(threshold(5, 9), 0.3 + 0.4 * (1 - 1.5 / 2.1), 1e-6);
    EXPECT_NEAR(threshold(3, 3), 0.3 + 0.4 * (1 - std::sqrt(0.5) / 2.1), 1e-6) << "off the corner";
    EXPECT_FLOAT_EQ(threshold(9, 9), 0.3f) << "deep inside";
    EXPECT_FLOAT_EQ(threshold(0, 0), 0.3f) << "far away";
    const std::string kGrown =
        "..................\n"
        "..................\n"
        "...############...\n"
        "..##############..\n"
        "..##############..\n";
    EXPECT_EQ(picture(maps.threshold_mask, 18).substr(0, kGrown.size()), kGrown) << "the text grown by 2.1";
}

TEST(LabelMaps, ShrinkToWhatTheOffsetOfThePolygonCovers) {
    Numbers random(5);
    for (int round = 0; round < 30; ++round) {
        const Polygon shape = star(random, 64, 64, 4 + round % 8);
        LabelMaps maps(128, 128);
        const DrawnText drawn = draw_labels(texts_of({shape}), maps.planes()).at(0);
        if (drawn.fate != Fate::drawn) continue;
        double area = 0, grown = 0;
        for (const Polygon& piece : offset(shape, -drawn.distance)) area += signed_area(piece);
        for (const Polygon& piece : offset(shape, drawn.distance)) grown += signed_area(piece);
        EXPECT_NEAR(sum(maps.probability), area, 0.06 * area + 8) << round;
        EXPECT_NEAR(sum(maps.threshold_mask), grown, 0.02 * grown) << round;
        EXPECT_EQ(maps.probability[std::size_t(drawn.row * 128 + drawn.column)], 1);
        for (int y = 0; y < 128; ++y)
            for (int x = 0; x < 128; ++x) {
                const std::size_t at = std::size_t(y * 128 + x);
                const Point centre{x + 0.5, y + 0.5};
                if (maps.probability[at] == 1) {
                    EXPECT_TRUE(contains(shape, centre));
                    EXPECT_GE(distance_to_border(shape, centre), drawn.distance - 1e-3);
                    EXPECT_EQ(maps.threshold_mask[at], 1);
                }
                EXPECT_GE(maps.threshold[at], 0.3f);
                EXPECT_LE(maps.threshold[at], 0.7f);
                if (maps.threshold_mask[at] == 0) {
                    EXPECT_FLOAT_EQ(maps.threshold[at], 0.3f);
                }
            }
    }
}

TEST(LabelMaps, MaskOutTextsThatDoNotCount) {
    std::vector<TextRegion> texts = texts_of({box(4, 4, 24, 20), box(30, 4, 60, 11)});
    texts[0].dont_care = true;
    LabelMaps maps(32, 64);
    const std::vector<DrawnText> drawn = draw_labels(texts, maps.planes());
    EXPECT_EQ(drawn[0].fate, Fate::dont_care);
    EXPECT_EQ(drawn[1].fate, Fate::too_small) << "7 pixels high";
    EXPECT_EQ(sum(maps.probability), 0);
    EXPECT_EQ(sum(maps.threshold_mask), 0);
    EXPECT_EQ(sum(maps.probability_mask), 32 * 64 - 20 * 16 - 30 * 7);
}

TEST(LabelMaps, SayWhatBecameOfEachText) {
    EXPECT_EQ(fate_of({box(10, 10, 40, 18)}), Fate::drawn) << "8 pixels high";
    EXPECT_EQ(fate_of({box(10, 10, 40, 17)}), Fate::too_small);
    EXPECT_EQ(fate_of({rotated_box(32, 32, 30, 6, 45)}), Fate::too_small) << "its bounds are large, it is not";
    EXPECT_EQ(fate_of({box(10, 10, 40, 17)}, 64, {.min_text_size = 3}), Fate::drawn);
    EXPECT_EQ(fate_of({box(70, 10, 90, 30)}), Fate::outside_image);
    EXPECT_EQ(fate_of({{{10, 10}, {40, 40}, {40, 10}, {10, 40}}}), Fate::not_simple);
    EXPECT_EQ(fate_of({{{10, 10}, {40, 40}}}), Fate::not_simple);
    EXPECT_EQ(fate_of({{}}), Fate::not_simple);
    // A comb: much area, and thin everywhere.
    Polygon comb = {{2, 50}};
    for (int i = 0; i < 12; ++i) {
        const double x = 2 + 5 * i;
        comb.insert(comb.end(), {{x, 2}, {x + 2, 2}, {x + 2, 50}, {x + 5, 50}});
    }
    comb.insert(comb.end(), {{62, 51}, {2, 51}});
    EXPECT_EQ(fate_of({comb}, 64, {.shrink_ratio = 0}), Fate::vanished);
}

TEST(LabelMaps, CountATextByItsPartInsideTheImage) {
    const LabelMaps cut = make_label_maps(texts_of({box(-100, 4, 30, 24)}), 40, 40);
    const LabelMaps inside = make_label_maps(texts_of({box(0, 4, 30, 24)}), 40, 40);
    EXPECT_EQ(cut.probability, inside.probability);
    EXPECT_EQ(cut.threshold, inside.threshold);
    EXPECT_EQ(fate_of({box(-100, 4, 5, 24)}), Fate::too_small) << "5 pixels of it are seen";
}

TEST(LabelMaps, OfTwoTextsHoldBoth) {
    const Polygon a = box(4, 4, 34, 24), b = box(38, 4, 60, 24);
    const LabelMaps both = make_label_maps(texts_of({a, b}), 32, 64);
    const LabelMaps one = make_label_maps(texts_of({a}), 32, 64), other = make_label_maps(texts_of({b}), 32, 64);
    for (std::size_t i = 0; i < both.threshold.size(); ++i) {
        EXPECT_EQ(both.threshold[i], std::max(one.threshold[i], other.threshold[i]));
        EXPECT_EQ(both.probability[i], std::max(one.probability[i], other.probability[i]));
        EXPECT_EQ(both.threshold_mask[i], std::max(one.threshold_mask[i], other.threshold_mask[i]));
    }
}

TEST(LabelMaps, SurviveAnyCoordinatesAndSizes) {
    constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
    const std::vector<TextRegion> texts = texts_of({{{kNan, 0}, {5, 5}, {0, 5}},
                                                    {{-kInf, -kInf}, {kInf, -kInf}, {kInf, kInf}, {-kInf, kInf}},
                                                    {{-1e300, 3}, {1e300, 3}, {1e300, 40}, {-1e300, 40}},
                                                    {{0, 0}, {0, 0}, {0, 0}, {0, 0}},
                                                    box(-1e7, -1e7, 1e7, 1e7)});
    for (const std::int64_t size : {0, 1, 48}) {
        LabelMaps maps(size, size);
        EXPECT_EQ(draw_labels(texts, maps.planes()).size(), texts.size());
        for (const float value : maps.threshold) EXPECT_TRUE(value >= 0.3f && value <= 0.7f);
    }
    expect_error<UsageError>([&] { make_label_maps(texts, -1, 5); }, {"-1 x 5"});
    expect_error<UsageError>([&] { make_label_maps(texts, 5, 5, {.shrink_ratio = 1}); }, {"shrink_ratio is 1"});
    expect_error<UsageError>([&] { make_label_maps(texts, 5, 5, {.threshold_min = 0.8f}); }, {"threshold_min 0.8"});
}

}  // namespace invar::detect
