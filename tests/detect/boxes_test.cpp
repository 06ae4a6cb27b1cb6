#include "invar/detect/boxes.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "invar/detect/label_maps.h"
#include "invar/detect/raster.h"
#include "shapes.h"

namespace invar::detect {

using namespace testing;

namespace {

struct Map {
    std::int64_t height, width;
    std::vector<float> values = std::vector<float>(std::size_t(height * width));

    MapView view() const { return {values.data(), height, width}; }
    void fill(const Polygon& polygon, float value) {
        for (const Span& span : spans_of(polygon, height, width))
            std::fill_n(values.begin() + span.row * width + span.first, span.last - span.first, value);
    }
};

// From lines of . and #
Map drawn(const std::vector<std::string>& lines) {
    Map map{std::int64_t(lines.size()), std::int64_t(lines.at(0).size())};
    for (std::size_t i = 0; i < map.values.size(); ++i)
        map.values[i] = lines[i / lines[0].size()][i % lines[0].size()] == '#' ? 1.0f : 0.0f;
    return map;
}

Map label_of(const std::vector<Polygon>& polygons, std::int64_t height, std::int64_t width) {
    std::vector<TextRegion> texts;
    for (const Polygon& polygon : polygons) texts.push_back({polygon});
    return {height, width, make_label_maps(texts, height, width).probability};
}

std::vector<Detection> boxes_in(const Map& map, const BoxOptions& options = {}) {
    return find_boxes(map.view(), map.height, map.width, options);
}

// The greatest distance of a corner to the nearest corner of the other.
double furthest_corner(const Polygon& a, const Polygon& b) {
    double most = 0;
    for (const Point& p : a) {
        double least = 1e300;
        for (const Point& q : b) least = std::min(least, std::hypot(p.x - q.x, p.y - q.y));
        most = std::max(most, least);
    }
    return most;
}

Polygon border_of_only(const Map& map) {
    const MapRegions regions(map.view(), 0.5f);
    EXPECT_EQ(regions.all().size(), 1u);
    return regions.border_of(regions.all().at(0));
}

}  // namespace

TEST(MapRegions, AreOfPixelsThatTouchByASideOrACorner) {
    const Map map = drawn({"##.#.", "..#..", ".....", "#.#.#", "###.#"});
    const MapRegions regions(map.view(), 0.5f);
    ASSERT_EQ(regions.all().size(), 3u);
    EXPECT_EQ(regions.all()[0].pixels, 4) << "by corners, on both sides";
    EXPECT_EQ(regions.all()[1].pixels, 5) << "a U, whose arms are found before they meet";
    EXPECT_EQ(regions.all()[2].pixels, 2);
    EXPECT_EQ(regions.region_at(3, 2), 1);
    EXPECT_EQ(regions.region_at(0, 3), 0);
    EXPECT_EQ(regions.region_at(2, 2), -1);
    EXPECT_EQ(regions.region_at(-1, 0), -1);
    EXPECT_EQ(regions.region_at(0, 5), -1);
}

TEST(MapRegions, AgreeWithAFloodFill) {
    Numbers random(17);
    for (int round = 0; round < 20; ++round) {
        Map map{24, 31};
        for (float& value : map.values) value = random() < 0.2 + 0.02 * round ? 1.0f : 0.0f;
        const MapRegions regions(map.view(), 0.5f);
        std::vector<int> label(map.values.size(), -1);
        int count = 0;
        for (std::size_t start = 0; start < label.size(); ++start) {
            if (map.values[start] == 0 || label[start] >= 0) continue;
            std::vector<std::size_t> open = {start};
            std::int64_t pixels = 0;
            while (!open.empty()) {
                const std::size_t at = open.back();
                open.pop_back();
                if (label[at] >= 0) continue;
                label[at] = count, ++pixels;
                for (int dy = -1; dy <= 1; ++dy)
                    for (int dx = -1; dx <= 1; ++dx) {
                        const int y = int(at) / 31 + dy, x = int(at) % 31 + dx;
                        if (y >= 0 && y < 24 && x >= 0 && x < 31 && map.values[std::size_t(y * 31 + x)] > 0)
                            open.push_back(std::size_t(y * 31 + x));
                    }
            }
            ASSERT_LT(std::size_t(count), regions.all().size());
            EXPECT_EQ(regions.all()[std::size_t(count)].pixels, pixels);
            ++count;
        }
        EXPECT_EQ(regions.all().size(), std::size_t(count));
        for (std::size_t i = 0; i < label.size(); ++i)
            EXPECT_EQ(regions.region_at(std::int64_t(i) / 31, std::int64_t(i) % 31), label[i]);
        // A border encloses its region's pixels; what else it encloses are holes and what lies in them.
        for (std::size_t i = 0; i < regions.all().size(); ++i) {
            const Polygon border = regions.border_of(regions.all()[i]);
            EXPECT_TRUE(is_clockwise(border));
            for (std::size_t at = 0; at < label.size(); ++at)
                if (label[at] == int(i)) {
                    EXPECT_TRUE(contains(border, {double(at % 31) + 0.5, double(at / 31) + 0.5}));
                }
        }
    }
}

TEST(MapRegions, HaveABorderBetweenTheirPixelsAndOthers) {
    EXPECT_EQ(border_of_only(drawn({"...", ".#.", "..."})), (Polygon{{1.5, 1}, {2, 1.5}, {1.5, 2}, {1, 1.5}}));
    const Polygon bar = border_of_only(drawn({"####", "####"}));
    EXPECT_EQ(bar, (Polygon{{0.5, 0}, {3.5, 0}, {4, 0.5}, {4, 1.5}, {3.5, 2}, {0.5, 2}, {0, 1.5}, {0, 0.5}}));
    EXPECT_EQ(min_area_rectangle(bar).long_side, 4);
    EXPECT_EQ(min_area_rectangle(bar).short_side, 2);
    EXPECT_EQ(border_of_only(drawn({"#####", "#...#", "#...#", "#####"})).size(), 8u) << "a hole has no border";
    EXPECT_EQ(border_of_only(drawn({"#.", ".#"})).size(), 8u) << "once around two that touch by a corner";
}

TEST(Simplified, LeavesOutPointsNearTheLine) {
    EXPECT_EQ(simplified({{0, 0}, {5, 0.1}, {10, 0}, {10, 10}, {5, 9.9}, {0, 10}}, 0.5), box(0, 0, 10, 10));
    EXPECT_EQ(simplified({{0, 0}, {5, 0.1}, {10, 0}, {10, 10}, {5, 9.9}, {0, 10}}, 0.05).size(), 6u);
    EXPECT_EQ(simplified({{0, 0}, {1, 1}}, 5).size(), 2u);
    Polygon circle;
    for (int i = 0; i < 1000; ++i) circle.push_back({100 * std::cos(i * 0.0062832), 100 * std::sin(i * 0.0062832)});
    const Polygon fewer = simplified(circle, 1);
    EXPECT_LT(fewer.size(), 40u);
    for (const Point& p : circle) EXPECT_LE(distance_to_border(fewer, p), 1 + 1e-9);
}

TEST(UnshrinkDistance, UndoesTheShrinkingOfARectangle) {
    for (const double width : {10.0, 30.0, 100.0, 400.0}) {
        const Polygon text = box(0, 0, width, 10);
        const double distance = shrink_distance(text, 0.4), w = width - 2 * distance, h = 10 - 2 * distance;
        EXPECT_NEAR(unshrink_distance(w * h, 2 * (w + h), 0.4), distance, 1e-9) << width;
    }
}

TEST(Boxes, FindAShrunkRectangleAgainToThePixel) {
    for (const Polygon& text : {box(10, 10, 90, 40), box(20, 30, 120, 70), box(5, 5, 45, 110)}) {
        const std::vector<Detection> found = boxes_in(label_of({text}, 120, 128), {.unclip = Unclip::inverse});
        ASSERT_EQ(found.size(), 1u);
        EXPECT_LT(furthest_corner(text, found[0].polygon), 1.5) << "at most a pixel each way";
        EXPECT_GT(iou(text, found[0].polygon), 0.93);
        EXPECT_EQ(found[0].score, 1);
    }
}

TEST(Boxes, FindRotatedRectanglesAgain) {
    for (int degrees = -80; degrees <= 90; degrees += 10) {
        const Polygon text = rotated_box(100, 100, 90, 36, degrees);
        for (const BoxShape shape : {BoxShape::quadrilateral, BoxShape::polygon}) {
            const std::vector<Detection> found =
                boxes_in(label_of({text}, 200, 200), {.shape = shape, .unclip = Unclip::inverse});
            ASSERT_EQ(found.size(), 1u) << degrees;
            EXPECT_GT(iou(text, found[0].polygon), 0.9) << degrees;
        }
    }
}

TEST(Boxes, GrowByAreaTimesRatioOverPerimeter) {
    Map map{60, 100};
    map.fill(box(20, 20, 60, 30), 0.9f);
    const std::vector<Detection> found = boxes_in(map);  // 400 * 1.5 / 100 = 6
    ASSERT_EQ(found.size(), 1u);
    EXPECT_LT(furthest_corner(box(14, 14, 66, 36), found[0].polygon), 1e-6);
    EXPECT_NEAR(found[0].score, 0.9, 1e-6);
    EXPECT_LT(furthest_corner(box(12, 12, 68, 38), boxes_in(map, {.unclip_ratio = 2}).at(0).polygon), 1e-6);
}

// 40 x 10 pixels grow by 400 * 1.5 / 100 = 6. The tolerance is 0.002 of a perimeter of 80 + 20 + 2 pi 6 = 138: 0.28
// pixels, which chords of up to 35 degrees keep on a circle of radius 6: three or four of them to a corner, where
// growing makes many.
TEST(Boxes, AsPolygonsHaveNoMorePointsThanTheirToleranceAsks) {
    Map map{40, 80};
    map.fill(box(20, 15, 60, 25), 1.0f);
    const BoxOptions options{.shape = BoxShape::polygon};
    const Polygon found = boxes_in(map, options).at(0).polygon;
    EXPECT_GE(found.size(), 12u);
    EXPECT_LE(found.size(), 24u);
    const Polygon round = offset(box(20, 15, 60, 25), 6).at(0);
    EXPECT_GT(round.size(), 2 * found.size());
    EXPECT_GT(iou(round, found), 0.96);
    // Cut at the edges of the image, its corners are two points at most.
    Map full{40, 80};
    full.fill(box(0, 0, 80, 40), 1.0f);
    EXPECT_EQ(boxes_in(full, options).at(0).polygon.size(), 4u);
}

TEST(Boxes, FollowACurveAsAPolygon) {
    Polygon arc;  // a band of 60 degrees
    for (int i = 0; i <= 12; ++i)
        arc.push_back({100 + 90 * std::cos((240 + 5 * i) * 0.0174533), 110 + 90 * std::sin((240 + 5 * i) * 0.0174533)});
    for (int i = 12; i >= 0; --i)
        arc.push_back({100 + 60 * std::cos((240 + 5 * i) * 0.0174533), 110 + 60 * std::sin((240 + 5 * i) * 0.0174533)});
    const Map map = label_of({arc}, 128, 200);
    const Detection curved = boxes_in(map, {.shape = BoxShape::polygon, .unclip = Unclip::inverse}).at(0);
    const Detection straight = boxes_in(map, {.box_thresh = 0.3, .unclip = Unclip::inverse}).at(0);
    EXPECT_GT(iou(arc, curved.polygon), 0.88);
    EXPECT_LT(iou(arc, straight.polygon), 0.8);
}

TEST(Boxes, TakeTouchingNeighboursForOneAndPartedOnesForTwo) {
    EXPECT_EQ(boxes_in(label_of({box(10, 10, 50, 30), box(50, 10, 90, 30)}, 40, 100)).size(), 2u)
        << "labels are shrunk, so that neighbours come apart";
    Map map{40, 100};
    map.fill(box(10, 10, 50, 30), 1);
    map.fill(box(50, 10, 90, 30), 1);
    EXPECT_EQ(boxes_in(map).size(), 1u);
}

TEST(Boxes, AreScoredOverTheBoxOrInsideTheBorder) {
    Map map{60, 60};  // a frame: its hole counts to both
    map.fill(box(10, 10, 50, 50), 1);
    map.fill(box(15, 15, 45, 45), 0);
    EXPECT_NEAR(find_candidates(map.view()).at(0).score, 700.0 / 1600, 1e-6);
    Map ell{60, 60};  // an L: the corner that it leaves free counts to its box alone
    ell.fill(kEll, 1);
    EXPECT_LT(find_candidates(ell.view()).at(0).score, 0.9);
    EXPECT_NEAR(find_candidates(ell.view(), {.score_area = ScoreArea::border}).at(0).score, 1, 1e-6);
    EXPECT_TRUE(boxes_in(map).empty()) << "0.44 is below 0.6";
    EXPECT_EQ(boxes_in(map, {.box_thresh = 0.4}).size(), 1u);
}

TEST(Boxes, DropWhatIsTooSmall) {
    Map map{40, 40};
    map.values[5 * 40 + 5] = 1;
    EXPECT_TRUE(boxes_in(map).empty()) << "one pixel";
    map.fill(box(10, 10, 30, 12), 1);
    EXPECT_TRUE(boxes_in(map).empty()) << "two rows";
    map.fill(box(10, 20, 30, 23), 1);
    EXPECT_EQ(boxes_in(map).size(), 1u) << "three rows";
    EXPECT_TRUE(boxes_in(map, {.unclip_ratio = 0.1}).empty()) << "not five after growing";
}

TEST(Boxes, OfAFullMapAreTheWholeImage) {
    Map map{32, 64, std::vector<float>(32 * 64, 1.0f)};
    const std::vector<Detection> found = find_boxes(map.view(), 320, 320);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_LT(furthest_corner(box(0, 0, 320, 320), found[0].polygon), 1e-6) << "cut at the image";
}

TEST(Boxes, AreScaledToTheImageAndSortedByScore) {
    Map map{50, 100};
    map.fill(box(10, 10, 30, 20), 0.7f);
    map.fill(box(50, 10, 80, 30), 0.95f);
    const std::vector<Detection> found = find_boxes(map.view(), 100, 400, {.unclip_ratio = 0});
    ASSERT_EQ(found.size(), 2u);
    EXPECT_LT(furthest_corner(box(200, 20, 320, 60), found[0].polygon), 1e-6);
    EXPECT_LT(furthest_corner(box(40, 20, 120, 40), found[1].polygon), 1e-6);
    EXPECT_GT(found[0].score, found[1].score);
    EXPECT_EQ(boxes_in(map, {.max_candidates = 1}).size(), 1u);
    EXPECT_EQ(boxes_in(map, {.max_candidates = 1}).at(0).region, 1) << "the largest";
}

TEST(Boxes, TakeNanForNothing) {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    Map map{40, 40, std::vector<float>(40 * 40, kNan)};
    EXPECT_TRUE(boxes_in(map).empty());
    map.fill(box(5, 5, 35, 25), 1);
    map.values[10 * 40 + 10] = kNan;
    map.values[11 * 40 + 11] = std::numeric_limits<float>::infinity();
    ASSERT_EQ(boxes_in(map, {.unclip_ratio = 0}).size(), 1u);
    EXPECT_LT(furthest_corner(box(5, 5, 35, 25), boxes_in(map, {.unclip_ratio = 0})[0].polygon), 1e-6);
}

TEST(Boxes, OfAnEmptyMapAreNone) {
    EXPECT_TRUE(boxes_in({0, 0}).empty());
    EXPECT_TRUE(boxes_in({0, 10}).empty());
    EXPECT_TRUE(boxes_in({10, 10}).empty());
    expect_error<UsageError>([] { find_boxes({nullptr, -1, 5}, 10, 10); }, {"-1 x 5"});
}

TEST(Boxes, SurviveNoise) {
    Numbers random(23);
    Map map{96, 96};
    for (const BoxShape shape : {BoxShape::quadrilateral, BoxShape::polygon})
        for (const double density : {0.05, 0.3, 0.41, 0.5, 0.9}) {
            for (float& value : map.values) value = random() < density ? float(random()) : 0.0f;
            for (const Detection& found : boxes_in(map, {.shape = shape, .bin_thresh = 0.0, .box_thresh = 0.0}))
                for (const Point& p : found.polygon) EXPECT_TRUE(p.x >= 0 && p.x <= 96 && p.y >= 0 && p.y <= 96);
        }
}

}  // namespace invar::detect
