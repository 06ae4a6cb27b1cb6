#include "invar/detect/polygon.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "shapes.h"

namespace invar::detect {

using namespace testing;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double total_area(const std::vector<Polygon>& pieces) {
    double area = 0;
    for (const Polygon& piece : pieces) area += signed_area(piece);
    return area;
}

const Polygon kBowTie = {{0, 0}, {10, 10}, {10, 0}, {0, 10}};

}  // namespace

TEST(Polygon, KnowsItsAreaPerimeterAndDirection) {
    EXPECT_EQ(signed_area(box(2, 3, 12, 8)), 50);
    EXPECT_EQ(perimeter(box(2, 3, 12, 8)), 30);
    EXPECT_TRUE(is_clockwise(box(2, 3, 12, 8)));
    Polygon back = box(2, 3, 12, 8);
    std::reverse(back.begin(), back.end());
    EXPECT_EQ(signed_area(back), -50);
    EXPECT_FALSE(is_clockwise(back));
    EXPECT_EQ(signed_area({{0, 0}, {6, 0}, {0, 8}}), 24);
    EXPECT_EQ(perimeter({{0, 0}, {6, 0}, {0, 8}}), 24);
    EXPECT_EQ(signed_area(kEll), 1200);
    EXPECT_EQ(perimeter(kEll), 160);
}

TEST(Polygon, CountsWhatEvenOddFillingCoversWhereItCrossesItself) {
    EXPECT_EQ(signed_area(kBowTie), 0);
    EXPECT_NEAR(covered_area(kBowTie), 50, 1e-6);
    EXPECT_NEAR(covered_area({{0, 0}, {10, 0}, {10, 10}, {0, 10}, {0, 0}, {10, 0}, {10, 10}, {0, 10}}), 0, 1e-9)
        << "twice around";
    EXPECT_EQ(covered_area(kEll), 1200);
}

TEST(Polygon, IsSimpleWhereNoTwoOfItsEdgesMeet) {
    EXPECT_TRUE(is_simple(box(0, 0, 5, 5)));
    EXPECT_TRUE(is_simple(kEll));
    EXPECT_TRUE(is_simple({{0, 0}, {5, 0}, {5, 0}, {5, 5}, {0, 0}})) << "a point twice in a row is one point";
    EXPECT_FALSE(is_simple(kBowTie));
    EXPECT_FALSE(is_simple({{0, 0}, {10, 0}, {5, 0}})) << "there and back";
    EXPECT_FALSE(is_simple({{0, 0}, {10, 0}, {10, 10}, {5, 0}, {0, 10}})) << "a point on another edge";
    EXPECT_FALSE(is_simple({{0, 0}, {1, 1}}));
    EXPECT_FALSE(is_simple({}));
}

TEST(Polygon, HasAConvexHullWithoutPointsOnItsEdges) {
    EXPECT_EQ(convex_hull(kEll), (Polygon{{0, 0}, {20, 0}, {40, 20}, {40, 40}, {0, 40}}));
    EXPECT_EQ(convex_hull(Polygon{{0, 0}, {1, 0}, {2, 0}, {2, 2}, {0, 2}, {1, 1}, {0, 0}}), box(0, 0, 2, 2));
    EXPECT_EQ(convex_hull(Polygon{{1, 1}, {0, 0}, {2, 2}}).size(), 2u);
    EXPECT_TRUE(convex_hull({}).empty());
}

TEST(MinAreaRectangle, FindsARectangleAtAnyAngle) {
    for (int degrees = 0; degrees < 180; degrees += 7) {
        const Rectangle found = min_area_rectangle(rotated_box(100, 80, 60, 13, degrees));
        EXPECT_NEAR(found.long_side, 60, 1e-9) << degrees;
        EXPECT_NEAR(found.short_side, 13, 1e-9) << degrees;
        EXPECT_NEAR(iou(found.polygon(), rotated_box(100, 80, 60, 13, degrees)), 1, 1e-6) << degrees;
        EXPECT_TRUE(is_clockwise(found.polygon()));
        EXPECT_NEAR(iou(found.grown(4).polygon(), rotated_box(100, 80, 68, 21, degrees)), 1, 1e-6) << degrees;
    }
}

TEST(MinAreaRectangle, IsAsSmallAsAnyOfAThousandAngles) {
    Numbers random(7);
    for (int round = 0; round < 50; ++round) {
        const Polygon shape = star(random, 0, 0, 3 + round % 12);
        const double area = min_area_rectangle(shape).area();
        double least = 1e300;
        for (int i = 0; i < 1000; ++i) {
            const double angle = i * std::numbers::pi / 2000, c = std::cos(angle), s = std::sin(angle);
            Polygon turned;
            for (const Point& p : shape) turned.push_back({p.x * c - p.y * s, p.x * s + p.y * c});
            least = std::min(least, bounds_of(turned).width() * bounds_of(turned).height());
        }
        EXPECT_LE(area, least + 1e-9);
        EXPECT_GT(area, least * 0.99);
    }
}

