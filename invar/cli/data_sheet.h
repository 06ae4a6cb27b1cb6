// A batch of images as a person sees them: pixels as they were before they were normalised, labels drawn in.
#pragma once

#include <string>
#include <vector>

#include "invar/data/batch.h"
#include "invar/data/dataset.h"
#include "invar/image/image.h"

namespace invar::cli {

// In rows, with captions. Classes are named below the images; texts are outlined (yellow; red where nobody could read
// them), their shrunk cores tinted green and what the network is told nothing of tinted red.
Image sheet_of(const Batch& batch, const PixelScale& scale, const std::vector<std::string>& class_names);

}  // namespace invar::cli
