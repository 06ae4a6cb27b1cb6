// Tensors of given values in the strides that gradients and inputs may come with: what an op gets is not always dense.
#pragma once

#include <limits>
#include <vector>

#include "invar/core/tensor.h"
#include "invar/ops/to.h"

namespace invar::testing {

enum class Layout {
    dense,
    transposed,  // the first dimension is the innermost in memory
    sliced,      // every second element of a larger tensor, from the second on
    repeated,    // one row for all: every dimension but the last has stride 0
    constant,    // one number for all
};

inline constexpr Layout kLayouts[] = {Layout::dense, Layout::transposed, Layout::sliced, Layout::repeated,
                                      Layout::constant};

inline const char* name_of(Layout layout) {
    constexpr const char* kNames[] = {"dense", "transposed", "sliced", "repeated", "constant"};
    return kNames[int(layout)];
}

// These values in memory of this layout, with NaN wherever the tensor does not reach. Where elements share memory,
// the last of them decides.
inline Tensor laid_out(const std::vector<double>& values, const Shape& shape, Dtype dtype, Device device,
                       Layout layout) {
    const bool sliced = layout == Layout::sliced;
    Shape strides = Shape::filled(shape.rank(), 0);
    std::int64_t stride = sliced ? 2 : 1, offset = 0;
    for (int i = 1; i <= shape.rank(); ++i) {
        const int dim = layout == Layout::transposed ? i - 1 : -i;
        const bool shared = layout == Layout::constant || (layout == Layout::repeated && i > 1);
        if (!shared) strides[dim] = stride;
        stride *= sliced ? 2 * shape[dim] + 1 : shape[dim];
        if (sliced) offset += strides[dim] / 2;
    }
    std::vector<std::int64_t> places;
    for (std::int64_t i = 0; i < shape.numel(); ++i) {
        std::int64_t rest = i, at = offset;
        for (int d = shape.rank() - 1; d >= 0; rest /= shape[d--]) at += rest % shape[d] * strides[d];
        places.push_back(at);
    }
    std::int64_t extent = 0;
    for (const std::int64_t at : places) extent = std::max(extent, at + 1);
    std::vector<double> memory(std::size_t(extent), std::numeric_limits<double>::quiet_NaN());
    for (std::size_t i = 0; i < places.size(); ++i) memory[std::size_t(places[i])] = values[i];
    return ops::to(Tensor::from(memory, {extent}, dtype), device).as_strided(offset, shape, strides);
}

}  // namespace invar::testing
