#include "invar/data/image_set.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "invar/core/error.h"
#include "invar/image/augment.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

std::vector<fs::path> folders_of(const ImageSource& source, const std::string& root) {
    const fs::path below = root.empty() ? "." : root;
    std::vector<fs::path> folders;
    for (const std::string& folder : source.folders) folders.push_back(below / folder);
    folders.push_back(below);
    if (!source.system_folder.empty()) folders.push_back(source.system_folder);
    return folders;
}

}  // namespace

std::vector<Key> image_keys() {
    using I = ImageOptions;
    return {
        key("root", &I::root, path(), "Folder of its files; distribution packages are found in their own place."),
        key("mean", &I::mean, any(), "A pixel v in [0, 1] becomes (v - mean) / std."),
        key("std", &I::std, above(0), "See mean."),
        key("augment", &I::augment, one_of({"none", "crop", "flip", "crop_flip"}),
            "What is done to images that are trained on: moved by up to pad pixels, every second one left for right, "
            "or both."),
        key("pad", &I::pad, within(0, 1024), "Pixels that a crop may leave the image by; they are black.")};
}

void check_normalisation(double mean, double std) {
    check<UsageError>(std::isfinite(mean), "data.mean is {}, expected a finite number", mean);
    check<UsageError>(std::isfinite(std) && std > 0, "data.std is {}, expected a number above 0", std);
}

std::optional<std::vector<fs::path>> look_for(const ImageSource& source, const std::string& root,
                                              const std::vector<std::string>& files) {
    return find_files(folders_of(source, root), files);
}

std::vector<fs::path> locate(const ImageSource& source, const std::string& root, Split split,
                             const std::vector<std::string>& files) {
    if (auto found = look_for(source, root, files)) return std::move(*found);
    std::vector<std::string> looked;
    for (const fs::path& folder : folders_of(source, root)) looked.push_back(folder.string());
    fail<UsageError>(
        "{} ({}): no folder holds {} (or with .gz); looked in {}; {}, set data.root to their folder, or use "
        "data=synthetic, which needs no files",
        source.name, name_of(split), fmt::join(files, ", "), fmt::join(looked, ", "), source.how_to_get);
}

ImageAugment augment_of(const ImageOptions& options, Split split, std::uint64_t seed) {
    if (split != Split::train) return {};
    const bool both = options.augment == "crop_flip";
    return {both || options.augment == "crop", both || options.augment == "flip", options.pad, seed};
}

ImageDataset::ImageDataset(std::string name, ImageSet images, double mean, double std, const ImageAugment& augment)
    : name_(std::move(name)),
      images_(std::move(images)),
      scale_(same_scale(images_.channels, mean, std)),
      table_(scale_),
      augment_(augment) {}

Batch image_batch(std::int64_t count, const Shape& image, Dtype pixels) {
    const PurposeScope purpose(Purpose::data);
    Shape shape = image;
    shape.insert(0, count);
    return Batch({{"x", Tensor::empty(shape, pixels)}, {"y", Tensor::empty({count}, Dtype::i64)}}, count);
}

void ImageDataset::augment(std::span<const std::uint8_t> image, std::int64_t epoch, std::int64_t index,
                           std::uint8_t* out) const {
    RandomDraws draws(augment_key(augment_.seed, std::uint64_t(epoch), std::uint64_t(index)));
    const std::int64_t pad = augment_.crop ? augment_.pad : 0;
    const std::int64_t down = draws.below(2 * pad + 1) - pad, right = draws.below(2 * pad + 1) - pad;
    const bool flip = augment_.flip && draws.chance(0.5);
    const auto [height, width, channels] = std::tuple(images_.height, images_.width, images_.channels);
    for (std::int64_t y = 0; y < height; ++y)
        for (std::int64_t x = 0; x < width; ++x, out += channels) {
            const std::int64_t from_y = y + down, from_x = (flip ? width - 1 - x : x) + right;
            const bool inside = from_y >= 0 && from_y < height && from_x >= 0 && from_x < width;
            if (inside)
                std::copy_n(image.data() + (from_y * width + from_x) * channels, channels, out);
            else
                std::fill_n(out, channels, std::uint8_t(0));
        }
}

Batch ImageDataset::read(std::span<const std::int64_t> indices, const ReadOptions& options, bool augmented) const {
    const Shape shape = info().input;
    const auto per_image = std::size_t(shape.numel());
    const Dtype dtype = options.bytes ? Dtype::u8 : Dtype::f32;
    Batch batch = image_batch(std::int64_t(indices.size()), shape, dtype);
    std::int64_t* y = batch["y"].data<std::int64_t>();
    Bytes changed(augmented ? per_image : 0);
    for (std::size_t i = 0; i < indices.size(); ++i) {
        const std::int64_t index = indices[i];
        check(index >= 0 && index < size(), "{}: sample {} does not exist; it has {}", name_, index, size());
        std::span<const std::uint8_t> image(images_.pixels.data() + std::size_t(index) * per_image, per_image);
        if (augmented) {
            augment(image, options.epoch, index, changed.data());
            image = changed;
        }
        if (options.bytes)
            std::ranges::copy(image, batch["x"].data<std::uint8_t>() + i * per_image);
        else
            table_.numbers(image, batch["x"].data<float>() + i * per_image);
        *y++ = images_.labels[std::size_t(index)];
    }
    return batch;
}

}  // namespace invar
