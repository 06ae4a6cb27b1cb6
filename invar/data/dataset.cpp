#include "invar/data/dataset.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "invar/core/error.h"
#include "invar/data/cifar.h"
#include "invar/data/idx.h"
#include "invar/data/synthetic.h"

namespace invar {

namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 5> kNames = {"fashion_mnist", "mnist", "cifar10", "cifar100", "synthetic"};

// Where a data set's files may lie below the root, and how to get them.
struct Source {
    std::vector<std::string> folders;  // below the root; the root itself comes after them
    std::string system_folder;         // of the distribution's package, or empty
    std::string how_to_get;
};

Source source_of(std::string_view name) {
    if (name == "fashion_mnist") {
        return {{"FashionMNIST/raw", "fashion-mnist", "fashion_mnist"},
                "/usr/share/datasets/fashion-mnist",
                "run `apt install dataset-fashion-mnist`"};
    }
    if (name == "mnist") {
        return {{"MNIST/raw", "mnist"}, "", "fetch them from https://ossci-datasets.s3.amazonaws.com/mnist/"};
    }
    if (name == "cifar10") {
        return {{"cifar-10-batches-bin", "cifar10"},
                "",
                "fetch and unpack https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"};
    }
    return {{"cifar-100-binary", "cifar100"},
            "",
            "fetch and unpack https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz"};
}

std::vector<std::string> files_of(std::string_view name, Split split) {
    const bool train = split == Split::train;
    if (name == "cifar100") return {train ? "train.bin" : "test.bin"};
    if (name == "cifar10" && !train) return {"test_batch.bin"};
    if (name == "cifar10") {
        return {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"};
    }
    const std::string prefix = train ? "train" : "t10k";
    return {prefix + "-images-idx3-ubyte", prefix + "-labels-idx1-ubyte"};
}

std::vector<fs::path> locate(const DatasetOptions& options, Split split) {
    const Source source = source_of(options.name);
    const std::vector<std::string> files = files_of(options.name, split);
    const fs::path root = options.root.empty() ? "." : options.root;
    std::vector<fs::path> folders;
    for (const std::string& folder : source.folders) folders.push_back(root / folder);
    folders.push_back(root);
    if (!source.system_folder.empty()) folders.push_back(source.system_folder);

    auto found = find_files(folders, files);
    if (found) return std::move(*found);
    std::vector<std::string> looked;
    for (const fs::path& folder : folders) looked.push_back(folder.string());
    fail<UsageError>(
        "{} ({}): no folder holds {} (or with .gz); looked in {}; {}, set data.root to their folder, or use "
        "data=synthetic, which needs no files",
        options.name, name_of(split), fmt::join(files, ", "), fmt::join(looked, ", "), source.how_to_get);
}

ImageSet load(const DatasetOptions& options, Split split) {
    const std::vector<fs::path> paths = locate(options, split);
    if (!options.name.starts_with("cifar")) {
        return parse_idx_images(read_file_bytes(paths[0]), paths[0].string(), read_file_bytes(paths[1]),
                                paths[1].string(), 10);
    }
    const Cifar kind = options.name == "cifar10" ? Cifar::ten : Cifar::hundred;
    ImageSet set = empty_cifar(kind);
    for (const fs::path& path : paths) append_cifar(set, read_file_bytes(path), path.string(), kind);
    return set;
}

// How many letters must change to make one name from the other.
std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t(0));
    for (std::size_t i = 0; i < a.size(); ++i) {
        std::size_t diagonal = std::exchange(row[0], i + 1);
        for (std::size_t j = 0; j < b.size(); ++j) {
            const std::size_t replaced = diagonal + (a[i] != b[j]);
            diagonal = std::exchange(row[j + 1], std::min({row[j] + 1, row[j + 1] + 1, replaced}));
        }
    }
    return row.back();
}

}  // namespace

Batch read_batch(const Dataset& dataset, std::span<const std::int64_t> indices) {
    const PurposeScope purpose(Purpose::data);
    Batch batch;
    batch.size = std::int64_t(indices.size());
    Shape shape = dataset.sample_shape();
    shape.insert(0, batch.size);
    batch.x = Tensor::empty(shape, Dtype::f32);
    batch.y = Tensor::empty({batch.size}, Dtype::i64);
    dataset.read(indices, batch.x.data<float>(), batch.y.data<std::int64_t>());
    return batch;
}

std::string_view name_of(Split split) {
    return split == Split::train ? "train" : "test";
}

std::span<const std::string_view> dataset_names() {
    return kNames;
}

std::shared_ptr<Dataset> make_dataset(const DatasetOptions& options, Split split) {
    if (std::find(kNames.begin(), kNames.end(), options.name) == kNames.end()) {
        const auto nearest = std::min_element(kNames.begin(), kNames.end(), [&](auto a, auto b) {
            return edit_distance(options.name, a) < edit_distance(options.name, b);
        });
        fail<UsageError>("unknown data set \"{}\"; did you mean \"{}\"? known: {}", options.name, *nearest,
                         fmt::join(kNames, ", "));
    }
    check<UsageError>(std::isfinite(options.mean), "data.mean is {}, expected a finite number", options.mean);
    check<UsageError>(std::isfinite(options.std) && options.std > 0, "data.std is {}, expected a number above 0",
                      options.std);
    if (options.name == "synthetic") return std::make_shared<SyntheticDataset>(options, split);
    return std::make_shared<ImageDataset>(options.name, load(options, split), options.mean, options.std);
}

}  // namespace invar
