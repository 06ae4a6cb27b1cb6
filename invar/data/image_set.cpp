#include "invar/data/image_set.h"

#include "invar/core/error.h"

namespace invar {

ImageDataset::ImageDataset(std::string name, ImageSet images, double mean, double std)
    : name_(std::move(name)), images_(std::move(images)) {
    for (std::size_t v = 0; v < value_of_.size(); ++v) value_of_[v] = float((double(v) / 255.0 - mean) / std);
}

Batch image_batch(std::int64_t count, const Shape& image) {
    const PurposeScope purpose(Purpose::data);
    Shape shape = image;
    shape.insert(0, count);
    return Batch({{"x", Tensor::empty(shape, Dtype::f32)}, {"y", Tensor::empty({count}, Dtype::i64)}}, count);
}

Batch ImageDataset::read(std::span<const std::int64_t> indices) const {
    const Shape image = info().input;
    const std::int64_t per_image = image.numel();
    Batch batch = image_batch(std::int64_t(indices.size()), image);
    float* x = batch["x"].data<float>();
    std::int64_t* y = batch["y"].data<std::int64_t>();
    for (const std::int64_t index : indices) {
        check(index >= 0 && index < size(), "{}: sample {} does not exist; it has {}", name_, index, size());
        const std::uint8_t* pixel = images_.pixels.data() + index * per_image;
        for (std::int64_t i = 0; i < per_image; ++i) *x++ = value_of_[pixel[i]];
        *y++ = images_.labels[std::size_t(index)];
    }
    return batch;
}

}  // namespace invar
