// What stands behind the texts of the FreeType renderer: walls of noise at several scales, bricks, planks and tiles,
// windows, discs, cables and fences. And colours, for them and for letters.
#pragma once

#include "invar/image/augment.h"
#include "invar/image/image.h"

namespace invar::scene {

// Hue as a part of the circle of colours; all from 0 to 1.
Rgb from_hsv(double hue, double saturation, double value);
// Of any hue.
Rgb draw_colour(RandomDraws& draws, RandomRange saturation, RandomRange value);
// Mostly muted, as walls are.
Rgb draw_muted_colour(RandomDraws& draws);
// Any, but at least `contrast` brighter or darker than `behind`, in units of 0 to 255.
Rgb draw_contrasting_colour(RandomDraws& draws, double behind, double contrast);

Image draw_background(std::int64_t height, std::int64_t width, RandomDraws& draws);

// Mean and deviation of the brightness within a box, as far as it is in the image.
struct Brightness {
    double mean = 0, deviation = 0;
};
Brightness brightness_of(const Image& image, const PixelBox& box);

}  // namespace invar::scene
