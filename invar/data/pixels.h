// Pixels as numbers: a byte of an image becomes (v / 255 - mean) / std, on the host by a look-up, on a device by
// kernels behind the transfer, so that a batch travels as a quarter of its size.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "invar/core/tensor.h"
#include "invar/data/dataset.h"

namespace invar {

// A byte has 256 values, so normalising one is a look-up.
class PixelTable {
  public:
    explicit PixelTable(const PixelScale& scale);
    // Pixels in rows of channels, as many as the scale has.
    void numbers(std::span<const std::uint8_t> bytes, float* out) const;
    // Back to the nearest byte.
    void bytes(std::span<const float> numbers, std::uint8_t* out) const;

  private:
    PixelScale scale_;
    std::vector<std::array<float, 256>> values_;  // for each channel
};

// What a model sees where this is the view of an image; the rest is left to the caller.
SeenImage seen_image(const Image& view, const PixelTable& table);

// Images to look at, with three channels, of x [n, height, width, channels] on any device; of channels that are no
// colours the first.
std::vector<Image> images_of(const Tensor& x, const PixelScale& scale);

class DevicePixels {
  public:
    DevicePixels(const PixelScale& scale, Device device);
    // f32 of u8 [..., channels]; on the table's numbers to rounding.
    Tensor numbers(const Tensor& bytes) const;

  private:
    Tensor factor_, shift_;  // f32 [channels]
};

// One value for all channels.
PixelScale same_scale(std::int64_t channels, double mean, double std);

}  // namespace invar
