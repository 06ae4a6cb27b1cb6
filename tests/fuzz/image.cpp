// Any bytes as an image file: an image of the size that its header tells, the same as one and as part of one, or an
// invar::Error, nothing else.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "invar/core/error.h"
#include "invar/image/augment.h"
#include "invar/image/decode.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace invar;
    const DecodeLimits limits{.most_pixels = 1 << 16};
    try {
        const Image image = decode_image({data, size}, "input", limits);
        if (image.size() != image_size({data, size}, "input", limits) || image.channels != 3) std::abort();
        if (image.pixels.size() != std::size_t(image.height * image.width * 3)) std::abort();
        // A part of what could be decoded, also at a smaller scale.
        AugmentOptions options;
        options.size = {8, 8};
        options.reducing_gap = data[size / 2] % 2;
        const Image part = augment({data, size}, "input", options, augment_key(data[size - 1], 0, size), limits);
        if (part.size() != options.size) std::abort();
    } catch (const Error&) {
    }
    return 0;
}
