// Connected regions of a map above a threshold, the border around each, and borders with fewer points.
#pragma once

#include <cstdint>
#include <vector>

#include "invar/detect/polygon.h"

namespace invar::detect {

// A map that somebody else owns, row by row: what a network predicts, for example.
struct MapView {
    const float* values = nullptr;
    std::int64_t height = 0, width = 0;
    // NaN counts as nothing there.
    float at(std::int64_t row, std::int64_t column) const {
        const float value = values[row * width + column];
        return value == value ? value : 0.0f;
    }
};

struct MapRegion {
    std::int64_t row = 0, column = 0;  // its first pixel: the leftmost of the uppermost
    std::int64_t pixels = 0;
};

// Pixels over the threshold that touch by a side or a corner. In the order of their first pixels.
class MapRegions {
  public:
    MapRegions(const MapView& map, float threshold);
    const std::vector<MapRegion>& all() const { return regions_; }
    // The index of the region that a pixel is in; -1 where it is in none.
    std::int64_t region_at(std::int64_t row, std::int64_t column) const;
    // The outer border, clockwise on the screen; holes have none. It goes through the middles of the sides between
    // the region's pixels and others, which is right to the pixel for straight borders and cuts corners by half of one.
    // Only points where it turns.
    Polygon border_of(const MapRegion& region) const;

  private:
    struct Run {
        std::int64_t first, last;  // columns first to last - 1
        std::int64_t region;
    };
    bool is_inside(std::int64_t row, std::int64_t column) const {
        return row >= 0 && row < height_ && column >= 0 && column < width_ &&
               inside_[std::size_t(row * width_ + column)];
    }
    std::int64_t height_, width_;
    std::vector<std::uint8_t> inside_;
    std::vector<std::vector<Run>> rows_;
    std::vector<MapRegion> regions_;
};

// Douglas and Peucker's, for a closed border: no point that is left out lies further than `tolerance` from an edge.
Polygon simplified(const Polygon& border, double tolerance);

}  // namespace invar::detect
