#include "invar/detect/boxes.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <optional>

#include "invar/core/error.h"
#include "invar/detect/raster.h"

namespace invar::detect {

namespace {

void check_sizes(const MapView& map) {
    check<UsageError>(map.height >= 0 && map.width >= 0, "a map of {} x {} pixels cannot hold boxes", map.height,
                      map.width);
}

double mean_inside(const MapView& map, const Polygon& polygon) {
    double sum = 0;
    std::int64_t pixels = 0;
    for (const Span& span : spans_of(polygon, map.height, map.width)) {
        for (std::int64_t x = span.first; x < span.last; ++x) sum += double(map.at(span.row, x));
        pixels += span.last - span.first;
    }
    return pixels > 0 ? sum / double(pixels) : 0;
}

std::optional<Candidate> candidate_of(const MapView& map, const Polygon& border, const BoxOptions& options) {
    Candidate candidate;
    candidate.rectangle = min_area_rectangle(border);
    if (candidate.rectangle.short_side < options.min_size) return std::nullopt;
    candidate.polygon = options.shape == BoxShape::quadrilateral
                            ? candidate.rectangle.polygon()
                            : simplified(border, options.tolerance * perimeter(border));
    if (candidate.polygon.size() < 4) return std::nullopt;
    candidate.score = mean_inside(map, options.score_area == ScoreArea::box ? candidate.polygon : border);
    return candidate;
}

double unclip_distance(double area, double length, const BoxOptions& options) {
    if (options.unclip == Unclip::inverse) return unshrink_distance(area, length, options.shrink_ratio);
    return length > 0 ? area * options.unclip_ratio / length : 0;
}

// Empty where it is too small, or falls apart.
Polygon grown(const Candidate& candidate, const BoxOptions& options) {
    const double least = options.min_size + 2;
    if (options.shape == BoxShape::quadrilateral) {
        const Rectangle& rectangle = candidate.rectangle;
        const Rectangle result = rectangle.grown(unclip_distance(rectangle.area(), rectangle.perimeter(), options));
        return result.short_side < least ? Polygon() : result.polygon();
    }
    const double area = std::abs(signed_area(candidate.polygon));
    std::vector<Polygon> pieces =
        offset(candidate.polygon, unclip_distance(area, perimeter(candidate.polygon), options));
    if (pieces.size() != 1 || min_area_rectangle(pieces[0]).short_side < least) return {};
    return std::move(pieces[0]);
}

// Growing rounds corners by many points, and the image's edge cuts some of them into one line.
Polygon with_fewer_points(Polygon polygon, double tolerance) {
    Polygon fewer = simplified(polygon, tolerance * perimeter(polygon));
    return fewer.size() < 4 ? polygon : fewer;
}

}  // namespace

// Grown by D, a rectangle's area is A + L D + 4 D^2 and its perimeter L + 8 D; D is such that it equals
// c area / perimeter, with c = 1 - r^2.
double unshrink_distance(double area, double perimeter, double shrink_ratio) {
    const double c = 1 - shrink_ratio * shrink_ratio;
    const double a = 4 * (2 - c), b = (1 - c) * perimeter;
    return (std::sqrt(b * b + 4 * a * c * std::max(area, 0.0)) - b) / (2 * a);
}

std::vector<Candidate> find_candidates(const MapView& map, const MapRegions& regions, const BoxOptions& options) {
    std::vector<std::size_t> order(regions.all().size());
    std::iota(order.begin(), order.end(), std::size_t(0));
    const std::size_t most = std::size_t(std::max<std::int64_t>(options.max_candidates, 0));
    if (order.size() > most) {
        std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
            return regions.all()[a].pixels > regions.all()[b].pixels;
        });
        order.resize(most);
        std::sort(order.begin(), order.end());
    }
    std::vector<Candidate> candidates;
    for (const std::size_t region : order) {
        std::optional<Candidate> candidate = candidate_of(map, regions.border_of(regions.all()[region]), options);
        if (!candidate) continue;
        candidate->region = std::int64_t(region);
        candidates.push_back(std::move(*candidate));
    }
    return candidates;
}

std::vector<Candidate> find_candidates(const MapView& map, const BoxOptions& options) {
    check_sizes(map);
    return find_candidates(map, MapRegions(map, float(options.bin_thresh)), options);
}

std::vector<Detection> grow_candidates(const std::vector<Candidate>& candidates, const MapView& map,
                                       std::int64_t image_height, std::int64_t image_width, const BoxOptions& options) {
    std::vector<Detection> detections;
    const double height = double(image_height), width = double(image_width);
    for (const Candidate& candidate : candidates) {
        if (!(candidate.score >= options.box_thresh)) continue;
        Polygon polygon = grown(candidate, options);
        if (polygon.empty()) continue;
        for (Point& p : polygon)
            p = {std::clamp(p.x * width / double(map.width), 0.0, width),
                 std::clamp(p.y * height / double(map.height), 0.0, height)};
        if (options.shape == BoxShape::polygon) polygon = with_fewer_points(std::move(polygon), options.tolerance);
        detections.push_back({std::move(polygon), candidate.score, candidate.region});
    }
    std::stable_sort(detections.begin(), detections.end(),
                     [](const Detection& a, const Detection& b) { return a.score > b.score; });
    return detections;
}

std::vector<Detection> find_boxes(const MapView& map, std::int64_t image_height, std::int64_t image_width,
                                  const BoxOptions& options) {
    check<UsageError>(image_height >= 0 && image_width >= 0, "an image of {} x {} pixels cannot hold boxes",
                      image_height, image_width);
    return grow_candidates(find_candidates(map, options), map, image_height, image_width, options);
}

}  // namespace invar::detect
