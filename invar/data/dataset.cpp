#include "invar/data/dataset.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "invar/core/error.h"
#include "invar/core/suggest.h"
#include "invar/data/cifar.h"
#include "invar/data/idx.h"
#include "invar/data/synthetic.h"

namespace invar {

namespace {

namespace fs = std::filesystem;

const std::array<std::string, 5> kNames = {"fashion_mnist", "mnist", "cifar10", "cifar100", "synthetic"};

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
        const std::string images = read_data_file(paths[0]), labels = read_data_file(paths[1]);
        return parse_idx_images(bytes_of(images), paths[0].string(), bytes_of(labels), paths[1].string(), 10);
    }
    const Cifar kind = options.name == "cifar10" ? Cifar::ten : Cifar::hundred;
    ImageSet set = empty_cifar(kind);
    for (const fs::path& path : paths) append_cifar(set, bytes_of(read_data_file(path)), path.string(), kind);
    return set;
}

}  // namespace

std::string_view name_of(Split split) {
    return split == Split::train ? "train" : "test";
}

std::span<const std::string> dataset_names() {
    return kNames;
}

std::shared_ptr<Dataset> make_dataset(const DatasetOptions& options, Split split) {
    const bool known = std::find(kNames.begin(), kNames.end(), options.name) != kNames.end();
    check<UsageError>(known, "unknown data set '{}'{}; known: {}", options.name,
                      known ? "" : did_you_mean(options.name, kNames), fmt::join(kNames, ", "));
    check<UsageError>(std::isfinite(options.mean), "data.mean is {}, expected a finite number", options.mean);
    check<UsageError>(std::isfinite(options.std) && options.std > 0, "data.std is {}, expected a number above 0",
                      options.std);
    if (options.name == "synthetic") return std::make_shared<SyntheticDataset>(options, split);
    return std::make_shared<ImageDataset>(options.name, load(options, split), options.mean, options.std);
}

}  // namespace invar
