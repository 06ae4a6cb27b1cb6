// Texts that were found in what a network sees: taken back to the image that it was made of, and drawn for people.
#pragma once

#include "invar/data/dataset.h"
#include "invar/detect/icdar.h"

namespace invar {

// From pixels of a map of that size, which shows `box` of an image, to pixels of the image. What lies in the black
// beside it is left out, and what reaches over its border is cut there.
std::vector<detect::Detection> found_in_image(const std::vector<detect::Detection>& found, ImageSize map,
                                              const SeenImage& image);

// The whole image with each text outlined.
Image draw_found(Image image, const std::vector<detect::Detection>& found);
// What there is on the left, red where nobody could read it; on the right what was found, green where that is a text
// and red where it is not. As large as a report has room for.
Image draw_beside_truth(const Image& image, const std::vector<detect::TextRegion>& truths,
                        const std::vector<detect::Detection>& found, const detect::IcdarOptions& protocol = {});

}  // namespace invar
