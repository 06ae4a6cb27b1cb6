// Shapes for the tests of invar/detect, and what is known of them by counting points instead of by geometry.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>
#include <vector>

#include "invar/core/error.h"
#include "invar/detect/polygon.h"
#include "invar/detect/text_region.h"

namespace invar::detect::testing {

inline Polygon box(double left, double top, double right, double bottom) {
    return {{left, top}, {right, top}, {right, bottom}, {left, bottom}};
}

inline Polygon rotated_box(double x, double y, double width, double height, double degrees) {
    const double c = std::cos(degrees * std::numbers::pi / 180), s = std::sin(degrees * std::numbers::pi / 180);
    Polygon polygon;
    for (const Point& p : box(-width / 2, -height / 2, width / 2, height / 2))
        polygon.push_back({x + p.x * c - p.y * s, y + p.x * s + p.y * c});
    return polygon;
}

// An L: 40 x 40 without its upper right 20 x 20.
inline const Polygon kEll = {{0, 0}, {20, 0}, {20, 20}, {40, 20}, {40, 40}, {0, 40}};

// Numbers in [0, 1) that any other program can make too, for what it says about the same shapes.
class Numbers {
  public:
    explicit Numbers(std::uint64_t seed) : state_(seed) {}
    double operator()() {
        state_ = state_ * 6364136223846793005u + 1442695040888963407u;
        return double(state_ >> 40) / double(1 << 24);
    }

  private:
    std::uint64_t state_;
};

// Simple, and mostly not convex.
inline Polygon star(Numbers& random, double x, double y, int points) {
    Polygon polygon;
    for (int i = 0; i < points; ++i) {
        const double angle = 2 * std::numbers::pi * (i + 0.8 * random()) / points;
        const double radius = 10 + 40 * random();
        polygon.push_back({x + radius * std::cos(angle), y + radius * std::sin(angle)});
    }
    return polygon;
}

inline bool contains(const Polygon& polygon, Point p) {
    bool inside = false;
    for (std::size_t i = 0, j = polygon.size() - 1; i < polygon.size(); j = i++) {
        const Point a = polygon[i], b = polygon[j];
        if ((a.y > p.y) != (b.y > p.y) && p.x < (b.x - a.x) * (p.y - a.y) / (b.y - a.y) + a.x) inside = !inside;
    }
    return inside;
}

inline double distance_to_border(const Polygon& polygon, Point p) {
    double least = 1e300;
    for (std::size_t i = 0, j = polygon.size() - 1; i < polygon.size(); j = i++) {
        const Point a = polygon[j], b = polygon[i];
        const double length = std::hypot(b.x - a.x, b.y - a.y);
        const double along = ((p.x - a.x) * (b.x - a.x) + (p.y - a.y) * (b.y - a.y)) / length;
        const double across = std::abs((p.x - a.x) * (b.y - a.y) - (p.y - a.y) * (b.x - a.x)) / length;
        if (along > 0 && along < length) least = std::min(least, across);
        least = std::min(least, std::hypot(p.x - a.x, p.y - a.y));
    }
    return least;
}

// The area of the points within `bounds` that a rule takes, by a grid of 4 x 4 points to the pixel.
template <class Rule>
double counted_area(const Bounds& bounds, const Rule& takes) {
    constexpr double kStep = 0.25;
    double count = 0;
    for (double y = bounds.top + kStep / 2; y < bounds.bottom; y += kStep)
        for (double x = bounds.left + kStep / 2; x < bounds.right; x += kStep) count += takes(Point{x, y});
    return count * kStep * kStep;
}

template <class E, class Action>
void expect_error(const Action& action, const std::vector<std::string>& parts) {
    try {
        action();
        ADD_FAILURE() << "nothing was thrown";
    } catch (const E& error) {
        const std::string what = error.what();
        for (const std::string& part : parts) EXPECT_NE(what.find(part), what.npos) << part << " is not in: " << what;
        EXPECT_EQ(what.find('\n'), what.npos) << "one line";
    }
}

}  // namespace invar::detect::testing
