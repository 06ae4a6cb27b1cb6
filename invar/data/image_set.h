// Labelled images held as the bytes of their files; they become normalised floats when a batch is made, so that a
// data set costs a quarter of its float size.
#pragma once

#include <optional>

#include "invar/config/key.h"
#include "invar/data/dataset.h"
#include "invar/data/file_bytes.h"
#include "invar/data/pixels.h"

namespace invar {

struct ImageSet {
    std::int64_t height = 0;
    std::int64_t width = 0;
    std::int64_t channels = 0;
    Bytes pixels;  // NHWC
    Bytes labels;  // one an image, less than `classes`
    std::int64_t classes = 0;
    std::vector<std::string> names = {};  // of the classes, where they have any
};

// Of a set of images that is read from files.
struct ImageOptions {
    std::string root = "data";  // their folder; distribution packages are looked for in their own place
    double mean = 0.5;          // a pixel v in [0, 1] becomes (v - mean) / std
    double std = 0.5;
    std::string augment = "none";  // none, crop, flip or crop_flip
    std::int64_t pad = 4;
};
std::vector<Key> image_keys();

// What is done to small images that are trained on, as is usual for CIFAR.
struct ImageAugment {
    bool crop = false;  // moved by at most `pad` pixels either way; what comes in is black
    bool flip = false;  // every second one left for right
    std::int64_t pad = 4;
    std::uint64_t seed = 0;
    bool any() const { return crop || flip; }
};
// As the options say, for data to train on; nothing for others.
ImageAugment augment_of(const ImageOptions& options, Split split, std::uint64_t seed);
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
Batch image_batch(std::int64_t count, const Shape& image, Dtype pixels = Dtype::f32);

class ImageDataset final : public Dataset {
  public:
    ImageDataset(std::string name, ImageSet images, double mean, double std, const ImageAugment& augment = {});

    std::string name() const override { return name_; }
    std::int64_t size() const override { return std::int64_t(images_.labels.size()); }
    DataInfo info() const override { return {{images_.height, images_.width, images_.channels}, images_.classes}; }
    Batch read(std::span<const std::int64_t> indices) const override { return read(indices, {}, false); }
    Batch read_for(const ReadOptions& options, std::span<const std::int64_t> indices) const override {
        return read(indices, options, augment_.any());
    }
    std::optional<PixelScale> pixels() const override { return scale_; }
    std::vector<std::string> class_names() const override { return images_.names; }

  private:
    Batch read(std::span<const std::int64_t> indices, const ReadOptions& options, bool augmented) const;
    void augment(std::span<const std::uint8_t> image, std::int64_t epoch, std::int64_t index, std::uint8_t* out) const;

    std::string name_;
    ImageSet images_;
    PixelScale scale_;
    PixelTable table_;
    ImageAugment augment_;
};

}  // namespace invar
