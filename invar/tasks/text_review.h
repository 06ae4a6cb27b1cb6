// What figures alone do not tell of text detection: the best that data and settings allow, the settings that would suit
// a network better, and why nothing was found where nothing was.
#pragma once

#include "invar/data/text_images.h"
#include "invar/detect/ceiling.h"
#include "invar/tasks/task.h"

namespace invar {

// Of a part of the images; of those that were looked at until `stopped` said so.
std::vector<Remark> remarks_on_ceiling(const TextImages& data, const detect::BoxOptions& boxes,
                                       const detect::IcdarOptions& protocol, const Stopped& stopped = {});

// Takes the probability maps of images one by one.
class TextReview {
  public:
    TextReview(const detect::BoxOptions& boxes, const detect::IcdarOptions& protocol);
    // Texts in pixels of the map.
    void add(const detect::MapView& map, std::span<const detect::TextRegion> truths);
    std::int64_t images() const { return images_; }
    std::vector<Remark> remarks() const;

  private:
    std::string why_zero() const;
    void compare_areas(std::span<const detect::TextRegion> truths, std::span<const detect::Detection> found);

    detect::BoxOptions boxes_;
    detect::IcdarOptions protocol_;
    detect::Sweep sweep_;
    std::int64_t images_ = 0;
    detect::DetectionCounts counts_;  // with the settings as they are
    double highest_ = 0;              // probability of a pixel
    std::int64_t regions_ = 0;        // that are large enough
    double best_score_ = 0;           // of one of them
    std::int64_t found_ = 0;
    double best_iou_ = 0, best_area_ = 0;  // of what was found and a text; the area as a share of the text's
};

}  // namespace invar
