// What rounding to a smaller format would do to a block of numbers, counted exactly: which values overflow, turn
// subnormal or vanish, and how far the others move. One pass; AVX2 where the CPU has it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "invar/core/dtype.h"

namespace invar {

// Of finite values that are not zero.
struct FormatTally {
    std::int64_t overflow = 0;   // rounds to infinity, or to NaN where there is none
    std::int64_t subnormal = 0;  // keeps fewer digits than the format has
    std::int64_t vanish = 0;     // rounds to zero
    std::int64_t kept = 0;       // all others and the subnormal ones: those whose error is measured
    double error_sum = 0.0;      // relative
    double max_error = 0.0;
    void add(const FormatTally& other);
};

struct Tally {
    explicit Tally(std::size_t formats = 0) : formats(formats) {}
    std::int64_t values = 0, zeros = 0, infinities = 0, nans = 0;
    double largest = 0.0;   // magnitude of finite values
    double smallest = 0.0;  // of those that are not zero; 0 where there is none
    // By exponent: [e + 127] counts values from 2^e up to 2^(e+1); [0] all below 2^-126 but zero, [254] also all above.
    std::array<std::int64_t, 255> exponents{};
    std::vector<FormatTally> formats;

    std::int64_t counted() const { return values - zeros - infinities - nans; }
    void add(const Tally& other);
};

// The nearest value of a small format, rounded once; not finite where it overflows.
double rounded(double value, Dtype format);

// Adds `count` values of a floating dtype at `data`; `tally` must have one entry a format.
void tally_values(Dtype dtype, const void* data, std::size_t count, std::span<const Dtype> formats, Tally& tally);
// The same without SIMD, one value at a time through double: what the other is checked against.
void tally_values_plainly(Dtype dtype, const void* data, std::size_t count, std::span<const Dtype> formats,
                          Tally& tally);

// Where a format's rounding changes its mind, as bits of positive floats; found by rounding, not by formula.
struct Thresholds {
    std::uint32_t vanish = 0;    // the largest that rounds to zero
    std::uint32_t normal = 0;    // the smallest that rounds to a normal value
    std::uint32_t overflow = 0;  // the smallest that overflows
};
Thresholds thresholds_of(Dtype format);

}  // namespace invar
