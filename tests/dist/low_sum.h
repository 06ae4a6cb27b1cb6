// The sum of a weight or a bias by operations of class low, which is all that may read what ranks share out.
#pragma once

#include "invar/ops/ops.h"

namespace invar {

inline Tensor low_sum(const Tensor& parameter) {
    const auto filled = [&](const Shape& shape, double value) {
        return ops::to(ops::full(shape, value), parameter.device());
    };
    if (parameter.rank() == 2) return ops::sum(ops::linear(filled({1, parameter.size(1)}, 1.0), parameter));
    return ops::sum(ops::linear(filled({1, 1}, 0.0), filled({parameter.numel(), 1}, 0.0), parameter));
}

}  // namespace invar
