#include "invar/cli/data_sheet.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "invar/data/pixels.h"
#include "invar/data/text_batch.h"
#include "invar/data/text_view.h"
#include "invar/image/draw.h"
#include "invar/image/transform.h"

namespace invar::cli {

namespace {

constexpr std::int64_t kSmallest = 96, kLargest = 384;  // sides of an image in the sheet
constexpr std::size_t kCaption = 28;                    // characters
constexpr Rgb kCounts{255, 220, 0}, kIgnored{255, 60, 60};

void tint(Image& image, const float* map, bool where_high, Rgb colour) {
    const std::uint8_t to[] = {colour.r, colour.g, colour.b};
    for (std::int64_t p = 0; p < image.height * image.width; ++p) {
        if ((map[p] > 0.5f) != where_high) continue;
        for (std::int64_t c = 0; c < 3; ++c) {
            std::uint8_t& value = image.pixels[std::size_t(p * 3 + c)];
            value = std::uint8_t((int(value) * 3 + int(to[c]) * 2) / 5);
        }
    }
}

void draw_texts(Image& image, const Batch& batch, std::int64_t sample, const std::vector<detect::TextRegion>& texts) {
    const detect::LabelPlanes planes = label_planes(batch, sample);
    tint(image, planes.probability, true, {0, 255, 0});
    tint(image, planes.probability_mask, false, {255, 0, 0});
    const double thickness = std::max(1.0, double(std::max(image.height, image.width)) / double(kLargest));
    for (const detect::TextRegion& text : texts)
        draw_outline(image, text.polygon, text.dont_care ? kIgnored : kCounts, thickness);
}

std::string name_of_class(std::int64_t label, const std::vector<std::string>& names) {
    return label >= 0 && label < std::int64_t(names.size()) ? names[std::size_t(label)] : std::to_string(label);
}

// "cat", or where two were mixed "70% cat, 30% dog".
std::string caption_of(const Batch& batch, std::int64_t sample, const std::vector<std::string>& names) {
    if (!batch.has("y") || batch["y"].dtype() != Dtype::i64 || batch["y"].numel() != batch.size) return "";
    if (!batch.has("targets")) return name_of_class(batch["y"].data<std::int64_t>()[sample], names);
    const std::int64_t classes = batch["targets"].size(1);
    const float* shares = batch["targets"].data<float>() + sample * classes;
    std::string text;
    for (std::int64_t c = 0; c < classes; ++c)
        if (shares[c] >= 0.005f)
            text += fmt::format("{}{:.0f}% {}", text.empty() ? "" : ", ", 100 * shares[c], name_of_class(c, names));
    return text;
}

// Small images are enlarged by whole pixels, so that these can be seen; large ones are made smaller.
Image fitted(const Image& image) {
    const std::int64_t longer = std::max(image.height, image.width);
    if (longer > kLargest) {
        const double by = double(kLargest) / double(longer);
        const auto side = [&](std::int64_t n) { return std::max<std::int64_t>(1, std::llround(double(n) * by)); };
        return resize(image, {side(image.height), side(image.width)});
    }
    const std::int64_t times = longer < kSmallest ? (kSmallest + longer - 1) / longer : 1;
    if (times == 1) return image;
    Image large(image.height * times, image.width * times);
    for (std::int64_t y = 0; y < large.height; ++y)
        for (std::int64_t x = 0; x < large.width; ++x) std::copy_n(image.at(y / times, x / times), 3, large.at(y, x));
    return large;
}

}  // namespace

Image sheet_of(const Batch& batch, const PixelScale& scale, const std::vector<std::string>& class_names) {
    std::vector<Image> images = images_of(batch["x"], scale);
    const bool has_texts = batch.has("shrink") && batch.has("polygons");
    const auto texts = has_texts ? texts_of(batch) : std::vector<std::vector<detect::TextRegion>>();
    std::vector<std::string> captions;
    for (std::size_t i = 0; i < images.size(); ++i) {
        if (has_texts) draw_texts(images[i], batch, std::int64_t(i), texts[i]);
        images[i] = fitted(images[i]);
        captions.push_back(has_texts ? fmt::format("{} text{}", texts[i].size(), texts[i].size() == 1 ? "" : "s")
                                     : caption_of(batch, std::int64_t(i), class_names));
        if (captions.back().size() > kCaption) captions.back() = captions.back().substr(0, kCaption - 3) + "...";
    }
    const auto columns = std::int64_t(std::ceil(std::sqrt(1.5 * double(images.size()))));
    return contact_sheet(images, captions, std::max<std::int64_t>(1, columns));
}

}  // namespace invar::cli
