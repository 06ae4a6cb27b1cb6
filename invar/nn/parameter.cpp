#include "invar/nn/parameter.h"

#include "invar/core/error.h"
#include "invar/kernels/kernels.h"
#include "invar/ops/shape_tools.h"
#include "invar/ops/to.h"

namespace invar {

namespace {

// The memory of `value` as the file orders it, without copying.
Tensor in_file_order(const Tensor& value, const FileLayout& layout) {
    const Shape strides = contiguous_strides(layout.view);
    Shape shape, permuted;
    for (const int axis : layout.permutation) {
        shape.push_back(layout.view[axis]);
        permuted.push_back(strides[axis]);
    }
    return value.as_strided(0, shape, permuted);
}

}  // namespace

Shape file_shape_of(const Tensor& value, const FileLayout& layout) {
    return layout.plain() ? value.shape() : layout.file_shape;
}

Tensor to_file(const Tensor& value, const FileLayout& layout) {
    Kernels& kernels = kernels_for(value.device());
    const Tensor source = layout.plain() ? value : in_file_order(value, layout);
    Tensor copy = Tensor::empty(source.shape(), value.dtype(), value.device());
    kernels.copy(source.view(), copy.view());
    return (layout.plain() ? copy : copy.window(0, layout.file_shape)).on_host();
}

void from_file(const Tensor& tensor, const Tensor& value, const FileLayout& layout) {
    const Tensor sink = layout.plain() ? value : in_file_order(value, layout);
    const Tensor source = ops::dense(ops::to(tensor, value.device())).window(0, sink.shape());
    kernels_for(value.device()).copy(source.view(), sink.view());
}

void Parameter::from_file(const Tensor& tensor) {
    const Shape expected = file_shape_of(value, layout);
    check(tensor.shape() == expected, "parameter {}: the file holds shape {}, the model wants {}", name,
          tensor.shape().str(), expected.str());
    if (home != nullptr) {
        const Tensor given = Tensor::empty(value.shape(), value.dtype(), value.device());
        invar::from_file(tensor, given, layout);
        home->take(*this, given);
        return;
    }
    invar::from_file(tensor, value, layout);
    value.bump_version();
    if (value.shadow()) kernels_for(value.device()).copy(value.view(), value.shadow().view());
}

}  // namespace invar
