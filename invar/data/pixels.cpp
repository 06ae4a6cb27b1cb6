#include "invar/data/pixels.h"

#include <algorithm>
#include <cmath>

#include "invar/core/error.h"
#include "invar/kernels/kernels.h"
#include "invar/kernels/pointwise.h"
#include "invar/ops/shape_tools.h"
#include "invar/ops/to.h"

namespace invar {

PixelTable::PixelTable(const PixelScale& scale) : scale_(scale) {
    check<UsageError>(!scale.mean.empty() && scale.mean.size() == scale.std.size(),
                      "data.mean has {} numbers and data.std {}, expected one for each channel", scale.mean.size(),
                      scale.std.size());
    for (std::size_t c = 0; c < scale.mean.size(); ++c) {
        check<UsageError>(std::isfinite(scale.mean[c]), "data.mean is {}, expected a finite number", scale.mean[c]);
        check<UsageError>(std::isfinite(scale.std[c]) && scale.std[c] > 0, "data.std is {}, expected a number above 0",
                          scale.std[c]);
        std::array<float, 256>& values = values_.emplace_back();
        for (std::size_t v = 0; v < values.size(); ++v)
            values[v] = float((double(v) / 255.0 - scale.mean[c]) / scale.std[c]);
    }
}

void PixelTable::numbers(std::span<const std::uint8_t> bytes, float* out) const {
    const std::size_t channels = values_.size();
    if (channels == 1) {
        for (const std::uint8_t byte : bytes) *out++ = values_[0][byte];
        return;
    }
    for (std::size_t i = 0; i + channels <= bytes.size(); i += channels)
        for (std::size_t c = 0; c < channels; ++c) *out++ = values_[c][bytes[i + c]];
}

void PixelTable::bytes(std::span<const float> numbers, std::uint8_t* out) const {
    const std::size_t channels = values_.size();
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        const std::size_t c = i % channels;
        const double value = 255.0 * (double(numbers[i]) * scale_.std[c] + scale_.mean[c]);
        *out++ = std::uint8_t(std::lround(std::isfinite(value) ? std::clamp(value, 0.0, 255.0) : 0.0));
    }
}

SeenImage seen_image(const Image& view, const PixelTable& table) {
    const PurposeScope purpose(Purpose::data);
    SeenImage seen;
    seen.x = Tensor::empty({1, view.height, view.width, view.channels}, Dtype::f32);
    table.numbers(view.pixels, seen.x.data<float>());
    return seen;
}

std::vector<Image> images_of(const Tensor& x, const PixelScale& scale) {
    check(x.rank() == 4, "images are [samples, height, width, channels], and x is {}", x.str());
    const std::int64_t height = x.size(1), width = x.size(2), channels = x.size(3), shown = channels == 3 ? 3 : 1;
    const std::vector<float> numbers = x.to_vector<float>();
    std::vector<std::uint8_t> bytes(numbers.size());
    PixelTable(scale).bytes(numbers, bytes.data());
    std::vector<Image> images;
    for (std::int64_t i = 0; i < x.size(0); ++i) {
        Image& image = images.emplace_back(height, width, 3);
        const std::uint8_t* from = bytes.data() + i * height * width * channels;
        for (std::int64_t p = 0; p < height * width; ++p)
            for (std::int64_t c = 0; c < 3; ++c)
                image.pixels[std::size_t(p * 3 + c)] = from[p * channels + (shown == 3 ? c : 0)];
    }
    return images;
}

DevicePixels::DevicePixels(const PixelScale& scale, Device device) {
    (void)PixelTable(scale);  // refuses what is no scale
    std::vector<float> factor, shift;
    for (std::size_t c = 0; c < scale.mean.size(); ++c) {
        factor.push_back(float(1.0 / (255.0 * scale.std[c])));
        shift.push_back(float(-scale.mean[c] / scale.std[c]));
    }
    const PurposeScope purpose(Purpose::data);
    const Shape channels{std::int64_t(factor.size())};
    factor_ = ops::to(Tensor::from(factor, channels), device);
    shift_ = ops::to(Tensor::from(shift, channels), device);
}

// By kernels and not by ops: batches are made wherever the caller stands, under Autocast and watchers too.
Tensor DevicePixels::numbers(const Tensor& bytes) const {
    check(bytes.dtype() == Dtype::u8 && bytes.rank() > 0 && bytes.size(-1) == factor_.numel(),
          "pixels are u8 with {} channels, not {}", factor_.numel(), bytes.str());
    const PurposeScope purpose(Purpose::data);
    Kernels& kernels = kernels_for(bytes.device());
    Tensor x = Tensor::empty(bytes.shape(), Dtype::f32, bytes.device());
    kernels.copy(bytes.view(), x.view());
    kernels.binary(BinaryOp::Mul, x.view(), ops::expanded(factor_, x.shape()).view(), x.view(), {});
    kernels.binary(BinaryOp::Add, x.view(), ops::expanded(shift_, x.shape()).view(), x.view(), {});
    return x;
}

PixelScale same_scale(std::int64_t channels, double mean, double std) {
    const auto count = std::size_t(channels);
    return {std::vector<double>(count, mean), std::vector<double>(count, std)};
}

}  // namespace invar
