// IDX, the format of MNIST and Fashion-MNIST: two zero bytes, an element type, a rank, big-endian sizes, then the
// elements; plain or in gzip.
#pragma once

#include "invar/data/image_set.h"

namespace invar {

struct IdxArray {
    std::vector<std::int64_t> sizes;
    Bytes values;
};

// `file` names the bytes in errors.
IdxArray parse_idx(std::span<const std::uint8_t> bytes, const std::string& file, int rank);

ImageSet parse_idx_images(std::span<const std::uint8_t> images, const std::string& images_file,
                          std::span<const std::uint8_t> labels, const std::string& labels_file, std::int64_t classes);

}  // namespace invar
