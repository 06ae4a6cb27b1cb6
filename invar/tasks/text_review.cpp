#include "invar/tasks/text_review.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <thread>

#include "invar/core/printable.h"
#include "invar/data/text_ceiling.h"

namespace invar {

using detect::Ceiling;
using detect::ImageCeiling;
using detect::Loss;

namespace {

constexpr std::int64_t kCeilingImages = 100;
constexpr double kLowCeiling = 0.9;
constexpr double kWorthwhile = 0.005;  // H-mean that other settings must gain

// "1 text", "3 texts"
std::string count(std::int64_t n, const char* thing) {
    return fmt::format("{} {}{}", n, thing, n == 1 ? "" : "s");
}

std::string too_small_text(const std::vector<ImageCeiling>& images, const Ceiling& all) {
    const std::int64_t small = all.lost_by(Loss::too_small);
    if (small == 0) return fmt::format("of {} none is too small to be labelled", count(all.counts.truths, "text"));
    std::vector<const ImageCeiling*> blamed;
    for (const ImageCeiling& image : images)
        if (image.ceiling.lost_by(Loss::too_small) > 0) blamed.push_back(&image);
    std::ranges::stable_sort(blamed, std::greater<>(),
                             [](const ImageCeiling* image) { return image->ceiling.lost_by(Loss::too_small); });
    std::vector<std::string> names;
    for (std::size_t i = 0; i < std::min<std::size_t>(3, blamed.size()); ++i)
        names.push_back(printable(blamed[i]->name));
    return fmt::format("{} of {} ({:.1f}%) ignored as too small, {}in {}", small, count(all.counts.truths, "text"),
                       100 * double(small) / double(all.counts.truths), blamed.size() > names.size() ? "most " : "",
                       fmt::join(names, ", "));
}

// The grid of a sweep, with the present settings in it.
detect::SweepGrid grid_with(const detect::BoxOptions& boxes) {
    detect::SweepGrid grid;
    const auto add = [](std::vector<double>& values, double present) {
        if (std::ranges::find(values, present) == values.end()) values.push_back(present);
    };
    add(grid.bin_thresh, boxes.bin_thresh);
    add(grid.box_thresh, boxes.box_thresh);
    add(grid.unclip_ratio, boxes.unclip_ratio);
    return grid;
}

}  // namespace

std::vector<Remark> remarks_on_ceiling(const TextImages& data, const detect::BoxOptions& boxes,
                                       const detect::IcdarOptions& protocol, const Stopped& stopped) {
    const int threads = int(std::clamp<unsigned>(std::thread::hardware_concurrency(), 1, 16));
    const std::vector<ImageCeiling> images = ceilings_of(data, kCeilingImages, threads, boxes, protocol, stopped);
    if (images.empty() && stopped && stopped()) return {};
    Ceiling all;
    for (const ImageCeiling& image : images) all += image.ceiling;
    const std::int64_t looked = std::int64_t(images.size());
    const std::string where = looked < data.size()
                                  ? fmt::format("{} of {}", looked, count(data.size(), "validation image"))
                                  : count(looked, "validation image");
    if (all.counts.truths == 0) return {{fmt::format("no text that counts in {}", where), true}};
    const double hmean = all.counts.hmean();
    std::vector<Remark> remarks = {
        {fmt::format("ceiling: H-mean {:.1f}% is what the labels themselves would get with these settings, by {}; {}",
                     100 * hmean, where, too_small_text(images, all))}};
    if (hmean >= kLowCeiling) return remarks;
    const auto worst = std::size_t(std::ranges::max_element(all.lost) - all.lost);
    remarks.push_back(
        {fmt::format("a network that predicts the labels to the bit gets an H-mean of {:.1f}% here: {} of {} texts are "
                     "lost, most since they are {}; {} may keep them, and `invar data` tells more",
                     100 * hmean, all.counts.truths - all.counts.matched, all.counts.truths, name_of(Loss(worst)),
                     Loss(worst) == Loss::too_small ? "a larger data.size or a smaller data.min_text_size"
                                                    : "a larger data.size"),
         true});
    return remarks;
}

TextReview::TextReview(const detect::BoxOptions& boxes, const detect::IcdarOptions& protocol)
    : boxes_(boxes), protocol_(protocol), sweep_(grid_with(boxes), boxes, protocol) {}

void TextReview::add(const detect::MapView& map, std::span<const detect::TextRegion> truths) {
    ++images_;
    for (std::int64_t row = 0; row < map.height; ++row)
        for (std::int64_t column = 0; column < map.width; ++column)
            highest_ = std::max(highest_, double(map.at(row, column)));
    const std::vector<detect::Candidate> candidates = detect::find_candidates(map, boxes_);
    regions_ += std::int64_t(candidates.size());
    for (const detect::Candidate& candidate : candidates) best_score_ = std::max(best_score_, candidate.score);
    const std::vector<detect::Detection> found =
        detect::grow_candidates(candidates, map, map.height, map.width, boxes_);
    found_ += std::int64_t(found.size());
    counts_ += detect::match_image(truths, found, protocol_).counts;
    if (counts_.matched == 0) compare_areas(truths, found);
    sweep_.add(map, truths, map.height, map.width);
}

void TextReview::compare_areas(std::span<const detect::TextRegion> truths, std::span<const detect::Detection> found) {
    for (const detect::TextRegion& text : truths)
        for (const detect::Detection& detection : found) {
            if (text.dont_care || !detect::bounds_of(text.polygon).overlaps(detect::bounds_of(detection.polygon)))
                continue;
            const double iou = detect::iou(text.polygon, detection.polygon);
            if (iou <= best_iou_) continue;
            best_iou_ = iou;
            best_area_ = detect::covered_area(detection.polygon) / detect::covered_area(text.polygon);
        }
}

std::string TextReview::why_zero() const {
    if (counts_.truths == 0) return "there is no text that counts";
    if (highest_ <= boxes_.bin_thresh)
        return fmt::format(
            "no pixel is above task.bin_thresh={}, the highest probability is {:.3f}; the network sees "
            "no text yet, so train longer",
            boxes_.bin_thresh, highest_);
    if (regions_ == 0)
        return fmt::format("what is above task.bin_thresh={} is nowhere {} pixels wide; train longer",
                           boxes_.bin_thresh, boxes_.min_size);
    if (found_ == 0)
        return fmt::format(
            "the best of {} has a mean probability of {:.3f}, below task.box_thresh={}; train "
            "longer, or lower it",
            count(regions_, "region"), best_score_, boxes_.box_thresh);
    const std::string closest = fmt::format(
        "the best of {} has an intersection over union of {:.2f} with a "
        "text, and more than {} is asked for",
        found_ == 1 ? "1 box" : fmt::format("{} boxes", found_), best_iou_, protocol_.iou);
    constexpr double kNear = 0.25, kSmall = 0.75;
    if (best_iou_ < kNear) return closest + ": boxes are not where the texts are, so train longer";
    if (best_area_ < kSmall) return closest + ": boxes are too small; a larger task.unclip_ratio grows them";
    if (best_area_ > 1 / kSmall)
        return closest + ": boxes are too large; a smaller task.unclip_ratio or a higher task.bin_thresh would help";
    return closest + ": boxes are beside the texts, so train longer";
}

std::vector<Remark> TextReview::remarks() const {
    if (images_ == 0) return {};
    std::vector<Remark> remarks;
    const double present = counts_.hmean();
    if (counts_.matched == 0)
        remarks.push_back({fmt::format("H-mean is 0 on {}: {}", count(images_, "validation image"), why_zero()), true});
    const detect::SweepPoint best = sweep_.results().front();
    if (best.counts.hmean() > present + kWorthwhile)
        remarks.push_back(
            {fmt::format("thresholds: H-mean {:.1f}% instead of {:.1f}% on {} with task.bin_thresh={} "
                         "task.box_thresh={} task.unclip_ratio={}",
                         100 * best.counts.hmean(), 100 * present, count(images_, "validation image"), best.bin_thresh,
                         best.box_thresh, best.unclip_ratio)});
    return remarks;
}

}  // namespace invar
