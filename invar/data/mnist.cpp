// MNIST, Fashion-MNIST, and any other images in IDX files of those names. Sizes come from the files.
#include <algorithm>

#include "invar/data/idx.h"
#include "invar/data/registry.h"

namespace invar {

namespace {

using Paths = std::vector<std::filesystem::path>;

struct IdxSet {
    ImageSource source;
    std::int64_t classes;               // 0: as many as the training labels tell apart
    std::optional<DataInfo> published;  // what the files hold as they are published
    std::vector<std::string> names = {};
};

const IdxSet kFashion = {
    {"fashion_mnist",
     {"FashionMNIST/raw", "fashion-mnist", "fashion_mnist"},
     "/usr/share/datasets/fashion-mnist",
     "run `apt install dataset-fashion-mnist`"},
    10,
    DataInfo{{28, 28, 1}, 10},
    {"T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"}};
const IdxSet kDigits = {
    {"mnist", {"MNIST/raw", "mnist"}, "", "fetch them from https://ossci-datasets.s3.amazonaws.com/mnist/"},
    10,
    DataInfo{{28, 28, 1}, 10}};
const IdxSet kAny = {{"idx", {}, "", "put them there"}, 0, {}};

std::vector<std::string> files_of(Split split) {
    const std::string prefix = split == Split::train ? "train" : "t10k";
    return {prefix + "-images-idx3-ubyte", prefix + "-labels-idx1-ubyte"};
}

std::int64_t classes_in(const std::filesystem::path& labels) {
    const std::string bytes = read_data_file(labels);
    const IdxArray answers = parse_idx(bytes_of(bytes), labels.string(), 1);
    return 1 + std::int64_t(*std::ranges::max_element(answers.values));
}

std::shared_ptr<const Dataset> open(const IdxSet& set, const ImageOptions& options, Split split, std::uint64_t seed) {
    const Paths paths = locate(set.source, options.root, split, files_of(split));
    const std::int64_t classes =
        set.classes > 0 ? set.classes
                        : classes_in(locate(set.source, options.root, Split::train, files_of(Split::train))[1]);
    const std::string images = read_data_file(paths[0]), labels = read_data_file(paths[1]);
    ImageSet read = parse_idx_images(bytes_of(images), paths[0].string(), bytes_of(labels), paths[1].string(), classes);
    read.names = set.names;
    return std::make_shared<ImageDataset>(set.source.name, std::move(read), options.mean, options.std,
                                          augment_of(options, split, seed));
}

DataInfo describe(const IdxSet& set, const ImageOptions& options) {
    const bool there = look_for(set.source, options.root, files_of(Split::train)).has_value();
    return !there && set.published ? *set.published : open(set, options, Split::train, 0)->info();
}

template <const IdxSet& set>
struct RegisterIdx : RegisterData<ImageOptions> {
    explicit RegisterIdx(const char* about) noexcept
        : RegisterData(
              set.source.name, about,
              [](const ImageOptions& options, Split split, std::uint64_t seed) {
                  return open(set, options, split, seed);
              },
              image_keys(), [](const ImageOptions& options) { return describe(set, options); }) {}
};

const RegisterIdx<kFashion> kRegisterFashion{"Fashion-MNIST: 60000 images of 28x28 in 10 classes."};
const RegisterIdx<kDigits> kRegisterDigits{"MNIST: 60000 handwritten digits of 28x28."};
const RegisterIdx<kAny> kRegisterAny{
    "Images of any size in IDX files named as MNIST's are, in data.root; as many classes as the labels have."};

}  // namespace

}  // namespace invar
