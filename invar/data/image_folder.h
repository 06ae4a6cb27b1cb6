// data=image_folder: images of classes, a folder for each class. Files are read and augmented when a batch is made, on
// the thread that asks for it.
#pragma once

#include <array>
#include <filesystem>

#include "invar/config/key.h"
#include "invar/data/dataset.h"
#include "invar/data/pixels.h"
#include "invar/image/augment.h"

namespace invar {

struct ImageFolderOptions {
    std::string root = "data";
    std::int64_t size = 224;
    std::int64_t resize = 0;  // shorter side of what validation takes the middle of; 0: 256 for 224, and in proportion
    double val_share = 0.2;   // where there is no folder to validate on
    std::string on_broken = "refuse";
    // Augmentation of what is trained on, by the names and defaults of torchvision.
    bool augment = true;
    std::array<double, 2> scale{0.08, 1}, ratio{0.75, 1.3333};
    double flip = 0.5, degrees = 0, brightness = 0, contrast = 0, saturation = 0, hue = 0, grey = 0, blur = 0;
    std::array<double, 3> mean{0.485, 0.456, 0.406}, std{0.229, 0.224, 0.225};  // ImageNet's
};

// One split of such a folder.
struct ImageFolder {
    std::vector<std::string> classes;  // sorted
    std::vector<std::filesystem::path> files;
    std::vector<std::int64_t> labels;
    std::vector<std::string> notes;
};

// The classes of root/train, or of the root itself; a UsageError where there are less than two.
std::vector<std::string> image_folder_classes(const std::string& root);
// root/train/CLASS/* with root/val, valid, validation or test; without such a folder, or where the classes lie in the
// root itself, a share of each class is kept to validate on, chosen by the seed.
ImageFolder list_image_folder(const ImageFolderOptions& options, Split split, std::uint64_t seed);

class ImageFolderDataset final : public Dataset {
  public:
    ImageFolderDataset(const ImageFolderOptions& options, Split split, std::uint64_t seed);

    std::string name() const override { return "image_folder"; }
    std::int64_t size() const override { return std::int64_t(folder_.files.size()); }
    DataInfo info() const override;
    DataDescription description() const override;
    // As validation sees them, whatever the split.
    Batch read(std::span<const std::int64_t> indices) const override { return read(indices, {}, false); }
    Batch read_for(const ReadOptions& options, std::span<const std::int64_t> indices) const override {
        return read(indices, options, augmented_);
    }
    std::optional<PixelScale> pixels() const override { return scale_; }
    std::optional<SeenImage> see(std::span<const std::uint8_t> file, const std::string& name) const override;
    std::vector<std::string> class_names() const override { return folder_.classes; }
    std::vector<std::string> notes() const override { return folder_.notes; }
    const std::vector<std::int64_t>& labels() const { return folder_.labels; }
    // Of the file, from its header.
    ImageSize stored_size(std::int64_t index) const;

  private:
    Batch read(std::span<const std::int64_t> indices, const ReadOptions& options, bool augmented) const;
    Image image_of(std::int64_t index, std::int64_t epoch, bool augmented) const;

    ImageFolder folder_;
    AugmentOptions augment_;
    std::int64_t shorter_side_;
    std::uint64_t seed_;
    bool augmented_;
    PixelScale scale_;
    PixelTable table_;
};

}  // namespace invar
