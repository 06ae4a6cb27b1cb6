// Image files for the tests, made here: PNG chunk by chunk, JPEG of any kind by libjpeg, WebP by libwebp, and EXIF in
// each of them. What is to be broken is easier to break where it is made.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "invar/image/decode.h"
#include "invar/image/image.h"

namespace invar::testing {

// Smooth colours with some structure, the same on every machine.
Image test_picture(std::int64_t height, std::int64_t width, std::int64_t channels = 3);

inline std::span<const std::uint8_t> bytes_of(std::string_view text) {
    return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}
inline Image decode(std::string_view file, const DecodeLimits& limits = {}) {
    return decode_image(bytes_of(file), "F", limits);
}

// ---- PNG ----

struct PngKind {
    std::uint32_t width = 0, height = 0;
    int bits = 8;
    int colour = 2;  // 0 grey, 2 RGB, 3 palette, 4 grey and alpha, 6 RGB and alpha
    bool interlaced = false;
};
std::string png_chunk(std::string_view name, std::string_view data);
std::string png_header(const PngKind& kind);  // signature and IHDR
// One sample of a pixel, by row, column and channel.
using Sample = std::function<unsigned(std::int64_t y, std::int64_t x, int channel)>;
std::string png_rows(const PngKind& kind, const Sample& sample);  // as they are before compression
std::string deflated(std::string_view bytes);
// `extra` are chunks between header and pixels.
std::string make_png(const PngKind& kind, const Sample& sample, std::string_view extra = "");

// ---- JPEG ----

struct JpegKind {
    enum class Colours { grey, ycc, rgb, cmyk, ycck } colours = Colours::ycc;
    int quality = 95;
    int horizontal = 2, vertical = 2;  // sampling of the first component
    bool progressive = false;
    bool arithmetic = false;
    bool separate = false;  // a scan for each component
    int restart = 0;        // MCUs between restart markers
};
// `pixels`: as many samples of a pixel as the colours have, in rows.
std::string make_jpeg(std::int64_t height, std::int64_t width, const std::vector<std::uint8_t>& pixels,
                      const JpegKind& kind = {});
inline std::string make_jpeg(const Image& image, const JpegKind& kind = {}) {
    return make_jpeg(image.height, image.width, image.pixels, kind);
}
// A segment put right behind the first marker.
std::string with_segment(std::string jpeg, int marker, std::string_view data);

// ---- EXIF ----

// A TIFF block whose only entry is the orientation.
std::string exif_block(int orientation, bool big_endian = false);

// Largest difference of two pixels.
int distance(const Image& a, const Image& b);

}  // namespace invar::testing
