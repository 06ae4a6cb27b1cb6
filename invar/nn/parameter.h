// Parameter: a weight that learns, and how it is laid out in files. Memory is NHWC-friendly; files are PyTorch's.
#pragma once

#include <string>
#include <vector>

#include "invar/core/tensor.h"

namespace invar {

// The memory, seen as `view` and permuted, is what a file holds in shape `file_shape`. Empty: the same in both.
struct FileLayout {
    Shape view;
    std::vector<int> permutation;
    Shape file_shape;
    bool plain() const { return permutation.empty(); }
};

struct Parameter {
    std::string name;  // the path within the whole model, set when the model is asked for its parameters
    Tensor value;
    FileLayout layout;

    Tensor to_file() const;                // a dense copy in the file's layout
    void from_file(const Tensor& tensor);  // the reverse, converting the dtype; refreshes the shadow
};

}  // namespace invar
