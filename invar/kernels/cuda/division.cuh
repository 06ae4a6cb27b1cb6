// Divisions of 32-bit numbers by one that stays the same through a launch: a product and a shift.
#pragma once

#include <cstdint>

namespace invar::cuda {

// Of numbers from 0 to 2^31 - 1.
struct Division {
    std::uint32_t divisor = 1, factor = 0;
    int shift = 0;
    Division() = default;
    explicit Division(std::int64_t by) : divisor(std::uint32_t(by)) {
        if (divisor < 2) return;
        int bits = 1;
        while ((std::uint64_t(1) << bits) < divisor) ++bits;
        factor = std::uint32_t((std::uint64_t(1) << (31 + bits)) / divisor + 1);
        shift = bits - 1;
    }
    __device__ int of(int n) const { return divisor < 2 ? n : int(__umulhi(std::uint32_t(n), factor) >> shift); }
};

}  // namespace invar::cuda
