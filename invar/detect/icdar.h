// ICDAR 2015's text localisation: its ground truth as published, and its protocol of intersection over union.
// Counts add up over images; precision, recall and H-mean are made of the sums.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "invar/core/stopped.h"
#include "invar/detect/boxes.h"
#include "invar/detect/text_region.h"

namespace invar::detect {

// How many coordinates a line begins with: eight, or an even number from eight on, as Total-Text's and CTW's polygons
// have. In the second case all numbers in front are coordinates but the line's last cell, which is the transcription.
enum class TruthFormat { quadrilaterals, polygons };

// Lines of x1,y1,x2,y2,x3,y3,x4,y4,transcription. The transcription may hold commas, or be missing; ### is a text that
// does not count. A byte order mark, CRLF, and empty lines are passed over. Throws IoError with file and line.
std::vector<TextRegion> parse_ground_truth(std::string_view text, const std::string& file,
                                           TruthFormat format = TruthFormat::quadrilaterals);
std::vector<TextRegion> read_ground_truth(const std::filesystem::path& path,
                                          TruthFormat format = TruthFormat::quadrilaterals);

struct DetectionCounts {
    std::int64_t matched = 0;
    std::int64_t truths = 0;      // that count: not those nobody cares for
    std::int64_t detections = 0;  // that count: not those on a text nobody cares for

    // 0 where there is nothing to divide by, as the protocol has it for the sum over all images.
    double precision() const { return detections > 0 ? double(matched) / double(detections) : 0; }
    double recall() const { return truths > 0 ? double(matched) / double(truths) : 0; }
    double hmean() const { return truths + detections > 0 ? 2 * double(matched) / double(truths + detections) : 0; }
    DetectionCounts& operator+=(const DetectionCounts& other) {
        matched += other.matched, truths += other.truths, detections += other.detections;
        return *this;
    }
    bool operator==(const DetectionCounts&) const = default;
};

struct IcdarOptions {
    double iou = 0.5;                // a detection matches above this
    double dont_care_overlap = 0.5;  // it does not count where more than this part of it lies on one such text
};

struct MatchedImage {
    DetectionCounts counts;
    std::vector<std::int64_t> detection_of;  // for each truth; -1 where it has none
};

// The detections of an image beside its truths. Matching is greedy: each truth in order takes the first detection in
// order that fits and is not taken, which need not be the one that fits best.
class ImageOverlaps {
  public:
    ImageOverlaps(std::span<const TextRegion> truths, std::span<const Detection> detections,
                  const IcdarOptions& options = {}, const Stopped& stopped = {});
    // Only the first `detections` count; by default all do.
    MatchedImage match(std::size_t detections = std::size_t(-1)) const;

  private:
    struct Truth {
        bool dont_care;
        std::vector<std::size_t> fits;  // detections, in order
    };
    std::vector<Truth> truths_;
    std::vector<bool> ignored_;  // detections
};

MatchedImage match_image(std::span<const TextRegion> truths, std::span<const Detection> detections,
                         const IcdarOptions& options = {}, const Stopped& stopped = {});

}  // namespace invar::detect
