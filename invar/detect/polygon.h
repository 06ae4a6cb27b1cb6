// Polygons in an image: areas, rectangles around them, what two of them share, and growing and shrinking them.
// Coordinates are continuous: pixel (column i, row j) covers [i, i + 1] x [j, j + 1], and y grows downwards.
#pragma once

#include <array>
#include <span>
#include <vector>

namespace invar::detect {

struct Point {
    double x = 0, y = 0;
    bool operator==(const Point&) const = default;
};

// The last point is joined to the first. Any number of points may come from a file, also none, and in any order: a
// polygon with a coordinate that is NaN counts as empty, and coordinates beyond a billion as a billion.
using Polygon = std::vector<Point>;

struct Bounds {
    double left = 0, top = 0, right = 0, bottom = 0;
    double width() const { return right - left; }
    double height() const { return bottom - top; }
    bool overlaps(const Bounds& other) const {
        return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
    }
};

// A rectangle at any angle: corners go clockwise on the screen, from the one that is furthest to the upper left.
struct Rectangle {
    std::array<Point, 4> corners;
    double long_side = 0, short_side = 0;

    double area() const { return long_side * short_side; }
    double perimeter() const { return 2 * (long_side + short_side); }
    // Every side moved outwards by this much: the smallest rectangle around the rectangle's own offset.
    Rectangle grown(double distance) const;
    Polygon polygon() const { return {corners.begin(), corners.end()}; }
};

// Positive where the points go clockwise on the screen. Of a polygon that crosses itself, parts cancel.
double signed_area(const Polygon& polygon);
// What even-odd filling covers; for a simple polygon the absolute value of signed_area.
double covered_area(const Polygon& polygon);
double perimeter(const Polygon& polygon);
bool is_clockwise(const Polygon& polygon);
// Three points or more, and no two edges meet but neighbours in their common point.
bool is_simple(const Polygon& polygon);
Bounds bounds_of(std::span<const Point> points);

// Clockwise on the screen, without points on its edges.
Polygon convex_hull(std::span<const Point> points);
// The one of least area, by rotating calipers; all zeros where there is no point.
Rectangle min_area_rectangle(std::span<const Point> points);

// Of what even-odd filling covers, so that any two polygons will do. Resolved to 2^-28 of their joint extent, or 2^-20
// where that is finer.
double intersection_area(const Polygon& a, const Polygon& b);
// Intersection over union; 0 where both have no area.
double iou(const Polygon& a, const Polygon& b);

// Grown by a positive distance, with round corners, or shrunk by a negative one. The result may be in several pieces,
// or none; pieces are clockwise, holes in them counter-clockwise.
std::vector<Polygon> offset(const Polygon& polygon, double distance);

// The parts of a polygon inside [0, width] x [0, height].
std::vector<Polygon> clip_to_image(const Polygon& polygon, double height, double width);

// As this file's functions see it: empty where a coordinate is NaN, no coordinate beyond a billion, no point twice in a
// row.
Polygon cleaned(const Polygon& polygon);

}  // namespace invar::detect
