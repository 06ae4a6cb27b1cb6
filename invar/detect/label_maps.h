// What DBNet is trained towards, made from the polygons of an image's texts: where the shrunk texts are, and a band
// around each text's border ("Real-time Scene Text Detection with Differentiable Binarization", 2019).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "invar/core/stopped.h"
#include "invar/detect/text_region.h"

namespace invar::detect {

struct LabelOptions {
    double shrink_ratio = 0.4;   // r in D = area (1 - r^2) / perimeter, by which a text is shrunk
    double min_text_size = 8;    // in pixels: a text whose smallest rectangle is narrower is left out
    float threshold_min = 0.3f;  // of the threshold map far from any border
    float threshold_max = 0.7f;  // and on one
};

// What became of a text. All but `drawn` are masked out of the probability map: the network is told neither way.
enum class Fate {
    drawn,
    dont_care,
    too_small,     // under min_text_size
    vanished,      // no pixel is left of it when it is shrunk
    not_simple,    // crosses itself, or has less than three points
    outside_image  // nothing of it is seen
};
std::string_view name_of(Fate fate);

// Four maps of one size, row by row, that somebody else owns: tensors of a batch, for example.
struct LabelPlanes {
    std::int64_t height = 0, width = 0;
    float* probability = nullptr;       // 1 in the shrunk texts, 0 elsewhere
    float* probability_mask = nullptr;  // 0 where a text is left out, 1 elsewhere
    float* threshold = nullptr;
    float* threshold_mask = nullptr;  // 1 in texts grown by D, 0 elsewhere: what is learned of the threshold
};

struct LabelMaps {
    std::int64_t height = 0, width = 0;
    std::vector<float> probability, probability_mask, threshold, threshold_mask;
    LabelMaps(std::int64_t height, std::int64_t width);
    LabelPlanes planes() {
        return {height, width, probability.data(), probability_mask.data(), threshold.data(), threshold_mask.data()};
    }
};

struct DrawnText {
    Fate fate = Fate::drawn;
    double distance = 0;               // D
    std::int64_t row = 0, column = 0;  // a pixel of the shrunk text, where it was drawn
};

// The distance by which a text is shrunk; 0 where it has no area.
double shrink_distance(const Polygon& polygon, double shrink_ratio);

// Overwrites all four maps, and says for each text what became of it. Texts that stick out of the image count by their
// part inside. A size that is negative, or options that make no sense, are a UsageError. `stopped` is asked at each
// text.
std::vector<DrawnText> draw_labels(std::span<const TextRegion> texts, const LabelPlanes& planes,
                                   const LabelOptions& options = {}, const Stopped& stopped = {});
LabelMaps make_label_maps(std::span<const TextRegion> texts, std::int64_t height, std::int64_t width,
                          const LabelOptions& options = {});

}  // namespace invar::detect
