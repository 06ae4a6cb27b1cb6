// Parameter: a weight that learns, and how it is laid out in files. Memory is NHWC-friendly; files are PyTorch's.
#pragma once

#include <memory>
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

// The shape that a file holds.
Shape file_shape_of(const Tensor& value, const FileLayout& layout);
// A dense host copy in the file's layout; and the reverse, from any device, converting the dtype. For a weight, and for
// what belongs to it element by element.
Tensor to_file(const Tensor& value, const FileLayout& layout);
void from_file(const Tensor& tensor, const Tensor& value, const FileLayout& layout);

// A module and the optimizer that trains it own it together, so that either may be gone first.
struct Parameter : std::enable_shared_from_this<Parameter> {
    Parameter(std::string own_name, Tensor first_value, FileLayout file_layout = {})
        : name(std::move(own_name)), value(std::move(first_value)), layout(std::move(file_layout)) {}

    std::string name;  // the path within the whole model, set when the model is asked for its parameters
    Tensor value;
    FileLayout layout;

    Tensor to_file() const { return invar::to_file(value, layout); }
    void from_file(const Tensor& tensor);  // refreshes the shadow
};

}  // namespace invar
