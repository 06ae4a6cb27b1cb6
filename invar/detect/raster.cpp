#include "invar/detect/raster.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace invar::detect {

namespace {

// An edge that crosses the centres of rows first to last - 1.
struct Edge {
    std::int64_t first, last;
    Point top;
    double slope;  // of x in y
    double at(std::int64_t row) const { return top.x + (double(row) + 0.5 - top.y) * slope; }
};

// The first centre at or behind a coordinate, within 0 and `end`.
std::int64_t first_centre(double coordinate, std::int64_t end) {
    return std::int64_t(std::clamp(std::ceil(coordinate - 0.5), 0.0, double(end)));
}

std::vector<Edge> edges_of(const Polygon& p, std::int64_t height) {
    std::vector<Edge> edges;
    edges.reserve(p.size());
    for (std::size_t i = 0; i < p.size(); ++i) {
        Point a = p[i], b = p[(i + 1) % p.size()];
        if (a.y > b.y) std::swap(a, b);
        const std::int64_t first = first_centre(a.y, height), last = first_centre(b.y, height);
        if (first < last) edges.push_back({first, last, a, (b.x - a.x) / (b.y - a.y)});
    }
    std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) { return a.first < b.first; });
    return edges;
}

}  // namespace

std::vector<Span> spans_of(const Polygon& polygon, std::int64_t height, std::int64_t width) {
    const std::vector<Edge> edges = edges_of(cleaned(polygon), height);
    std::vector<Span> spans;
    if (edges.empty() || width <= 0) return spans;
    std::vector<const Edge*> active;
    std::vector<double> crossings;
    std::size_t next = 0;
    for (std::int64_t row = edges[0].first; next < edges.size() || !active.empty(); ++row) {
        std::erase_if(active, [&](const Edge* edge) { return edge->last <= row; });
        while (next < edges.size() && edges[next].first <= row) active.push_back(&edges[next++]);
        crossings.clear();
        for (const Edge* edge : active) crossings.push_back(edge->at(row));
        std::sort(crossings.begin(), crossings.end());
        for (std::size_t i = 0; i + 1 < crossings.size(); i += 2) {
            const std::int64_t first = first_centre(crossings[i], width), last = first_centre(crossings[i + 1], width);
            if (first < last) spans.push_back({row, first, last});
        }
    }
    return spans;
}

}  // namespace invar::detect
