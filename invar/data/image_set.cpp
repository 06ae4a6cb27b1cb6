#include "invar/data/image_set.h"

#include "invar/core/error.h"

namespace invar {

ImageDataset::ImageDataset(std::string name, ImageSet images, double mean, double std)
    : name_(std::move(name)), images_(std::move(images)) {
    for (std::size_t v = 0; v < value_of_.size(); ++v) value_of_[v] = float((double(v) / 255.0 - mean) / std);
}

void ImageDataset::read(std::span<const std::int64_t> indices, float* x, std::int64_t* y) const {
    const std::int64_t per_image = sample_shape().numel();
    for (const std::int64_t index : indices) {
        check(index >= 0 && index < size(), "{}: sample {} does not exist; it has {}", name_, index, size());
        const std::uint8_t* pixel = images_.pixels.data() + index * per_image;
        for (std::int64_t i = 0; i < per_image; ++i) *x++ = value_of_[pixel[i]];
        *y++ = images_.labels[std::size_t(index)];
    }
}

}  // namespace invar
