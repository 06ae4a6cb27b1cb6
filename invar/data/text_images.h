// TextImages: what data sets of images with texts have in common, wherever the images come from: a view of each as
// text_view.h makes it, label maps, and the batch of text_batch.h.
#pragma once

#include <array>

#include "invar/config/key.h"
#include "invar/data/dataset.h"
#include "invar/data/pixels.h"
#include "invar/data/text_batch.h"
#include "invar/data/text_view.h"
#include "invar/detect/label_maps.h"

namespace invar {

struct TextImagesOptions {
    std::int64_t size = 640;  // side of the square that the network sees
    bool augment = true;
    std::array<double, 2> scale{0.5, 3};
    double degrees = 10, flip = 0.5, brightness = 0, contrast = 0, saturation = 0;
    double shrink_ratio = 0.4, min_text_size = 8;
    std::array<double, 3> mean{0.485, 0.456, 0.406}, std{0.229, 0.224, 0.225};  // ImageNet's

    detect::LabelOptions labels() const { return {.shrink_ratio = shrink_ratio, .min_text_size = min_text_size}; }
};

// What data with these options look like.
DataInfo text_images_info(const TextImagesOptions& options);

class TextImages : public Dataset {
  public:
    TextImages(std::string name, const TextImagesOptions& options, Split split, std::uint64_t seed, TextLimits limits);

    // The image as it is, with its texts in its pixels; and what to call it in messages. From any thread.
    virtual TextImage load(std::int64_t index) const = 0;
    virtual std::string sample_name(std::int64_t index) const = 0;

    // What the network sees of it: as validation does, or as this epoch of training does.
    TextImage view(std::int64_t index) const;
    TextImage view(std::int64_t index, std::int64_t epoch) const;

    std::string name() const final { return name_; }
    DataInfo info() const final { return text_images_info(options_); }
    Batch read(std::span<const std::int64_t> indices) const final { return read(indices, {}, false); }
    Batch read_for(const ReadOptions& options, std::span<const std::int64_t> indices) const final {
        return read(indices, options, augmented_);
    }
    std::optional<PixelScale> pixels() const final { return scale_; }
    std::optional<SeenImage> see(std::span<const std::uint8_t> file, const std::string& name) const final;
    const TextImagesOptions& options() const { return options_; }

  private:
    Batch read(std::span<const std::int64_t> indices, const ReadOptions& options, bool augmented) const;

    std::string name_;
    TextImagesOptions options_;
    TextAugmentOptions augment_;
    std::uint64_t seed_;
    bool augmented_;
    TextLimits limits_;
    PixelScale scale_;
    PixelTable table_;
};

// Keys of TextImagesOptions as those of a struct that is made from it.
template <class Options>
std::vector<Key> text_images_keys() {
    using O = TextImagesOptions;
    using Number = double Options::*;
    const auto number = [](const char* name, double O::*member, const Rule& rule, const char* help) {
        return key(name, Number(member), rule, help);
    };
    using Three = std::array<double, 3> Options::*;
    return {
        key("size", static_cast<std::int64_t Options::*>(&O::size),
            custom("a multiple of 32, from 32 to 8192",
                   [](double v) { return v >= 32 && v <= 8192 && std::int64_t(v) % 32 == 0; }),
            "Height and width that the network sees; a whole image is made to fit and padded."),
        key("augment", static_cast<bool Options::*>(&O::augment), any(),
            "Whether images to train on are; false shows them as validation does."),
        key("scale", static_cast<std::array<double, 2> Options::*>(&O::scale), above(0),
            "Enlarged by a factor from and to: above 1 a part is seen, cut between texts; below 1 there is a margin."),
        number("degrees", &O::degrees, within(0, 180), "Rotated by at most so much to either side."),
        number("flip", &O::flip, within(0, 1), "Probability of left for right."),
        number("brightness", &O::brightness, within(0, 100), "Colour jitter: a factor within 1 - x and 1 + x."),
        number("contrast", &O::contrast, within(0, 100), "Likewise."),
        number("saturation", &O::saturation, within(0, 100), "Likewise."),
        number("shrink_ratio", &O::shrink_ratio, below(0, 1), "How far texts are shrunk for the labels, as in DBNet."),
        number("min_text_size", &O::min_text_size, at_least(0),
               "In pixels that the network sees: what is narrower is masked out, neither text nor background."),
        key("mean", Three(&O::mean), any(), "A pixel v in [0, 1] becomes (v - mean) / std; red, green and blue."),
        key("std", Three(&O::std), above(0), "See mean.")};
}

}  // namespace invar
