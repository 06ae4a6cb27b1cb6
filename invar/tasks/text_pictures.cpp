#include "invar/tasks/text_pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "invar/data/text_view.h"
#include "invar/image/draw.h"
#include "invar/image/transform.h"

namespace invar {

namespace {

constexpr Rgb kText{255, 220, 0}, kRight{0, 220, 0}, kWrong{255, 60, 60};
constexpr std::int64_t kSide = 320;  // of an image beside its truth, at most

double thickness_for(const Image& image) {
    return std::max(1.0, double(std::max(image.height, image.width)) / kSide);
}

Image made_small(const Image& image) {
    const double by = double(kSide) / double(std::max(image.height, image.width));
    const auto side = [&](std::int64_t n) { return std::max<std::int64_t>(1, std::llround(double(n) * by)); };
    return by < 1 ? resize(image, {side(image.height), side(image.width)}) : image;
}

}  // namespace

std::vector<detect::Detection> found_in_image(const std::vector<detect::Detection>& found, ImageSize map,
                                              const SeenImage& image) {
    const RealBox& box = image.box;
    const double height = double(image.size.height), width = double(image.size.width);
    std::vector<detect::Detection> inside;
    for (detect::Detection detection : found) {
        for (detect::Point& p : detection.polygon)
            p = {box.left + p.x * box.width / double(map.width), box.top + p.y * box.height / double(map.height)};
        if (!detect::bounds_of(detection.polygon).overlaps({0, 0, width, height})) continue;
        for (detect::Point& p : detection.polygon) p = {std::clamp(p.x, 0.0, width), std::clamp(p.y, 0.0, height)};
        inside.push_back(std::move(detection));
    }
    return inside;
}

Image draw_found(Image image, const std::vector<detect::Detection>& found) {
    const double thickness = 2 * thickness_for(image);
    for (const detect::Detection& detection : found) draw_outline(image, detection.polygon, kRight, thickness);
    return image;
}

Image draw_beside_truth(const Image& image, const std::vector<detect::TextRegion>& truths,
                        const std::vector<detect::Detection>& found, const detect::IcdarOptions& protocol) {
    const detect::MatchedImage matched = detect::match_image(truths, found, protocol);
    std::vector<bool> right(found.size());
    for (const std::int64_t detection : matched.detection_of)
        if (detection >= 0) right[std::size_t(detection)] = true;
    const double thickness = thickness_for(image);
    Image left = image, beside = image;
    for (const detect::TextRegion& text : truths)
        draw_outline(left, text.polygon, text.dont_care ? kWrong : kText, thickness);
    for (std::size_t i = 0; i < found.size(); ++i)
        draw_outline(beside, found[i].polygon, right[i] ? kRight : kWrong, thickness);
    const auto texts = [](std::size_t n) { return fmt::format("{} text{}", n, n == 1 ? "" : "s"); };
    const std::vector<Image> both = {made_small(left), made_small(beside)};
    const std::vector<std::string> captions = {
        texts(truths.size()),
        found.empty() ? "nothing found" : fmt::format("{} found, {} right", found.size(), matched.counts.matched)};
    return contact_sheet(both, captions, 2);
}

}  // namespace invar
