// A text in an image, as data sets label it: where it is, what it says, and whether it counts.
#pragma once

#include <string>

#include "invar/detect/polygon.h"

namespace invar::detect {

struct TextRegion {
    Polygon polygon;
    std::string transcription = {};
    bool dont_care = false;  // nobody could read it: neither found nor missed
};

}  // namespace invar::detect
