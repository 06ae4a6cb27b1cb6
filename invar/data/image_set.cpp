#include "invar/data/image_set.h"

#include <cmath>

#include "invar/core/error.h"

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
    return {key("root", &I::root, path(), "Folder of its files; distribution packages are found in their own place."),
            key("mean", &I::mean, any(), "A pixel v in [0, 1] becomes (v - mean) / std."),
            key("std", &I::std, above(0), "See mean.")};
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

ImageDataset::ImageDataset(std::string name, ImageSet images, double mean, double std)
    : name_(std::move(name)), images_(std::move(images)) {
    check_normalisation(mean, std);
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
