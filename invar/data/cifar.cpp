#include "invar/data/cifar.h"

#include "invar/core/error.h"

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

}  // namespace invar
