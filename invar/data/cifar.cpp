#include "invar/data/cifar.h"

#include "invar/core/error.h"
#include "invar/data/registry.h"

namespace invar {

namespace {

constexpr std::size_t kSide = 32;
constexpr std::size_t kPlane = kSide * kSide;
constexpr std::size_t kChannels = 3;
constexpr std::size_t kImage = kPlane * kChannels;
constexpr int kCoarseClasses = 20;
constexpr std::size_t kMaxRecords = 100000;  // in one file; CIFAR-100, the largest, has half as many

}  // namespace

ImageSet empty_cifar(Cifar kind) {
    ImageSet set;
    set.height = set.width = kSide;
    set.channels = kChannels;
    set.classes = kind == Cifar::ten ? 10 : 100;
    if (kind == Cifar::ten)
        set.names = {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"};
    return set;
}

void append_cifar(ImageSet& set, std::span<const std::uint8_t> bytes, const std::string& file, Cifar kind) {
    const std::size_t label_bytes = kind == Cifar::ten ? 1 : 2;
    const std::size_t record = label_bytes + kImage;
    if (is_gzip(bytes)) {
        return append_cifar(set, gunzip(bytes, file, kMaxRecords * record + 1), file, kind);
    }
    check<IoError>(bytes.size() <= kMaxRecords * record, "{}: more than {} images, the most a CIFAR file may hold",
                   file, kMaxRecords);
    check<IoError>(!bytes.empty() && bytes.size() % record == 0,
                   "{}: {} bytes, expected a multiple of {} (an image with its label); fetch the file again", file,
                   bytes.size(), record);

    const std::size_t count = bytes.size() / record;
    const std::size_t before = set.pixels.size();
    set.pixels.resize(before + count * kImage);
    for (std::size_t n = 0; n < count; ++n) {
        const std::uint8_t* in = bytes.data() + n * record;
        const int label = in[label_bytes - 1];
        check<IoError>(label < set.classes, "{}: label {} of image {}, expected 0 to {}", file, label, n,
                       set.classes - 1);
        const bool coarse_good = kind == Cifar::ten || in[0] < kCoarseClasses;
        check<IoError>(coarse_good, "{}: coarse label {} of image {}, expected 0 to {}", file, in[0], n,
                       kCoarseClasses - 1);
        set.labels.push_back(std::uint8_t(label));

        in += label_bytes;
        std::uint8_t* out = set.pixels.data() + before + n * kImage;
        for (std::size_t p = 0; p < kPlane; ++p) {
            for (std::size_t c = 0; c < kChannels; ++c) *out++ = in[c * kPlane + p];
        }
    }
}

namespace {

ImageSource source_of(Cifar kind) {
    if (kind == Cifar::ten)
        return {"cifar10",
                {"cifar-10-batches-bin", "cifar10"},
                "",
                "fetch and unpack https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"};
    return {"cifar100",
            {"cifar-100-binary", "cifar100"},
            "",
            "fetch and unpack https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz"};
}

std::vector<std::string> files_of(Cifar kind, Split split) {
    const bool train = split == Split::train;
    if (kind == Cifar::hundred) return {train ? "train.bin" : "test.bin"};
    if (!train) return {"test_batch.bin"};
    return {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"};
}

template <Cifar kind>
std::shared_ptr<const Dataset> open(const ImageOptions& options, Split split, std::uint64_t seed) {
    const ImageSource source = source_of(kind);
    ImageSet set = empty_cifar(kind);
    for (const std::filesystem::path& path : locate(source, options.root, split, files_of(kind, split)))
        append_cifar(set, bytes_of(read_data_file(path)), path.string(), kind);
    return std::make_shared<ImageDataset>(source.name, std::move(set), options.mean, options.std,
                                          augment_of(options, split, seed));
}

template <Cifar kind>
DataInfo describe(const ImageOptions&) {  // the format has one size
    return {{kSide, kSide, kChannels}, empty_cifar(kind).classes};
}

const RegisterData<ImageOptions> kTen{"cifar10", "CIFAR-10: 50000 colour images of 32x32 in 10 classes.",
                                      open<Cifar::ten>, image_keys(), describe<Cifar::ten>};
const RegisterData<ImageOptions> kHundred{"cifar100", "CIFAR-100: 50000 colour images of 32x32 in 100 classes.",
                                          open<Cifar::hundred>, image_keys(), describe<Cifar::hundred>};

}  // namespace

}  // namespace invar
