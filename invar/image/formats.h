// What decode.cpp asks of each file format: the header first, then pixels as they are stored, not yet upright. Only
// decode.cpp and the formats themselves include this.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "invar/image/decode.h"
#include "invar/image/orientation.h"

namespace invar {

// One image file of which the header has been read and accepted.
class EncodedImage {
  public:
    virtual ~EncodedImage() = default;
    ImageSize size() const { return size_; }  // as stored
    Orientation orientation() const { return orientation_; }
    // RGB, all of it or a box of it. Called once.
    virtual Image decode() = 0;
    virtual DecodedRegion decode(const PixelBox& box, int /*shrink*/) {
        return {decode(), {double(box.top), double(box.left), double(box.height), double(box.width)}};
    }
    // Whether decode() can divide both sides by 2, 4 and 8.
    virtual bool shrinks() const { return false; }

  protected:
    EncodedImage() = default;
    EncodedImage(const EncodedImage&) = delete;
    EncodedImage& operator=(const EncodedImage&) = delete;
    ImageSize size_;
    Orientation orientation_;
};

using EncodedBytes = std::span<const std::uint8_t>;

std::unique_ptr<EncodedImage> open_jpeg(EncodedBytes bytes, const std::string& name, const DecodeLimits& limits);
std::unique_ptr<EncodedImage> open_png(EncodedBytes bytes, const std::string& name, const DecodeLimits& limits);
std::unique_ptr<EncodedImage> open_webp(EncodedBytes bytes, const std::string& name, const DecodeLimits& limits);

// Refuses what is empty, more than the limit, or more than so many bytes can hold: `most_ratio` is how many pixels a
// byte of that format can stand for at best, or 0 where there is no such bound.
void check_image_size(ImageSize size, const std::string& name, const DecodeLimits& limits, std::size_t bytes,
                      double most_ratio);

}  // namespace invar
