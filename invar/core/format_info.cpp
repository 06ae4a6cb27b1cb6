#include "invar/core/format_info.h"

#include <cmath>

#include "invar/core/error.h"

namespace invar {

namespace {

FormatInfo describe(Dtype dtype, int exponent_bits, int mantissa_bits, bool has_infinity = true) {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const double epsilon = std::ldexp(1.0, -mantissa_bits);
    FormatInfo info;
    info.dtype = dtype;
    info.bits = int(8 * size_of(dtype));
    info.exponent_bits = exponent_bits;
    info.mantissa_bits = mantissa_bits;
    // Without infinity the top exponent holds numbers too, all but the last pattern, which is NaN.
    info.max = has_infinity ? std::ldexp(2 - epsilon, bias) : std::ldexp(2 - 2 * epsilon, bias + 1);
    info.smallest_normal = std::ldexp(1.0, 1 - bias);
    info.smallest_subnormal = std::ldexp(1.0, 1 - bias - mantissa_bits);
    info.epsilon = epsilon;
    info.decimal_digits = (mantissa_bits + 1) * std::log10(2.0);
    info.has_infinity = has_infinity;
    info.memory_vs_f32 = double(size_of(dtype)) / double(size_of(Dtype::f32));
    return info;
}

template <class Format>
FormatInfo describe_small() {
    return describe(dtype_of<Format>, Format::kExponentBits, Format::kMantissaBits, Format::kHasInfinity);
}

}  // namespace

FormatInfo format_info(Dtype dtype) {
    switch (dtype) {
        case Dtype::f64:
            return describe(dtype, 11, 52);
        case Dtype::f32:
            return describe(dtype, 8, 23);
        case Dtype::f16:
            return describe_small<f16>();
        case Dtype::bf16:
            return describe_small<bf16>();
        case Dtype::f8e4m3:
            return describe_small<f8e4m3>();
        case Dtype::f8e5m2:
            return describe_small<f8e5m2>();
        default:
            break;
    }
    fail<UsageError>("{} is not a floating format; use one of f64 f32 f16 bf16 f8e4m3 f8e5m2", name_of(dtype));
}

FormatInfo tf32_info() {
    return describe(Dtype::f32, 8, 10);
}

}  // namespace invar
