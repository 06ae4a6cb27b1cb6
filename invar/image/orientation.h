// Orientation: how a camera was held, as EXIF tells it, and what turns an image upright. Pixels, boxes and sizes are
// turned by the same three switches.
#pragma once

#include <cstdint>
#include <span>

#include "invar/image/image.h"

namespace invar {

struct Orientation {
    // The upright pixel (y, x) is the stored pixel (y, x), or (x, y) where `swapped`, with its row counted from the
    // bottom where `from_bottom` and its column from the right where `from_right`.
    bool swapped = false;
    bool from_bottom = false;
    bool from_right = false;

    // EXIF's numbers, 1 to 8; any other one means upright, as 1 does.
    static Orientation of_exif(int number);
    bool is_upright() const { return !swapped && !from_bottom && !from_right; }
    ImageSize upright(ImageSize stored) const { return swapped ? ImageSize{stored.width, stored.height} : stored; }
    Image upright(Image stored) const;
    // A box of the upright image in the stored one, which is of that size; and back.
    PixelBox to_stored(const PixelBox& upright, ImageSize stored) const;
    RealBox to_upright(const RealBox& stored, ImageSize size) const;
};

// The orientation that a block of EXIF (a TIFF header and what follows, without "Exif\0\0") tells; upright where it
// tells none or is broken, since an image is worth more than its tags.
Orientation exif_orientation(std::span<const std::uint8_t> exif);

}  // namespace invar