TEST(MinAreaRectangle, OfALineOrAPointHasNoWidth) {
    EXPECT_EQ(min_area_rectangle(Polygon{{3, 4}, {0, 0}}).long_side, 5);
    EXPECT_EQ(min_area_rectangle(Polygon{{3, 4}, {0, 0}}).short_side, 0);
    EXPECT_EQ(min_area_rectangle(Polygon{{3, 4}}).long_side, 0);
    EXPECT_EQ(min_area_rectangle({}).area(), 0);
    EXPECT_NEAR(min_area_rectangle(Polygon{{3, 4}, {0, 0}}).grown(2).area(), 9 * 4, 1e-9);
}

TEST(Iou, IsRightForSquaresTrianglesAndAnEll) {
    EXPECT_DOUBLE_EQ(iou(box(0, 0, 10, 10), box(5, 0, 15, 10)), 1.0 / 3);
    EXPECT_DOUBLE_EQ(iou(box(0, 0, 10, 10), box(0, 0, 10, 5)), 0.5) << "just a half, not a bit more";
    EXPECT_EQ(iou(box(0, 0, 10, 10), box(10, 0, 20, 10)), 0) << "they touch";
    EXPECT_EQ(iou(box(0, 0, 10, 10), box(2, 2, 4, 4)), 0.04);
    EXPECT_NEAR(intersection_area({{0, 0}, {10, 0}, {0, 10}}, {{0, 0}, {10, 0}, {10, 10}}), 25, 1e-6);
    EXPECT_EQ(intersection_area(kEll, box(20, 0, 40, 20)), 0) << "in the corner that the L leaves free";
    EXPECT_EQ(intersection_area(kEll, box(10, 10, 30, 30)), 300);
    Polygon back = kEll;
    std::reverse(back.begin(), back.end());
    EXPECT_EQ(iou(kEll, back), 1) << "whichever way round";
}

TEST(Iou, IsTheSameFarFromTheOriginAndForTinyShapes) {
    EXPECT_DOUBLE_EQ(iou(box(1e6, 1e6, 1e6 + 10, 1e6 + 10), box(1e6 + 5, 1e6, 1e6 + 15, 1e6 + 10)), 1.0 / 3);
    EXPECT_NEAR(iou(box(0, 0, 0.01, 0.01), box(0.005, 0, 0.015, 0.01)), 1.0 / 3, 1e-3);
}

// What shapely 1.8.5 and OpenCV 4.6 say of the same shapes.
TEST(Iou, AgreesWithOtherLibraries) {
    struct Golden {
        int seed;
        double area, intersection, iou, long_side, short_side, grown, shrunk;
    };
    constexpr Golden kGolden[] = {
        {1, 1112.469812125, 685.246511932, 0.304236580, 44.439404, 42.677750, 1926.6447, 498.4464},
        {2, 3321.518305122, 1332.782269434, 0.375715567, 75.092743, 57.702297, 4570.2143, 2254.3609},
        {3, 2328.054777566, 1366.236535777, 0.356721155, 61.860126, 52.467697, 3380.1872, 1456.0183},
        {4, 1710.841726230, 1559.400491170, 0.390910708, 62.961750, 43.858574, 2720.0435, 898.1464},
        {5, 1680.618805937, 667.577580931, 0.252050168, 88.105568, 37.383305, 2792.2011, 807.3710},
        {6, 2389.056394989, 1210.612312542, 0.363835012, 70.751152, 46.865974, 3460.5369, 1490.3489},
    };
    for (const Golden& golden : kGolden) {
        Numbers random(std::uint64_t(golden.seed));
        const Polygon a = star(random, 60, 60, 3 + golden.seed);
        const double x = 70 + 10 * random(), y = 55 + 10 * random();
        const Polygon b = star(random, x, y, 3 + golden.seed);
        EXPECT_NEAR(signed_area(a), golden.area, 1e-6);
        EXPECT_NEAR(intersection_area(a, b), golden.intersection, 1e-3);
        EXPECT_NEAR(iou(a, b), golden.iou, 1e-6);
        EXPECT_NEAR(min_area_rectangle(a).long_side, golden.long_side, 1e-3);
        EXPECT_NEAR(min_area_rectangle(a).short_side, golden.short_side, 1e-3);
        EXPECT_NEAR(total_area(offset(a, 5)), golden.grown, 0.003 * golden.grown);
        EXPECT_NEAR(total_area(offset(a, -5)), golden.shrunk, 0.003 * golden.shrunk);
    }
}

