// Tensors as text: nested brackets as people write them, long ones shortened in the middle.
#pragma once

#include <iosfwd>
#include <string>

#include "invar/core/tensor.h"

namespace invar {

struct PrintOptions {
    int precision = 4;              // digits behind the point, also before an exponent
    std::int64_t edge_items = 3;    // shown at both ends of a dimension that is shortened
    std::int64_t threshold = 1000;  // elements above which tensors are shortened
};

// [[ 1.0000, -2.5000],
//  [ 0.0000,     nan]] f32[2, 2] on cpu
std::string to_string(const Tensor& tensor, const PrintOptions& options = {});
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace invar
