// What a data set and its settings allow at best: labels scored as if a network had predicted them to the bit. And a
// sweep, which finds the settings of the post-processing that suit a network's maps best.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "invar/core/stopped.h"
#include "invar/detect/boxes.h"
#include "invar/detect/icdar.h"
#include "invar/detect/label_maps.h"

namespace invar::detect {

// Why a text that counts is not found again in its own labels.
enum class Loss {
    too_small,     // left out of the labels: under min_text_size
    not_drawn,     // left out for another reason: it crosses itself, vanishes when shrunk, or is outside the image
    merged,        // shrunk, it still touches another text
    dropped,       // shrunk, it is too small to become a box, or its box is too empty
    poor_overlap,  // its box, grown again, covers it by too little
};
inline constexpr std::size_t kLosses = 5;
std::string_view name_of(Loss loss);

struct Ceiling {
    DetectionCounts counts;
    std::int64_t dont_care = 0;
    std::int64_t lost[kLosses] = {};  // by Loss; together what is not matched

    std::int64_t lost_by(Loss loss) const { return lost[std::size_t(loss)]; }
    Ceiling& operator+=(const Ceiling& other);
};

struct LostText {
    std::size_t text = 0;  // its index in the image
    Loss loss = Loss::too_small;
};

struct ImageCeiling {
    std::string name;
    Ceiling ceiling;
    std::vector<LostText> lost;
};

struct CeilingOptions {
    LabelOptions labels;
    BoxOptions boxes;
    IcdarOptions protocol;
    Stopped stopped = {};  // asked at each text; where it says so, an Error comes
};

// Polygons in pixels of the map, which has the size that the network will see.
ImageCeiling image_ceiling(std::span<const TextRegion> texts, std::int64_t height, std::int64_t width,
                           const CeilingOptions& options = {}, std::string name = {});

// Those with most lost texts first, then by name; images that lose none are left out.
std::vector<ImageCeiling> worst_images(std::vector<ImageCeiling> images, std::size_t most);

struct SweepGrid {
    std::vector<double> bin_thresh = {0.2, 0.3, 0.4}, box_thresh = {0.5, 0.6, 0.7},
                        unclip_ratio = {1.5, 1.8, 2.1, 2.5, 3.0};
};

struct SweepPoint {
    double bin_thresh = 0, box_thresh = 0, unclip_ratio = 0;
    DetectionCounts counts;
};

// Takes image after image, so that no more than one map is in memory. Regions are looked for once for each bin_thresh,
// overlaps once for each unclip_ratio; a box_thresh only counts.
class Sweep {
  public:
    explicit Sweep(SweepGrid grid = {}, BoxOptions boxes = {}, IcdarOptions protocol = {});
    void add(const MapView& map, std::span<const TextRegion> truths, std::int64_t image_height,
             std::int64_t image_width);
    // Best H-mean first; among equals as in the grid.
    std::vector<SweepPoint> results() const;

  private:
    SweepGrid grid_;
    BoxOptions boxes_;
    IcdarOptions protocol_;
    std::vector<SweepPoint> points_;
};

}  // namespace invar::detect
