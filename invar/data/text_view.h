// An image with texts as a network sees it: a square, whole and padded, or cut out, turned and coloured another way in
// each epoch. Texts go the way their pixels go, and none is ever cut by a crop.
#pragma once

#include <cstdint>
#include <vector>

#include "invar/detect/text_region.h"
#include "invar/image/augment.h"
#include "invar/image/image.h"

namespace invar {

struct TextImage {
    Image image;
    std::vector<detect::TextRegion> texts = {};
};

// A text's border, to look at.
void draw_outline(Image& image, const detect::Polygon& polygon, Rgb colour, double thickness);

struct TextAugmentOptions {
    // How many times the size at which the whole image would just fit: above 1 a part is seen, below 1 there is a
    // margin.
    RandomRange scale{0.5, 3};
    double degrees = 10;
    double flip = 0.5;
    double brightness = 0, contrast = 0, saturation = 0;  // a factor within 1 - x and 1 + x
};
void check_options(const TextAugmentOptions& options);

// The whole image, resized so that it just fits a square of that side, at its upper left; the rest is black.
TextImage fitted_view(const TextImage& whole, std::int64_t size);
// The part of an image of that size which such a square shows, the black beside it included.
RealBox fitted_box(ImageSize image, std::int64_t size);
// All that is random follows from `rng`.
TextImage augmented_view(const TextImage& whole, std::int64_t size, const TextAugmentOptions& options, RngState rng);

// A box of about that size whose borders run through no text, at random, with at least one text that counts in it where
// there is one; the whole image where nothing was found.
PixelBox crop_between_texts(ImageSize image, const std::vector<detect::TextRegion>& texts, ImageSize wanted,
                            RandomDraws& draws);

}  // namespace invar
