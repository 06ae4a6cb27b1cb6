// Labelled images held as the bytes of their files; they become normalised floats when a batch is made, so that a
// data set costs a quarter of its float size.
#pragma once

#include <array>

#include "invar/data/dataset.h"
#include "invar/data/file_bytes.h"

namespace invar {

struct ImageSet {
    std::int64_t height = 0;
    std::int64_t width = 0;
    std::int64_t channels = 0;
    Bytes pixels;  // NHWC
    Bytes labels;  // one an image, less than `classes`
    std::int64_t classes = 0;
};

// Room for so many images and their labels, on the host and accounted under Purpose::data.
Batch image_batch(std::int64_t count, const Shape& image);

class ImageDataset final : public Dataset {
  public:
    ImageDataset(std::string name, ImageSet images, double mean, double std);

    std::string name() const override { return name_; }
    std::int64_t size() const override { return std::int64_t(images_.labels.size()); }
    DataInfo info() const override { return {{images_.height, images_.width, images_.channels}, images_.classes}; }
    Batch read(std::span<const std::int64_t> indices) const override;

  private:
    std::string name_;
    ImageSet images_;
    std::array<float, 256> value_of_;  // a byte has 256 values, so normalising one is a look-up
};

}  // namespace invar
