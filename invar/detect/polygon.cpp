#include "invar/detect/polygon.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace invar::detect {

namespace {

constexpr double kFar = 1e9;

// Twice the area of the triangle, positive where it turns clockwise on the screen.
double turn(Point a, Point b, Point c) {
    return (b.x - a.x) * (c.y - a.y) - (b.y - a.y) * (c.x - a.x);
}

double dot(Point a, Point b) {
    return a.x * b.x + a.y * b.y;
}

Point minus(Point a, Point b) {
    return {a.x - b.x, a.y - b.y};
}

bool lies_within(Point a, Point b, Point p) {
    return std::min(a.x, b.x) <= p.x && p.x <= std::max(a.x, b.x) && std::min(a.y, b.y) <= p.y &&
           p.y <= std::max(a.y, b.y);
}

bool segments_meet(Point a, Point b, Point c, Point d) {
    const double c_side = turn(a, b, c), d_side = turn(a, b, d), a_side = turn(c, d, a), b_side = turn(c, d, b);
    const auto opposite = [](double s, double t) { return (s > 0 && t < 0) || (s < 0 && t > 0); };
    if (opposite(c_side, d_side) && opposite(a_side, b_side)) return true;
    return (c_side == 0 && lies_within(a, b, c)) || (d_side == 0 && lies_within(a, b, d)) ||
           (a_side == 0 && lies_within(c, d, a)) || (b_side == 0 && lies_within(c, d, b));
}

// Corners by what lies furthest along and across an edge of the hull.
Rectangle make_rectangle(Point origin, Point along, double left, double right, double depth) {
    const Point across{-along.y, along.x};
    const auto at = [&](double u, double v) {
        return Point{origin.x + u * along.x + v * across.x, origin.y + u * along.y + v * across.y};
    };
    Rectangle rectangle{{at(left, 0), at(right, 0), at(right, depth), at(left, depth)}, right - left, depth};
    if (rectangle.long_side < rectangle.short_side) std::swap(rectangle.long_side, rectangle.short_side);
    const auto first = std::min_element(rectangle.corners.begin(), rectangle.corners.end(),
                                        [](Point a, Point b) { return a.x + a.y < b.x + b.y; });
    std::rotate(rectangle.corners.begin(), first, rectangle.corners.end());
    return rectangle;
}

}  // namespace

Polygon cleaned(const Polygon& polygon) {
    Polygon result;
    result.reserve(polygon.size());
    for (const Point& p : polygon) {
        if (std::isnan(p.x) || std::isnan(p.y)) return {};
        const Point q{std::clamp(p.x, -kFar, kFar), std::clamp(p.y, -kFar, kFar)};
        if (result.empty() || !(result.back() == q)) result.push_back(q);
    }
    while (result.size() > 1 && result.front() == result.back()) result.pop_back();
    return result;
}

double signed_area(const Polygon& polygon) {
    const Polygon p = cleaned(polygon);
    double twice = 0;  // from the first point, so that an area far from the origin keeps its digits
    for (std::size_t i = 2; i < p.size(); ++i) twice += turn(p[0], p[i - 1], p[i]);
    return twice / 2;
}

double perimeter(const Polygon& polygon) {
    const Polygon p = cleaned(polygon);
    double length = 0;
    for (std::size_t i = 0; i < p.size(); ++i) {
        const Point edge = minus(p[(i + 1) % p.size()], p[i]);
        length += std::hypot(edge.x, edge.y);
    }
    return length;
}

bool is_clockwise(const Polygon& polygon) {
    return signed_area(polygon) > 0;
}

bool is_simple(const Polygon& polygon) {
    const Polygon p = cleaned(polygon);
    const std::size_t n = p.size();
    if (n < 3) return false;
    for (std::size_t i = 0; i < n; ++i) {
        const Point a = p[i], b = p[(i + 1) % n], c = p[(i + 2) % n];
        if (turn(a, b, c) == 0 && dot(minus(a, b), minus(c, b)) > 0) return false;  // there and back
        for (std::size_t j = i + 2; j < n; ++j) {
            if (i == 0 && j == n - 1) continue;  // neighbours around the end
            if (segments_meet(a, b, p[j], p[(j + 1) % n])) return false;
        }
    }
    return true;
}

