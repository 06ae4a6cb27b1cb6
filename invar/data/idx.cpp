#include "invar/data/idx.h"

#include <algorithm>

#include "invar/core/error.h"

namespace invar {

namespace {

constexpr std::uint8_t kUnsignedByte = 0x08;

std::int64_t big_endian(const std::uint8_t* p) {
    return std::int64_t(p[0]) << 24 | std::int64_t(p[1]) << 16 | std::int64_t(p[2]) << 8 | std::int64_t(p[3]);
}

std::vector<std::int64_t> parse_header(std::span<const std::uint8_t> header, const std::string& file, int rank) {
    check<IoError>(header.size() >= 4, "{}: {} bytes are too few for an IDX file", file, header.size());
    const bool magic = header[0] == 0 && header[1] == 0 && header[2] == kUnsignedByte && header[3] == rank;
    check<IoError>(magic, "{}: begins with {:02x}{:02x}{:02x}{:02x}, expected {:08x} (IDX, unsigned bytes, {} sizes)",
                   file, header[0], header[1], header[2], header[3], kUnsignedByte << 8 | rank, rank);
    check<IoError>(header.size() == std::size_t(4 + 4 * rank), "{}: {} bytes, expected a header of {}", file,
                   header.size(), 4 + 4 * rank);
    std::vector<std::int64_t> sizes;
    for (int i = 0; i < rank; ++i) sizes.push_back(big_endian(header.data() + 4 + 4 * i));
    return sizes;
}

// The product of the sizes, refused before it could overflow.
std::size_t element_count(const std::vector<std::int64_t>& sizes, const std::string& file) {
    std::size_t count = 1;
    for (const std::int64_t size : sizes) {
        check<IoError>(size > 0, "{}: its header gives sizes {}, expected all above 0", file, fmt::join(sizes, " x "));
        check<IoError>(std::size_t(size) <= kMaxDataBytes / count,
                       "{}: its header gives sizes {}, more than the {} bytes a data file may hold", file,
                       fmt::join(sizes, " x "), kMaxDataBytes);
        count *= std::size_t(size);
    }
    return count;
}

}  // namespace

IdxArray parse_idx(std::span<const std::uint8_t> bytes, const std::string& file, int rank) {
    const std::size_t header_bytes = std::size_t(4 + 4 * rank);
    const bool packed = is_gzip(bytes);
    const Bytes unpacked_header = packed ? gunzip(bytes, file, header_bytes) : Bytes();
    const auto header = packed ? std::span(unpacked_header) : bytes.first(std::min(bytes.size(), header_bytes));

    IdxArray array;
    array.sizes = parse_header(header, file, rank);
    const std::size_t expected = header_bytes + element_count(array.sizes, file);
    // One byte more than there should be is enough to see that there is too much.
    const Bytes unpacked = packed ? gunzip(bytes, file, expected + 1) : Bytes();
    const auto whole = packed ? std::span(unpacked) : bytes;
    check<IoError>(whole.size() == expected, "{}: holds {}{} bytes, expected {} for sizes {}; fetch the file again",
                   file, packed && whole.size() > expected ? "at least " : "", whole.size(), expected,
                   fmt::join(array.sizes, " x "));
    array.values.assign(whole.begin() + std::ptrdiff_t(header_bytes), whole.end());
    return array;
}

ImageSet parse_idx_images(std::span<const std::uint8_t> images, const std::string& images_file,
                          std::span<const std::uint8_t> labels, const std::string& labels_file, std::int64_t classes) {
    IdxArray pictures = parse_idx(images, images_file, 3);
    IdxArray answers = parse_idx(labels, labels_file, 1);
    check<IoError>(pictures.sizes[0] == answers.sizes[0], "{}: {} labels, expected {}, one for each image of {}",
                   labels_file, answers.sizes[0], pictures.sizes[0], images_file);
    const auto wrong = std::find_if(answers.values.begin(), answers.values.end(),
                                    [&](std::uint8_t label) { return std::int64_t(label) >= classes; });
    check<IoError>(wrong == answers.values.end(), "{}: label {} of image {}, expected 0 to {}", labels_file,
                   wrong == answers.values.end() ? 0 : int(*wrong), wrong - answers.values.begin(), classes - 1);

    ImageSet set;
    set.height = pictures.sizes[1], set.width = pictures.sizes[2], set.channels = 1;
    set.pixels = std::move(pictures.values);
    set.labels = std::move(answers.values);
    set.classes = classes;
    return set;
}

}  // namespace invar
