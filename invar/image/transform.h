// What is done to images before a model sees them: resize, crop, flip, rotate, warp, blur, noise. Pixels are those that
// torchvision's transforms make of a Pillow image, to one part in 255.
#pragma once

#include <array>
#include <cstdint>

#include "invar/core/rng.h"
#include "invar/image/image.h"

namespace invar {

// Bilinear with antialiasing: smaller images are averages of all pixels they stand for.
Image resize(const Image& image, ImageSize size);
// Of a part of the image alone, as if it had been cropped first.
Image resize(const Image& image, const RealBox& box, ImageSize size);
// What makes the shorter side `side` pixels long and keeps the proportions.
ImageSize with_shorter_side(ImageSize size, std::int64_t side);

Image crop(const Image& image, const PixelBox& box);
// The box of that size in the middle of an image.
PixelBox centre_box(ImageSize image, ImageSize box);
void flip_horizontally(Image& image);

// Rows of a 3x3 matrix, applied to (x, y, 1). Pixel x has its centre at x + 0.5.
using Matrix3 = std::array<double, 9>;

// Bilinear. `source_of` takes places of the result to places of the image; those outside become `fill`.
Image warp(const Image& image, const Matrix3& source_of, ImageSize size, Rgb fill = {});
// About the centre, counter-clockwise, within the same borders.
Image rotate(const Image& image, double degrees, Rgb fill = {});

// With a bell of `sigma` pixels; `kernel` is odd, the pixels that it spans.
Image gaussian_blur(const Image& image, double sigma, std::int64_t kernel);
// Adds normal numbers of that deviation, in units of a pixel's 0 to 255.
void add_noise(Image& image, double deviation, RngState rng);

}  // namespace invar
