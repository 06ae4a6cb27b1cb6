// What a floating format can hold: range, smallest values, digits, memory.
// It feeds the listing of formats, and tests derive their tolerances from it.
#pragma once

#include "invar/core/dtype.h"

namespace invar {

struct FormatInfo {
    Dtype dtype;  // what stores it
    int bits;     // as stored
    int exponent_bits;
    int mantissa_bits;  // without the implicit leading one
    double max;         // the largest finite value
    double smallest_normal;
    double smallest_subnormal;
    double epsilon;  // from 1 to the next larger value; rounding errs by at most half of it, relatively
    double decimal_digits;
    bool has_infinity;
    double memory_vs_f32;
};

// Throws UsageError for a dtype that is not floating.
FormatInfo format_info(Dtype dtype);

// TensorFloat-32: the range of f32 with the digits of f16, stored in 32 bits. A way of multiplying, not a dtype.
FormatInfo tf32_info();

}  // namespace invar