Bounds bounds_of(std::span<const Point> points) {
    if (points.empty()) return {};
    Bounds bounds{points[0].x, points[0].y, points[0].x, points[0].y};
    for (const Point& p : points) {
        bounds.left = std::min(bounds.left, p.x), bounds.right = std::max(bounds.right, p.x);
        bounds.top = std::min(bounds.top, p.y), bounds.bottom = std::max(bounds.bottom, p.y);
    }
    return bounds;
}

// Andrew's: the points by x, once forth and once back.
Polygon convex_hull(std::span<const Point> points) {
    Polygon sorted = cleaned({points.begin(), points.end()});
    std::sort(sorted.begin(), sorted.end(), [](Point a, Point b) { return a.x != b.x ? a.x < b.x : a.y < b.y; });
    sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
    if (sorted.size() < 3) return sorted;
    Polygon hull;
    const auto chain = [&](auto begin, auto end) {
        const std::size_t base = hull.size();
        for (auto p = begin; p != end; ++p) {
            while (hull.size() >= base + 2 && turn(hull[hull.size() - 2], hull.back(), *p) <= 0) hull.pop_back();
            hull.push_back(*p);
        }
        hull.pop_back();  // the other chain begins with it
    };
    chain(sorted.begin(), sorted.end());
    chain(sorted.rbegin(), sorted.rend());
    return hull;
}

Rectangle min_area_rectangle(std::span<const Point> points) {
    const Polygon hull = convex_hull(points);
    const std::size_t n = hull.size();
    if (n == 0) return {};
    if (n < 3) {
        const Point edge = minus(hull.back(), hull.front());
        const double length = std::hypot(edge.x, edge.y);
        const Point along = length > 0 ? Point{edge.x / length, edge.y / length} : Point{1, 0};
        return make_rectangle(hull.front(), along, 0, length, 0);
    }
    // As the edge goes round, so do the points that lie furthest ahead, across and behind; none ever goes back.
    Rectangle best;
    double best_area = 0;
    std::size_t ahead = 1, far = 1, behind = 1;
    for (std::size_t i = 0; i < n; ++i) {
        const Point a = hull[i], edge = minus(hull[(i + 1) % n], a);
        const double length = std::hypot(edge.x, edge.y);
        const Point along{edge.x / length, edge.y / length}, across{-along.y, along.x};
        const auto advance = [&](std::size_t& at, Point direction) {
            for (std::size_t steps = 0; steps < n; ++steps) {
                const Point next = hull[(at + 1) % n];
                if (dot(minus(next, hull[at % n]), direction) < 0) break;
                at = (at + 1) % n;
            }
        };
        if (i == 0) ahead = 0;
        advance(ahead, along);
        if (i == 0) far = ahead;
        advance(far, across);
        if (i == 0) behind = far;
        advance(behind, {-along.x, -along.y});
        const double right = dot(minus(hull[ahead], a), along), left = dot(minus(hull[behind], a), along);
        const double depth = dot(minus(hull[far], a), across), area = (right - left) * depth;
        if (i == 0 || area < best_area) best = make_rectangle(a, along, left, right, depth), best_area = area;
    }
    return best;
}

Rectangle Rectangle::grown(double distance) const {
    Point u = minus(corners[1], corners[0]), v = minus(corners[3], corners[0]);
    const double u_length = std::hypot(u.x, u.y), v_length = std::hypot(v.x, v.y);
    if (u_length > 0) u = {u.x / u_length, u.y / u_length};
    v = v_length > 0 ? Point{v.x / v_length, v.y / v_length} : Point{-u.y, u.x};
    if (!(u_length > 0)) u = {v.y, -v.x};
    Rectangle result{corners, std::max(0.0, long_side + 2 * distance), std::max(0.0, short_side + 2 * distance)};
    constexpr int kSigns[4][2] = {{-1, -1}, {1, -1}, {1, 1}, {-1, 1}};
    for (std::size_t i = 0; i < 4; ++i) {
        result.corners[i].x += distance * (kSigns[i][0] * u.x + kSigns[i][1] * v.x);
        result.corners[i].y += distance * (kSigns[i][0] * u.y + kSigns[i][1] * v.y);
    }
    return result;
}

}  // namespace invar::detect
