#include "invar/detect/ceiling.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <utility>

#include "invar/core/error.h"

namespace invar::detect {

namespace {

// Which texts each region of the labels holds.
class Cores {
  public:
    Cores(const std::vector<DrawnText>& drawn, const MapRegions& regions) {
        for (const DrawnText& text : drawn) {
            const bool there = text.fate == Fate::drawn;
            regions_.push_back(there ? regions.region_at(text.row, text.column) : -1);
            if (regions_.back() >= 0) ++texts_[regions_.back()];
        }
    }
    std::int64_t region_of(std::size_t text) const { return regions_[text]; }
    bool is_merged(std::size_t text) const { return regions_[text] >= 0 && texts_.at(regions_[text]) > 1; }

  private:
    std::vector<std::int64_t> regions_;
    std::map<std::int64_t, int> texts_;
};

}  // namespace

std::string_view name_of(Loss loss) {
    switch (loss) {
        case Loss::too_small:
            return "too small to be labelled";
        case Loss::not_drawn:
            return "not labelled";
        case Loss::merged:
            return "merged with a neighbour";
        case Loss::dropped:
            return "too small when shrunk";
        case Loss::poor_overlap:
            return "covered by too little when grown again";
    }
    return "";
}

Ceiling& Ceiling::operator+=(const Ceiling& other) {
    counts += other.counts;
    dont_care += other.dont_care;
    for (std::size_t i = 0; i < kLosses; ++i) lost[i] += other.lost[i];
    return *this;
}

ImageCeiling image_ceiling(std::span<const TextRegion> texts, std::int64_t height, std::int64_t width,
                           const CeilingOptions& options, std::string name) {
    LabelMaps maps(height, width);
    const std::vector<DrawnText> drawn = draw_labels(texts, maps.planes(), options.labels, options.stopped);
    const MapView map{maps.probability.data(), height, width};
    const MapRegions regions(map, float(options.boxes.bin_thresh));
    const std::vector<Detection> detections =
        grow_candidates(find_candidates(map, regions, options.boxes), map, height, width, options.boxes);
    const MatchedImage matched = match_image(texts, detections, options.protocol, options.stopped);
    const Cores cores(drawn, regions);

    ImageCeiling image{std::move(name), {matched.counts}, {}};
    for (std::size_t i = 0; i < texts.size(); ++i) {
        if (texts[i].dont_care) ++image.ceiling.dont_care;
        if (texts[i].dont_care || matched.detection_of[i] >= 0) continue;
        const auto from_here = [&](const Detection& d) { return d.region == cores.region_of(i); };
        const Loss loss = drawn[i].fate == Fate::too_small                                ? Loss::too_small
                          : drawn[i].fate != Fate::drawn                                  ? Loss::not_drawn
                          : cores.is_merged(i)                                            ? Loss::merged
                          : std::none_of(detections.begin(), detections.end(), from_here) ? Loss::dropped
                                                                                          : Loss::poor_overlap;
        ++image.ceiling.lost[std::size_t(loss)];
        image.lost.push_back({i, loss});
    }
    return image;
}

std::vector<ImageCeiling> worst_images(std::vector<ImageCeiling> images, std::size_t most) {
    std::erase_if(images, [](const ImageCeiling& image) { return image.lost.empty(); });
    std::sort(images.begin(), images.end(), [](const ImageCeiling& a, const ImageCeiling& b) {
        return a.lost.size() != b.lost.size() ? a.lost.size() > b.lost.size() : a.name < b.name;
    });
    images.resize(std::min(images.size(), most));
    return images;
}

Sweep::Sweep(SweepGrid grid, BoxOptions boxes, IcdarOptions protocol)
    : grid_(std::move(grid)), boxes_(boxes), protocol_(protocol) {
    check<UsageError>(!grid_.bin_thresh.empty() && !grid_.box_thresh.empty() && !grid_.unclip_ratio.empty(),
                      "a sweep needs at least one bin_thresh, one box_thresh and one unclip_ratio");
    boxes_.unclip = Unclip::ratio;
    boxes_.box_thresh = *std::min_element(grid_.box_thresh.begin(), grid_.box_thresh.end());
    for (const double bin : grid_.bin_thresh)
        for (const double ratio : grid_.unclip_ratio)
            for (const double box : grid_.box_thresh) points_.push_back({bin, box, ratio, {}});
}

void Sweep::add(const MapView& map, std::span<const TextRegion> truths, std::int64_t image_height,
                std::int64_t image_width) {
    auto point = points_.begin();
    BoxOptions boxes = boxes_;
    for (const double bin : grid_.bin_thresh) {
        boxes.bin_thresh = bin;
        const std::vector<Candidate> candidates = find_candidates(map, boxes);
        for (const double ratio : grid_.unclip_ratio) {
            boxes.unclip_ratio = ratio;
            const std::vector<Detection> detections =
                grow_candidates(candidates, map, image_height, image_width, boxes);
            const ImageOverlaps overlaps(truths, detections, protocol_);
            for (const double box : grid_.box_thresh) {  // the best come first, so that a threshold is a cut
                const auto cut = std::partition_point(detections.begin(), detections.end(),
                                                      [&](const Detection& d) { return d.score >= box; });
                (point++)->counts += overlaps.match(std::size_t(cut - detections.begin())).counts;
            }
        }
    }
}

std::vector<SweepPoint> Sweep::results() const {
    std::vector<SweepPoint> results = points_;
    std::stable_sort(results.begin(), results.end(),
                     [](const SweepPoint& a, const SweepPoint& b) { return a.counts.hmean() > b.counts.hmean(); });
    return results;
}

}  // namespace invar::detect
