// Small pictures as files, for the tests of data sets that read images.
#pragma once

#include <string>

#include "invar/image/encode.h"
#include "invar/image/image.h"
#include "tests/data/files.h"

namespace invar::testing {

// Smooth colours that differ with `number`.
inline Image picture(std::int64_t height, std::int64_t width, int number) {
    Image image(height, width);
    for (std::int64_t y = 0; y < height; ++y)
        for (std::int64_t x = 0; x < width; ++x) {
            std::uint8_t* pixel = image.at(y, x);
            pixel[0] = std::uint8_t(40 * number + 255 * x / width);
            pixel[1] = std::uint8_t(255 * y / height);
            pixel[2] = std::uint8_t(17 * number + (x / 4 + y / 4) % 2 * 100);
        }
    return image;
}

inline Bytes as_bytes(const std::string& text) {
    return {text.begin(), text.end()};
}
inline Bytes png_of(const Image& image) {
    return as_bytes(encode_png(image));
}
inline Bytes jpeg_of(const Image& image) {
    return as_bytes(encode_jpeg(image));
}

}  // namespace invar::testing
