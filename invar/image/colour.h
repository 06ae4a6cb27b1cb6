// Brightness, contrast, saturation and hue, with the factors and the rounding of torchvision's transforms of a Pillow
// image. A factor of 1 (for the hue a shift of 0) leaves the image as it is.
#pragma once

#include "invar/image/image.h"

namespace invar {

// From black (0) over the image (1) to brighter ones.
void adjust_brightness(Image& image, double factor);
// From its mean grey (0) over the image (1) to starker ones.
void adjust_contrast(Image& image, double factor);
// From its greys (0) over the image (1) to gaudier ones.
void adjust_saturation(Image& image, double factor);
// Turns colours by a part of their circle, -0.5 to 0.5. Hue and saturation are held in 8 bits on the way.
void adjust_hue(Image& image, double turn);

// Three channels to one, by the weights of ITU-R 601-2.
Image to_grey(const Image& image);

}  // namespace invar
