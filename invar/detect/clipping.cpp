// What of polygon.h is done by Clipper, which computes with integers: polygons are moved to the origin and scaled by a
// power of two, so that whole pixels stay exact and no coordinate comes near the end of its range.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <polyclipping/clipper.hpp>

#include "invar/detect/polygon.h"

namespace invar::detect {

namespace {

using ClipperLib::Path;
using ClipperLib::Paths;

class Frame {
  public:
    Frame(const Bounds& bounds, double margin)
        : left_(std::floor(bounds.left - margin)), top_(std::floor(bounds.top - margin)) {
        const double extent = std::max({bounds.width(), bounds.height(), 0x1p-20}) + 2 * margin + 1;
        scale_ = std::exp2(std::clamp(std::floor(28 - std::log2(extent)), -20.0, 20.0));
    }
    double scale() const { return scale_; }
    Path to_path(const Polygon& polygon) const {
        Path path;
        path.reserve(polygon.size());
        for (const Point& p : polygon)
            path.emplace_back(std::llround((p.x - left_) * scale_), std::llround((p.y - top_) * scale_));
        return path;
    }
    Polygon to_polygon(const Path& path) const {
        Polygon polygon;
        polygon.reserve(path.size());
        for (const ClipperLib::IntPoint& p : path)
            polygon.push_back({double(p.X) / scale_ + left_, double(p.Y) / scale_ + top_});
        return polygon;
    }
    double area(const Paths& paths) const {
        double sum = 0;  // holes count negative
        for (const Path& path : paths) sum += ClipperLib::Area(path);
        return std::abs(sum) / (scale_ * scale_);
    }

  private:
    double left_, top_, scale_ = 1;
};

Bounds joined(const Bounds& a, const Bounds& b) {
    return {std::min(a.left, b.left), std::min(a.top, b.top), std::max(a.right, b.right), std::max(a.bottom, b.bottom)};
}

// What Clipper gives up on, with an exception of its own, has no area.
Paths intersection(const Path& subject, const Path& other) {
    Paths result;
    try {
        ClipperLib::Clipper clipper;
        clipper.AddPath(subject, ClipperLib::ptSubject, true);
        clipper.AddPath(other, ClipperLib::ptClip, true);
        clipper.Execute(ClipperLib::ctIntersection, result, ClipperLib::pftEvenOdd, ClipperLib::pftEvenOdd);
    } catch (const ClipperLib::clipperException&) {
        result.clear();
    }
    return result;
}

double shared_area(const Polygon& a, const Polygon& b) {
    const Bounds a_bounds = bounds_of(a), b_bounds = bounds_of(b);
    if (a.size() < 3 || b.size() < 3 || !a_bounds.overlaps(b_bounds)) return 0;
    const Frame frame(joined(a_bounds, b_bounds), 0);
    return frame.area(intersection(frame.to_path(a), frame.to_path(b)));
}

}  // namespace

double covered_area(const Polygon& polygon) {
    if (is_simple(polygon)) return std::abs(signed_area(polygon));
    const Polygon p = cleaned(polygon);
    if (p.size() < 3) return 0;
    const Frame frame(bounds_of(p), 0);
    try {
        Paths pieces;
        ClipperLib::SimplifyPolygon(frame.to_path(p), pieces, ClipperLib::pftEvenOdd);
        return frame.area(pieces);
    } catch (const ClipperLib::clipperException&) {
        return 0;
    }
}

double intersection_area(const Polygon& a, const Polygon& b) {
    return shared_area(cleaned(a), cleaned(b));
}

double iou(const Polygon& a, const Polygon& b) {
    const double shared = intersection_area(a, b);
    if (!(shared > 0)) return 0;
    const double both = covered_area(a) + covered_area(b) - shared;
    return both > 0 ? std::min(shared / both, 1.0) : 0;
}

std::vector<Polygon> offset(const Polygon& polygon, double distance) {
    const Polygon p = cleaned(polygon);
    if (p.size() < 3 || std::isnan(distance)) return {};
    constexpr double kFurthest = 1e9;
    distance = std::clamp(distance, -kFurthest, kFurthest);
    const Frame frame(bounds_of(p), std::max(distance, 0.0));
    const double scaled = distance * frame.scale();
    // A corner becomes an arc of chords that stray from it by a five-hundredth of the distance: some 50 to the circle.
    ClipperLib::ClipperOffset clipper(2.0, std::max(0.25, std::abs(scaled) / 500));
    Paths pieces;
    try {
        clipper.AddPath(frame.to_path(p), ClipperLib::jtRound, ClipperLib::etClosedPolygon);
        clipper.Execute(pieces, scaled);
    } catch (const ClipperLib::clipperException&) {
        return {};
    }
    std::vector<Polygon> result;
    for (const Path& piece : pieces) result.push_back(frame.to_polygon(piece));
    return result;
}

std::vector<Polygon> clip_to_image(const Polygon& polygon, double height, double width) {
    const Polygon p = cleaned(polygon);
    const Polygon image{{0, 0}, {width, 0}, {width, height}, {0, height}};
    if (p.size() < 3 || !(height > 0) || !(width > 0)) return {};
    const Bounds bounds = bounds_of(p), whole = bounds_of(image);
    if (bounds.left >= 0 && bounds.top >= 0 && bounds.right <= width && bounds.bottom <= height) return {p};
    if (!bounds.overlaps(whole)) return {};
    const Frame frame(joined(bounds, whole), 0);
    std::vector<Polygon> pieces;
    for (const Path& path : intersection(frame.to_path(p), frame.to_path(image)))
        pieces.push_back(frame.to_polygon(path));
    return pieces;
}

}  // namespace invar::detect
