// DBNet: where text is in an image ("Real-time Scene Text Detection with Differentiable Binarization", 2019). A
// residual network, a feature pyramid on its four stages, and two heads at the image's own size. Modules have the names
// of the authors' code.
#pragma once

#include "invar/models/resnet.h"

namespace invar {

struct DbNetOptions {
    std::int64_t layers = 18;  // of the ResNet: 18, 34, 50, 101 or 152
    std::int64_t width = 64;   // of its first stage
    std::int64_t inner = 256;  // channels of the pyramid; a multiple of 4
};

// Called with a list of one tensor, [n, height, width, channels] with sides that are multiples of 32, it gives two
// tensors [n, height, width], logits of the probability and of the threshold map; called with the tensor itself, both
// side by side, [n, height, width, 2].
std::unique_ptr<Module> make_dbnet(const DbNetOptions& options, const DataInfo& data);

}  // namespace invar
