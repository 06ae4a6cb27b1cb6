// Masks: how much of each pixel a shape covers, where in the image the shape lies, and painting through it.
// Filled outlines make them; letters, panels and shapes of a background are all painted this way.
#pragma once

#include <cstdint>
#include <span>

#include "invar/detect/polygon.h"
#include "invar/image/image.h"

namespace invar::scene {

struct Mask {
    Image cover;  // one channel: 0 to 255 of a pixel
    std::int64_t left = 0, top = 0;
};

// What closed contours enclose, holes by running the other way round, with smooth edges. `margin` empty pixels around
// it leave room for what is done to it. Empty where there are no contours.
Mask fill_contours(std::span<const detect::Polygon> contours, std::int64_t margin = 0);

// Spread by a disc of that radius, and blurred; both within the mask's own borders.
void spread(Mask& mask, double radius);
void blur(Mask& mask, double sigma);

// Whatever of the mask lies outside the image is left out. `opacity` from 0 to 1.
void paint(Image& image, const Mask& mask, Rgb colour, double opacity = 1);
// Keeps the larger of two values: ink, of which more does not make more.
void merge_ink(Image& ink, const Mask& mask);

// From 0 to 255, by the weights of ITU-R 601-2.
double luma(Rgb colour);

}  // namespace invar::scene
