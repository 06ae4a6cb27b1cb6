// Sort keys: unsigned numbers in the order of the values they stand for, the same for every device. NaN is the largest,
// and -0 is 0.
#pragma once

#include <bit>
#include <cstdint>

#include "invar/core/formats.h"

namespace invar {

INVAR_HD inline std::uint32_t sort_key(float value) {
    if (value != value) return 0xffffffffu;
    const std::uint32_t bits = value == 0 ? 0u : std::bit_cast<std::uint32_t>(value);
    return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
}
INVAR_HD inline std::uint64_t sort_key(double value) {
    if (value != value) return ~std::uint64_t(0);
    const std::uint64_t bits = value == 0 ? 0u : std::bit_cast<std::uint64_t>(value);
    return bits >> 63 != 0 ? ~bits : bits | std::uint64_t(1) << 63;
}
INVAR_HD inline std::uint32_t sort_key(std::int32_t value) {
    return std::uint32_t(value) ^ 0x80000000u;
}
INVAR_HD inline std::uint64_t sort_key(std::int64_t value) {
    return std::uint64_t(value) ^ std::uint64_t(1) << 63;
}

}  // namespace invar
