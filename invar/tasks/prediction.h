// What a model says of a single image: for programs, for a person, and as a picture.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "invar/image/image.h"

namespace invar {

struct ImagePrediction {
    nlohmann::ordered_json found;    // an object: {"texts": [...]}, in pixels of the file's image
    std::vector<std::string> cells;  // the same in short, as many for each image of a task
    std::optional<Image> picture;    // the whole image with what was found drawn in
};

}  // namespace invar