TEST(Iou, AgreesWithPointsCountedOnAGrid) {
    Numbers random(42);
    for (int round = 0; round < 25; ++round) {
        const Polygon a = star(random, 50, 50, 3 + round % 9), b = star(random, 60, 45, 4 + round % 7);
        const Bounds bounds{-10, -10, 120, 120};
        const double counted = counted_area(bounds, [&](Point p) { return contains(a, p) && contains(b, p); });
        const double either = counted_area(bounds, [&](Point p) { return contains(a, p) || contains(b, p); });
        EXPECT_NEAR(intersection_area(a, b), counted, 10) << round;
        EXPECT_NEAR(iou(a, b), counted / either, 0.01) << round;
    }
}

TEST(Offset, GrowsAndShrinksSquaresTrianglesAndAnEll) {
    constexpr double kPi = std::numbers::pi;
    EXPECT_NEAR(total_area(offset(box(10, 10, 30, 20), 3)), 200 + 3 * 60 + 9 * kPi, 0.1);
    EXPECT_NEAR(total_area(offset(box(10, 10, 30, 20), -3)), 14 * 4, 1e-3);
    EXPECT_NEAR(bounds_of(offset(box(10, 10, 30, 20), 3)[0]).right, 33, 1e-3);
    EXPECT_TRUE(offset(box(10, 10, 30, 20), -6).empty());
    // A triangle of sides 30, 40, 50 has an inner circle of radius 10: shrunk by 5 it is half as large each way.
    EXPECT_NEAR(total_area(offset({{0, 0}, {40, 0}, {0, 30}}, -5)), 150, 1e-2);
    // The L loses 5 on all sides, and at its inner corner a quarter of a circle instead of a square.
    EXPECT_NEAR(total_area(offset(kEll, -5)), 30 * 10 + 10 * 20 + (25 - 25 * kPi / 4), 0.1);
}

TEST(Offset, FallsApartWhereAPolygonIsThin) {
    const Polygon dumbbell = {{0, 0},   {20, 0},  {20, 9},  {40, 9},  {40, 0},  {60, 0},
                              {60, 20}, {40, 20}, {40, 11}, {20, 11}, {20, 20}, {0, 20}};
    EXPECT_EQ(offset(dumbbell, -2).size(), 2u);
    EXPECT_EQ(offset(dumbbell, 2).size(), 1u);
}

TEST(Offset, AgreesWithPointsCountedOnAGrid) {
    Numbers random(11);
    for (int round = 0; round < 8; ++round) {
        const Polygon shape = star(random, 60, 60, 3 + round % 9);
        for (const double distance : {-4.0, 7.0}) {
            const double counted = counted_area({-10, -10, 130, 130}, [&](Point p) {
                const double inwards = distance_to_border(shape, p) * (contains(shape, p) ? 1 : -1);
                return inwards > -distance;
            });
            EXPECT_NEAR(total_area(offset(shape, distance)), counted, 12) << round << " by " << distance;
        }
    }
}

TEST(Polygon, SurvivesAnyCoordinates) {
    const std::vector<Polygon> shapes = {{},
                                         {{1, 1}},
                                         {{1, 1}, {2, 2}},
                                         {{0, 0}, {kNan, 0}, {5, 5}},
                                         {{0, 0}, {kInf, 0}, {5, 5}},
                                         {{-kInf, -kInf}, {kInf, -kInf}, {kInf, kInf}, {-kInf, kInf}},
                                         {{0, 0}, {1e308, 1e308}, {-1e308, 1e308}},
                                         {{1e300, 1}, {1e300, 2}, {1e-300, 3}},
                                         {{0, 0}, {0, 0}, {0, 0}},
                                         {{0, 0}, {10, 0}, {20, 0}},
                                         kBowTie,
                                         box(0, 0, 5e-324, 5e-324),
                                         box(5, 5, 20, 20)};
    for (const Polygon& a : shapes) {
        for (const Polygon& b : shapes) {
            const double shared = iou(a, b);
            EXPECT_TRUE(shared >= 0 && shared <= 1) << shared;
        }
        EXPECT_TRUE(std::isfinite(signed_area(a)) && std::isfinite(perimeter(a)) && covered_area(a) >= 0);
        EXPECT_TRUE(std::isfinite(min_area_rectangle(a).area()));
        is_simple(a);
        for (const double distance : {-kInf, -1e30, -1.0, 0.0, 1.0, 1e30, kInf, kNan}) offset(a, distance);
        for (const Polygon& piece : clip_to_image(a, 100, 100)) EXPECT_TRUE(std::isfinite(signed_area(piece)));
    }
}

TEST(ClipToImage, LeavesWhatIsInside) {
    EXPECT_EQ(total_area(clip_to_image(box(-5, -5, 5, 5), 10, 20)), 25);
    EXPECT_EQ(total_area(clip_to_image(box(-5, -5, 50, 50), 10, 20)), 200);
    EXPECT_EQ(clip_to_image(box(1, 1, 5, 5), 10, 20), std::vector<Polygon>{box(1, 1, 5, 5)}) << "untouched";
    EXPECT_TRUE(clip_to_image(box(30, 1, 35, 5), 10, 20).empty());
}

}  // namespace invar::detect
