// Pictures that the runs of a comparison have left in their folders, as a report that needs nothing else holds them.
#pragma once

#include <string>
#include <vector>

#include "invar/validate/comparison.h"

namespace invar {

// What the arms show of one sample.
struct PictureRow {
    struct Shown {
        std::string arm;
        std::string uri;  // data:image/jpeg;base64,...
    };
    std::vector<Shown> shown;  // the baseline first
};

// Of the first run of each arm that has any; a picture that cannot be read is left out.
std::vector<PictureRow> picture_rows(const Comparison& comparison);

std::string base64(std::string_view bytes);

}  // namespace invar
