// Any bytes as IDX files, alone and as a pair of images and labels: a data set or an invar::Error, nothing else.
#include "invar/data/idx.h"

#include "invar/core/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 2) return 0;
    const std::span<const std::uint8_t> bytes(data + 2, size - 2);
    try {
        if (data[0] < 64) {
            invar::parse_idx(bytes, "input", data[0] % 4);
        } else {
            const std::size_t cut = bytes.size() * data[1] / 256;
            invar::parse_idx_images(bytes.subspan(cut), "images", bytes.first(cut), "labels", 10);
        }
    } catch (const invar::Error&) {
    }
    return 0;
}
