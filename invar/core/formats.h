// The small floating-point formats, to the bit: round to nearest even, subnormals, infinities and NaN.
// One template serves all four; plain integer code, so that CPU, CUDA and constant expressions agree.
#pragma once

#include <bit>
#include <cstdint>

#ifdef __CUDACC__
#define INVAR_HD __host__ __device__
#else
#define INVAR_HD
#endif

namespace invar {

// What a value too large for the format becomes: infinity (NaN where there is none), or the largest finite value.
enum class Overflow { ieee, saturate };

template <class BitsType, int kExponent, int kMantissa, bool kInfinity>
struct SmallFloat {
    using Bits = BitsType;
    static constexpr int kExponentBits = kExponent;
    static constexpr int kMantissaBits = kMantissa;
    static constexpr bool kHasInfinity = kInfinity;
    static constexpr int kBias = (1 << (kExponent - 1)) - 1;
    static constexpr int kSignShift = kExponent + kMantissa;
    static constexpr Bits kSignMask = Bits(1u << kSignShift);
    static constexpr Bits kMagnitude = Bits(kSignMask - 1);
    // The first pattern past the largest finite magnitude: infinity, or, where there is none, NaN.
    static constexpr Bits kPastMax = kInfinity ? Bits(((1u << kExponent) - 1) << kMantissa) : kMagnitude;
    static constexpr Bits kMax = Bits(kPastMax - 1);
    static constexpr Bits kSmallestNormal = Bits(1u << kMantissa);

    Bits bits = 0;

    constexpr SmallFloat() = default;
    INVAR_HD explicit constexpr SmallFloat(double value) : bits(encode(value, Overflow::ieee)) {}
    INVAR_HD explicit constexpr SmallFloat(float value) : SmallFloat(static_cast<double>(value)) {}

    static INVAR_HD constexpr SmallFloat from_bits(Bits bits) {
        SmallFloat result;
        result.bits = bits;
        return result;
    }
    static INVAR_HD constexpr SmallFloat saturated(double value) {
        return from_bits(encode(value, Overflow::saturate));
    }

    INVAR_HD explicit constexpr operator double() const {
        const bool negative = bits & kSignMask;
        const std::uint64_t magnitude = bits & kMagnitude;
        const std::uint64_t sign = std::uint64_t(negative) << 63;
        if (magnitude > kMax) {
            if (kInfinity && magnitude == kPastMax) return std::bit_cast<double>(sign | 0x7ff0'0000'0000'0000u);
            const std::uint64_t payload = (magnitude << (52 - kMantissa)) & 0x000f'ffff'ffff'ffffu;
            return std::bit_cast<double>(sign | 0x7ff8'0000'0000'0000u | payload);
        }
        if (magnitude < kSmallestNormal) {
            const double value = double(magnitude) * power_of_two(1 - kBias - kMantissa);
            return negative ? -value : value;
        }
        const std::uint64_t rebased = (magnitude << (52 - kMantissa)) + (std::uint64_t(1023 - kBias) << 52);
        return std::bit_cast<double>(sign | rebased);
    }
    INVAR_HD explicit constexpr operator float() const { return static_cast<float>(static_cast<double>(*this)); }

    friend INVAR_HD constexpr bool operator==(SmallFloat a, SmallFloat b) { return double(a) == double(b); }

  private:
    static INVAR_HD constexpr double power_of_two(int exponent) {
        return std::bit_cast<double>(std::uint64_t(1023 + exponent) << 52);
    }

    // Rounds a double directly, so that there is no double rounding on the way through float.
    static INVAR_HD constexpr Bits encode(double value, Overflow overflow) {
        const std::uint64_t wide = std::bit_cast<std::uint64_t>(value);
        const Bits sign = Bits(Bits(wide >> 63) << kSignShift);
        const int exponent = int((wide >> 52) & 0x7ff) - 1023;
        const std::uint64_t fraction = wide & 0x000f'ffff'ffff'ffffu;
        if (exponent == 1024 && fraction != 0) {  // NaN: quiet, with what fits of the payload
            if constexpr (!kInfinity || sizeof(Bits) == 1) return Bits(sign | kMagnitude);
            const Bits quiet = Bits(1u << (kMantissa - 1));
            return Bits(sign | kPastMax | quiet | Bits(fraction >> (52 - kMantissa)));
        }
        if (exponent < -kBias - kMantissa) return sign;  // below half the smallest subnormal
        const std::uint64_t significand = fraction | (exponent == -1023 ? 0 : std::uint64_t(1) << 52);
        // How many low bits of the 53-bit significand fall away; more of them below the smallest normal.
        const int below = exponent < 1 - kBias ? (1 - kBias) - exponent : 0;
        const int dropped = 52 - kMantissa + below;
        const std::uint64_t kept = significand >> dropped;
        const std::uint64_t rest = significand & ((std::uint64_t(1) << dropped) - 1);
        const std::uint64_t half = std::uint64_t(1) << (dropped - 1);
        const std::uint64_t rounded = kept + (rest > half || (rest == half && (kept & 1)) ? 1 : 0);
        // Adding the exponent to the significand lets a carry move into it by itself.
        const std::uint64_t base = below > 0 ? 0 : std::uint64_t(exponent + kBias - 1) << kMantissa;
        const std::uint64_t magnitude = rounded + base;
        if (exponent == 1024 || magnitude > kMax) {
            const bool saturate = overflow == Overflow::saturate;
            return Bits(sign | (saturate ? kMax : kPastMax));
        }
        return Bits(sign | Bits(magnitude));
    }
};

using f16 = SmallFloat<std::uint16_t, 5, 10, true>;
using bf16 = SmallFloat<std::uint16_t, 8, 7, true>;
using f8e4m3 = SmallFloat<std::uint8_t, 4, 3, false>;
using f8e5m2 = SmallFloat<std::uint8_t, 5, 2, true>;

}  // namespace invar
