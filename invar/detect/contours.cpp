#include "invar/detect/contours.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>

namespace invar::detect {

namespace {

// Which runs are of one region, while that is being found out. The root of a region is its first run.
class Unions {
  public:
    std::int64_t add() {
        parents_.push_back(std::int64_t(parents_.size()));
        return parents_.back();
    }
    std::int64_t root(std::int64_t at) {
        while (parents_[std::size_t(at)] != at)
            at = parents_[std::size_t(at)] = parents_[std::size_t(parents_[std::size_t(at)])];
        return at;
    }
    void join(std::int64_t a, std::int64_t b) {
        a = root(a), b = root(b);
        parents_[std::size_t(std::max(a, b))] = std::min(a, b);
    }

  private:
    std::vector<std::int64_t> parents_;
};

double squared_distance(Point p, Point a, Point b) {
    const double dx = b.x - a.x, dy = b.y - a.y, px = p.x - a.x, py = p.y - a.y;
    const double squared = dx * dx + dy * dy;
    const double t = squared > 0 ? std::clamp((px * dx + py * dy) / squared, 0.0, 1.0) : 0;
    return (px - t * dx) * (px - t * dx) + (py - t * dy) * (py - t * dy);
}

}  // namespace

MapRegions::MapRegions(const MapView& map, float threshold)
    : height_(map.height),
      width_(map.width),
      inside_(std::size_t(map.height * map.width)),
      rows_(std::size_t(map.height)) {
    Unions unions;
    for (std::int64_t row = 0; row < height_; ++row) {
        std::uint8_t* inside = inside_.data() + row * width_;
        for (std::int64_t x = 0; x < width_; ++x) inside[x] = map.values[row * width_ + x] > threshold;  // not NaN
        std::vector<Run>& runs = rows_[std::size_t(row)];
        for (std::int64_t x = 0; x < width_; ++x) {
            if (!inside[x]) continue;
            const std::int64_t first = x;
            while (x < width_ && inside[x]) ++x;
            runs.push_back({first, x, unions.add()});
        }
        if (row == 0) continue;
        const std::vector<Run>& above = rows_[std::size_t(row - 1)];
        for (std::size_t i = 0, j = 0; i < above.size() && j < runs.size();) {
            if (above[i].first <= runs[j].last && runs[j].first <= above[i].last)
                unions.join(above[i].region, runs[j].region);
            above[i].last < runs[j].last ? ++i : ++j;
        }
    }
    std::vector<std::int64_t> region_of_root;
    for (std::int64_t row = 0; row < height_; ++row)
        for (Run& run : rows_[std::size_t(row)]) {
            const std::int64_t root = unions.root(run.region);
            if (root == run.region) {  // the first run, which is met first
                region_of_root.push_back(std::int64_t(regions_.size()));
                regions_.push_back({row, run.first, 0});
            } else {
                region_of_root.push_back(-1);
            }
            run.region = region_of_root[std::size_t(root)];
            regions_[std::size_t(run.region)].pixels += run.last - run.first;
        }
}

std::int64_t MapRegions::region_at(std::int64_t row, std::int64_t column) const {
    if (!is_inside(row, column)) return -1;
    const std::vector<Run>& runs = rows_[std::size_t(row)];
    const auto behind = std::upper_bound(runs.begin(), runs.end(), column,
                                         [](std::int64_t x, const Run& run) { return x < run.first; });
    return std::prev(behind)->region;
}

// Walks along the sides of pixels with the region on the right. Pixels that touch by a corner belong together, so at
// such a corner the walk turns left.
Polygon MapRegions::border_of(const MapRegion& region) const {
    constexpr std::int64_t kDx[] = {1, 0, -1, 0}, kDy[] = {0, 1, 0, -1};  // to the right, down, to the left, up
    // The pixel ahead on the left of a corner, for each direction. That on the right is the next direction's.
    constexpr std::int64_t kLeftX[] = {0, 0, -1, -1}, kLeftY[] = {-1, 0, 0, -1};
    Polygon border;
    std::int64_t x = region.column, y = region.row;
    std::size_t direction = 0;
    int sides = 0;  // of the straight stretch so far: the middles of its first and its last side are kept
    do {
        const Point middle{double(x) + 0.5 * double(kDx[direction]), double(y) + 0.5 * double(kDy[direction])};
        if (++sides > 2)
            border.back() = middle;
        else
            border.push_back(middle);
        x += kDx[direction], y += kDy[direction];
        const std::size_t right = (direction + 1) % 4;
        if (is_inside(y + kLeftY[direction], x + kLeftX[direction]))
            direction = (direction + 3) % 4, sides = 0;
        else if (!is_inside(y + kLeftY[right], x + kLeftX[right]))
            direction = right, sides = 0;
    } while (x != region.column || y != region.row || direction != 0);
    return border;
}

Polygon simplified(const Polygon& border, double tolerance) {
    const std::size_t n = border.size();
    if (n < 3) return border;
    // The two ends to begin with: the first point, and that which is furthest from it.
    const auto further = [&](const Point& a, const Point& b) {
        return std::hypot(a.x - border[0].x, a.y - border[0].y) < std::hypot(b.x - border[0].x, b.y - border[0].y);
    };
    const std::size_t opposite = std::size_t(std::max_element(border.begin(), border.end(), further) - border.begin());
    std::vector<bool> kept(n);
    kept[0] = kept[opposite] = true;
    std::vector<std::pair<std::size_t, std::size_t>> open = {{0, opposite}, {opposite, n}};
    while (!open.empty()) {
        const auto [first, last] = open.back();
        open.pop_back();
        double most = tolerance * tolerance;
        std::size_t at = 0;
        for (std::size_t i = first + 1; i < last; ++i) {
            const double distance = squared_distance(border[i], border[first], border[last % n]);
            if (distance > most) most = distance, at = i;
        }
        if (at == 0) continue;
        kept[at] = true;
        open.insert(open.end(), {{first, at}, {at, last}});
    }
    Polygon result;
    for (std::size_t i = 0; i < n; ++i)
        if (kept[i]) result.push_back(border[i]);
    return result;
}

}  // namespace invar::detect
