// Labelled images held as the bytes of their files; they become normalised floats when a batch is made, so that a
// data set costs a quarter of its float size.
#pragma once

#include <array>
#include <optional>

#include "invar/config/key.h"
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

// Of a set of images that is read from files.
struct ImageOptions {
    std::string root = "data";  // their folder; distribution packages are looked for in their own place
    double mean = 0.5;          // a pixel v in [0, 1] becomes (v - mean) / std
    double std = 0.5;
};
std::vector<Key> image_keys();
void check_normalisation(double mean, double std);

// Where a data set's files may lie, and how to get them.
struct ImageSource {
    std::string name;                  // "mnist"
    std::vector<std::string> folders;  // below the root; the root itself comes after them
    std::string system_folder;         // of the distribution's package, or empty
    std::string how_to_get;
};
// The full paths of all files of a split, which may each end in ".gz". Nothing where some are missing.
std::optional<std::vector<std::filesystem::path>> look_for(const ImageSource& source, const std::string& root,
                                                           const std::vector<std::string>& files);
// The same, or a UsageError that says where it looked and how to get them.
std::vector<std::filesystem::path> locate(const ImageSource& source, const std::string& root, Split split,
                                          const std::vector<std::string>& files);

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
