#include "invar/image/orientation.h"

#include <algorithm>
#include <cstring>

namespace invar {

Orientation Orientation::of_exif(int number) {
    switch (number) {
        case 2:
            return {false, false, true};
        case 3:
            return {false, true, true};
        case 4:
            return {false, true, false};
        case 5:
            return {true, false, false};
        case 6:
            return {true, true, false};
        case 7:
            return {true, true, true};
        case 8:
            return {true, false, true};
        default:
            return {};
    }
}

Image Orientation::upright(Image stored) const {
    if (is_upright()) return stored;
    const ImageSize size = upright(stored.size());
    Image out(size.height, size.width, stored.channels);
    const std::int64_t channels = stored.channels;
    for (std::int64_t y = 0; y < size.height; ++y) {
        std::uint8_t* to = out.row(y);
        for (std::int64_t x = 0; x < size.width; ++x, to += channels) {
            std::int64_t row = swapped ? x : y, column = swapped ? y : x;
            if (from_bottom) row = stored.height - 1 - row;
            if (from_right) column = stored.width - 1 - column;
            std::memcpy(to, stored.at(row, column), std::size_t(channels));
        }
    }
    return out;
}

PixelBox Orientation::to_stored(const PixelBox& box, ImageSize stored) const {
    PixelBox out = swapped ? PixelBox{box.left, box.top, box.width, box.height} : box;
    if (from_bottom) out.top = stored.height - out.top - out.height;
    if (from_right) out.left = stored.width - out.left - out.width;
    return out;
}

RealBox Orientation::to_upright(const RealBox& stored, ImageSize size) const {
    RealBox out = stored;
    if (from_bottom) out.top = double(size.height) - out.top - out.height;
    if (from_right) out.left = double(size.width) - out.left - out.width;
    return swapped ? RealBox{out.left, out.top, out.width, out.height} : out;
}

namespace {

// Numbers of a TIFF block in its own byte order; 0 where there is none, so that no offset leads outside.
class TiffBytes {
  public:
    explicit TiffBytes(std::span<const std::uint8_t> bytes) : bytes_(bytes), big_(bytes[0] == 'M') {}
    std::uint32_t number(std::size_t at, int count) const {
        if (at > bytes_.size() || bytes_.size() - at < std::size_t(count)) return 0;
        std::uint32_t value = 0;
        for (int i = 0; i < count; ++i) value = value << 8 | bytes_[at + std::size_t(big_ ? i : count - 1 - i)];
        return value;
    }

  private:
    std::span<const std::uint8_t> bytes_;
    bool big_;
};

}  // namespace

Orientation exif_orientation(std::span<const std::uint8_t> exif) {
    constexpr std::size_t kHeader = 8, kEntry = 12;
    constexpr std::uint32_t kOrientation = 0x0112, kShort = 3;
    if (exif.size() < kHeader) return {};
    const bool order_known = (exif[0] == 'I' && exif[1] == 'I') || (exif[0] == 'M' && exif[1] == 'M');
    const TiffBytes tiff(exif);
    if (!order_known || tiff.number(2, 2) != 42) return {};

    const std::size_t directory = tiff.number(4, 4);
    const std::size_t count = tiff.number(directory, 2);
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t entry = directory + 2 + i * kEntry;
        if (entry + kEntry > exif.size()) break;
        if (tiff.number(entry, 2) != kOrientation) continue;
        if (tiff.number(entry + 2, 2) != kShort || tiff.number(entry + 4, 4) != 1) break;
        return Orientation::of_exif(int(tiff.number(entry + 8, 2)));
    }
    return {};
}

}  // namespace invar
