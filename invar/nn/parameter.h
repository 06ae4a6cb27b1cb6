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

struct Parameter;

// Who holds the value of a parameter that no rank has all of. Ranks ask together, in the same order.
class ParameterHome {
  public:
    virtual ~ParameterHome() = default;
    virtual Tensor gather(const Parameter& parameter) = 0;
    virtual void take(const Parameter& parameter, const Tensor& value) = 0;  // everybody is given the same
};

// A module and the optimizer that trains it own it together, so that either may be gone first.
struct Parameter : std::enable_shared_from_this<Parameter> {
    Parameter(std::string own_name, Tensor first_value, FileLayout file_layout = {})
        : name(std::move(own_name)), value(std::move(first_value)), layout(std::move(file_layout)) {}

    std::string name;  // the path within the whole model, set when the model is asked for its parameters
    Tensor value;
    FileLayout layout;
    // Read by operations of class low alone, so that under autocast nobody asks for more than its 16-bit copy.
    bool read_low = false;
    bool precision_of_its_own = false;  // that of a module around it; set with the name
    ParameterHome* home = nullptr;      // where `value` is promised only
    bool needs_shadow_alone() const { return read_low && !precision_of_its_own; }

    Tensor whole() const { return home != nullptr ? home->gather(*this) : value; }
    Tensor to_file() const { return invar::to_file(whole(), layout); }
    void from_file(const Tensor& tensor);  // refreshes the shadow
};

}  // namespace invar
