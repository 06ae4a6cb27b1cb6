// What a value becomes in another element type, once for the host, the CPU's kernels and CUDA's.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "invar/core/formats.h"

namespace invar {

// As PyTorch: whole numbers keep their low bits (300 as u8 is 44), what becomes a floating number is rounded once, and
// u8 takes the low bits of the whole number too. A floating value outside an integer's range is undefined behaviour in
// C++; here it becomes the nearest integer there is, and NaN becomes 0. Bool is not stored this way: see as_boolean.
template <class To, class From>
INVAR_HD constexpr To converted(From value) {
    if constexpr (std::is_same_v<To, From>) {
        return value;
    } else if constexpr (std::is_integral_v<To> && !std::is_integral_v<From>) {
        using Wide = std::conditional_t<sizeof(To) < 4, std::int64_t, To>;
        constexpr Wide kLeast = std::numeric_limits<Wide>::min(), kMost = std::numeric_limits<Wide>::max();
        constexpr double kLow = static_cast<double>(kLeast), kHigh = static_cast<double>(kMost);  // i64: rounds to 2^63
        const double wide = static_cast<double>(value);
        if (wide != wide) return To(0);
        if (wide <= kLow) return To(kLeast);
        return To(wide >= kHigh ? kMost : static_cast<Wide>(wide));
    } else if constexpr (std::is_arithmetic_v<To> && std::is_arithmetic_v<From>) {
        return static_cast<To>(value);
    } else if constexpr (std::is_integral_v<From> && sizeof(From) == 8) {
        // On to a small format through double, which has 53 digits: the rest is kept as one that breaks ties.
        constexpr std::int64_t kExact = std::int64_t(1) << 53, kRest = 0x7ff;
        const bool exact = value >= -kExact && value <= kExact;
        const std::int64_t odd = exact ? value : (value & ~kRest) | ((value & kRest) != 0 ? kRest + 1 : 0);
        return To(static_cast<double>(odd));
    } else {
        return static_cast<To>(static_cast<double>(value));
    }
}

}  // namespace invar
