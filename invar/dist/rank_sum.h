// What a sum over ranks is made of, for the host and for a device: how a value travels as bf16, and how the first value
// that is not finite is told of.
#pragma once

#include <bit>
#include <cstdint>

#include "invar/core/formats.h"

namespace invar {

// Plain bits, so that the compiler makes a loop of them.
INVAR_HD inline std::uint16_t to_bf16_bits(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return std::uint16_t(bits >> 16 | 0x40u);  // stays NaN
    return std::uint16_t((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

INVAR_HD inline float from_bf16_bits(std::uint16_t value) {
    return std::bit_cast<float>(std::uint32_t(value) << 16);
}

INVAR_HD inline bool is_bad(float value) {
    return (std::bit_cast<std::uint32_t>(value) & 0x7fffffffu) >= 0x7f800000u;
}

// A finding as one number, of which the least is the first: of an earlier sum, then of an earlier place.
struct FindingKey {
    static constexpr std::uint64_t kNone = ~std::uint64_t(0);
    static constexpr int kMaxRanks = 0xffff;

    static INVAR_HD std::uint64_t of(int round, std::int64_t place, int rank) {
        return std::uint64_t(round < 254 ? round : 254) << 56 | std::uint64_t(place) << 16 | std::uint64_t(rank + 1);
    }
    static INVAR_HD std::int64_t place(std::uint64_t key) {
        return key == kNone ? -1 : std::int64_t(key >> 16 & 0xffffffffffu);
    }
    static INVAR_HD int rank(std::uint64_t key) { return key == kNone ? -1 : int(key & 0xffffu) - 1; }
};

}  // namespace invar
