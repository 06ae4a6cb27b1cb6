// What images with texts allow at best: labels scored as if a network had predicted them to the bit.
#pragma once

#include <cstdint>

#include "invar/data/text_images.h"
#include "invar/detect/ceiling.h"

namespace invar::cli {

// Of at most so many images, spread over the set, as validation sees them: the H-mean that their labels allow, why
// texts are lost, and the images that lose most. Images that cannot be read are passed over.
void print_text_ceiling(const TextImages& data, std::int64_t most, int threads, const detect::BoxOptions& boxes,
                        const detect::IcdarOptions& protocol);

}  // namespace invar::cli
