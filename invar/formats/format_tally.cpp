#include "invar/formats/format_tally.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "invar/core/error.h"
#include "invar/core/format_info.h"
#include "invar/formats/format_tally_avx2.h"

namespace invar {

namespace {

// Calls f with the C++ type of a format that values are rounded to.
template <class F>
decltype(auto) with_format(Dtype format, F&& f) {
    switch (format) {
        case Dtype::f16:
            return f(TypeTag<f16>{});
        case Dtype::bf16:
            return f(TypeTag<bf16>{});
        case Dtype::f8e4m3:
            return f(TypeTag<f8e4m3>{});
        case Dtype::f8e5m2:
            return f(TypeTag<f8e5m2>{});
        default:
            fail<UsageError>("cannot round to {}; use f16, bf16, f8e4m3 or f8e5m2", name_of(format));
    }
}

}  // namespace

double rounded(double value, Dtype format) {
    return with_format(format, [&](auto tag) { return double(typename decltype(tag)::type(value)); });
}

namespace {

void tally_one(double value, std::span<const Dtype> formats, Tally& tally) {
    ++tally.values;
    const double size = std::fabs(value);
    if (std::isnan(value)) {
        ++tally.nans;
    } else if (std::isinf(value)) {
        ++tally.infinities;
    } else if (value == 0) {
        ++tally.zeros;
    } else {
        tally.largest = std::max(tally.largest, size);
        tally.smallest = tally.smallest == 0 ? size : std::min(tally.smallest, size);
        ++tally.exponents[std::size_t(std::clamp(std::ilogb(size) + 127, 0, 254))];
        for (std::size_t i = 0; i < formats.size(); ++i) {
            FormatTally& f = tally.formats[i];
            const double r = rounded(size, formats[i]);
            if (!std::isfinite(r)) {
                ++f.overflow;
            } else if (r == 0) {
                ++f.vanish;
            } else {
                ++f.kept;
                f.subnormal += r < format_info(formats[i]).smallest_normal;
                const double error = std::fabs(size - r) / size;
                f.error_sum += error;
                f.max_error = std::max(f.max_error, error);
            }
        }
    }
}

// The smallest positive float for which `holds`, which must hold for all above it too; 0x7f800000 where for none.
template <class Holds>
std::uint32_t first_float(Holds&& holds) {
    std::uint32_t low = 0, high = 0x7f80'0000;
    while (low < high) {
        const std::uint32_t middle = low + (high - low) / 2;
        if (holds(std::bit_cast<float>(middle)))
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

}  // namespace

void FormatTally::add(const FormatTally& other) {
    overflow += other.overflow, subnormal += other.subnormal, vanish += other.vanish, kept += other.kept;
    error_sum += other.error_sum;
    max_error = std::max(max_error, other.max_error);
}

void Tally::add(const Tally& other) {
    values += other.values, zeros += other.zeros, infinities += other.infinities, nans += other.nans;
    largest = std::max(largest, other.largest);
    if (other.smallest > 0) smallest = smallest == 0 ? other.smallest : std::min(smallest, other.smallest);
    for (std::size_t i = 0; i < exponents.size(); ++i) exponents[i] += other.exponents[i];
    if (formats.size() < other.formats.size()) formats.resize(other.formats.size());
    for (std::size_t i = 0; i < other.formats.size(); ++i) formats[i].add(other.formats[i]);
}

Thresholds thresholds_of(Dtype format) {
    const double normal = format_info(format).smallest_normal;
    const auto rounds = [&](float value) { return rounded(value, format); };
    return {first_float([&](float v) { return rounds(v) > 0 || !std::isfinite(rounds(v)); }) - 1,
            first_float([&](float v) { return !(rounds(v) < normal); }),
            first_float([&](float v) { return !std::isfinite(rounds(v)); })};
}

void tally_values_plainly(Dtype dtype, const void* data, std::size_t count, std::span<const Dtype> formats,
                          Tally& tally) {
    check<UsageError>(is_floating(dtype), "tally_values: {} is not a floating dtype", name_of(dtype));
    dispatch(dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        const char* bytes = static_cast<const char*>(data);
        for (std::size_t i = 0; i < count; ++i) {
            T value;
            std::memcpy(&value, bytes + i * sizeof(T), sizeof(T));  // files do not align their tensors
            tally_one(double(value), formats, tally);
        }
    });
}

void tally_values(Dtype dtype, const void* data, std::size_t count, std::span<const Dtype> formats, Tally& tally) {
    if (dtype == Dtype::f64 || !tally_with_avx2(dtype, data, count, formats, tally))
        tally_values_plainly(dtype, data, count, formats, tally);
}

}  // namespace invar
