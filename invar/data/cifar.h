// The binary version of CIFAR-10 and CIFAR-100: records of one or two label bytes and a 32x32 image in three planes;
// plain or in gzip.
#pragma once

#include "invar/data/image_set.h"

namespace invar {

enum class Cifar : std::uint8_t { ten, hundred };

// An empty set of the right shape, for append_cifar to fill from one file after another.
ImageSet empty_cifar(Cifar kind);
// Turns the planes into NHWC; of CIFAR-100's two labels the fine one is kept. `file` names the bytes in errors.
void append_cifar(ImageSet& set, std::span<const std::uint8_t> bytes, const std::string& file, Cifar kind);

}  // namespace invar
