// The best that images with texts allow as validation sees them: detect/ceiling.h over a data set.
#pragma once

#include "invar/data/text_images.h"
#include "invar/detect/ceiling.h"

namespace invar {

// Of at most so many images, spread over the set, in its order. Labels are those that the data make. Images that cannot
// be read are passed over, and so are those that are left when `stopped` says so.
std::vector<detect::ImageCeiling> ceilings_of(const TextImages& data, std::int64_t most, int threads,
                                              detect::BoxOptions boxes = {}, const detect::IcdarOptions& protocol = {},
                                              const Stopped& stopped = {});

}  // namespace invar
