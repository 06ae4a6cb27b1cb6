// Image: 8-bit pixels in rows, as files hold them and as people look at them. Decoding makes them, transforms and
// drawing change them; a data set turns them into tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace invar {

struct ImageSize {
    std::int64_t height = 0;
    std::int64_t width = 0;
    bool operator==(const ImageSize&) const = default;
};

// Whole pixels of an image.
struct PixelBox {
    std::int64_t top = 0;
    std::int64_t left = 0;
    std::int64_t height = 0;
    std::int64_t width = 0;
    bool operator==(const PixelBox&) const = default;
};

// The same where a border may run through a pixel: pixel x covers [x, x + 1).
struct RealBox {
    double top = 0;
    double left = 0;
    double height = 0;
    double width = 0;
};

struct Rgb {
    std::uint8_t r = 0;
    std::uint8_t g = 0;
    std::uint8_t b = 0;
    bool operator==(const Rgb&) const = default;
};

struct Image {
    std::int64_t height = 0;
    std::int64_t width = 0;
    std::int64_t channels = 3;         // 3: red, green, blue; 1: grey
    std::vector<std::uint8_t> pixels;  // HWC

    Image() = default;
    Image(std::int64_t height_, std::int64_t width_, std::int64_t channels_ = 3, std::uint8_t value = 0)
        : height(height_),
          width(width_),
          channels(channels_),
          pixels(std::size_t(height_) * std::size_t(width_) * std::size_t(channels_), value) {}

    ImageSize size() const { return {height, width}; }
    std::size_t stride() const { return std::size_t(width) * std::size_t(channels); }  // bytes of a row
    std::uint8_t* row(std::int64_t y) { return pixels.data() + std::size_t(y) * stride(); }
    const std::uint8_t* row(std::int64_t y) const { return pixels.data() + std::size_t(y) * stride(); }
    std::uint8_t* at(std::int64_t y, std::int64_t x) { return row(y) + x * channels; }
    const std::uint8_t* at(std::int64_t y, std::int64_t x) const { return row(y) + x * channels; }
    bool operator==(const Image&) const = default;
};

}  // namespace invar
