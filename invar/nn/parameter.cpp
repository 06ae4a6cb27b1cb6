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

Tensor Parameter::to_file() const {
    Kernels& kernels = kernels_for(value.device());
    const Tensor source = layout.plain() ? value : in_file_order(value, layout);
    Tensor copy = Tensor::empty(source.shape(), value.dtype(), value.device());
    kernels.copy(source.view(), copy.view());
    return (layout.plain() ? copy : copy.window(0, layout.file_shape)).on_host();
}

void Parameter::from_file(const Tensor& tensor) {
    const Shape& expected = layout.plain() ? value.shape() : layout.file_shape;
    check(tensor.shape() == expected, "parameter {}: the file holds shape {}, the model wants {}", name,
          tensor.shape().str(), expected.str());
    Kernels& kernels = kernels_for(value.device());
    const Tensor sink = layout.plain() ? value : in_file_order(value, layout);
    kernels.copy(ops::dense(ops::to(tensor, value.device())).window(0, sink.shape()).view(), sink.view());
    value.bump_version();
    if (value.shadow()) kernels.copy(value.view(), value.shadow().view());
}

}  // namespace invar
