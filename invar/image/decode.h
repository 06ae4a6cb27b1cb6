// JPEG, PNG and WebP files as RGB images, upright. Bytes may come from anywhere: what is broken, cut short or too large
// is refused in one line that names the file, before memory is taken for it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "invar/image/image.h"

namespace invar {

struct DecodeLimits {
    std::int64_t most_pixels = 178'956'970;  // of the whole image, as Pillow has it: 512 MiB of RGB
};

enum class ImageFormat { jpeg, png, webp };

// By the first bytes, whatever the file is called; nothing where it is none of them.
std::optional<ImageFormat> image_format(std::span<const std::uint8_t> bytes);

// Height and width of the upright image, from the header alone.
ImageSize image_size(std::span<const std::uint8_t> bytes, const std::string& name, const DecodeLimits& limits = {});

// Always three channels, as Pillow's convert("RGB") makes them: grey is repeated, alpha left out, CMYK printed on
// white. Of 16 bits the upper 8 stay, where Pillow turns 16-bit grey white. Of an animation this is the first frame.
Image decode_image(std::span<const std::uint8_t> bytes, const std::string& name, const DecodeLimits& limits = {});
Image read_image(const std::filesystem::path& path, const DecodeLimits& limits = {});

// A part of an image. Where only a part was decoded, or at a smaller scale, `box` is what was asked for in pixels of
// `image`, which holds that and often some more around it.
struct DecodedRegion {
    Image image;
    RealBox box;
};

// The pixels of a box of the upright image. Of a JPEG only they are decoded, and where `at_least` is given at a half, a
// quarter or an eighth of their size as long as the box keeps that height and width. Without it the pixels are those
// of decode_image.
DecodedRegion decode_region(std::span<const std::uint8_t> bytes, const std::string& name, const PixelBox& box,
                            std::optional<ImageSize> at_least = {}, const DecodeLimits& limits = {});

}  // namespace invar
