// Conversions to the bit: every pattern of a small format, every tie between two of its values with what is just beside
// it, and random patterns, against a reference that knows a format by its numbers of bits alone.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "invar/core/format_info.h"
#include "invar/diagnose/doctor_parts.h"

namespace invar {

namespace {

constexpr std::int64_t kRandom = std::int64_t(1) << 18;
constexpr std::uint64_t kStream = 21;

// The distance between the values of a format around `value`.
double step_at(const FormatInfo& format, double value) {
    const int exponent = value == 0 ? std::ilogb(format.smallest_normal)
                                    : std::max(std::ilogb(value), std::ilogb(format.smallest_normal));
    return std::ldexp(1.0, exponent - format.mantissa_bits);
}

// The nearest value, of two the even one. Division by a power of two is exact, and so is the product.
double rounded(const FormatInfo& format, double value) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity(),
                     kNan = std::numeric_limits<double>::quiet_NaN();
    if (std::isnan(value)) return value;
    double nearest = value;
    if (std::isfinite(value)) {
        const double step = step_at(format, value);
        nearest = std::nearbyint(value / step) * step;
    }
    if (std::fabs(nearest) <= format.max) return nearest;
    return format.has_infinity ? std::copysign(kInfinity, value) : kNan;
}

double decoded(const FormatInfo& format, std::uint32_t bits) {
    const std::uint32_t mantissa = bits & ((1u << format.mantissa_bits) - 1);
    const int field = int(bits >> format.mantissa_bits & ((1u << format.exponent_bits) - 1));
    const int top = (1 << format.exponent_bits) - 1, least = std::ilogb(format.smallest_normal);
    const double sign = (bits >> (format.mantissa_bits + format.exponent_bits) & 1) != 0 ? -1.0 : 1.0;
    const bool last = mantissa == (1u << format.mantissa_bits) - 1;
    if (field == top && format.has_infinity)
        return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                             : std::numeric_limits<double>::quiet_NaN();
    if (field == top && last) return std::numeric_limits<double>::quiet_NaN();
    const double digits = double(mantissa) + (field > 0 ? std::ldexp(1.0, format.mantissa_bits) : 0.0);
    return sign * std::ldexp(digits, std::max(field - 1, 0) + least - format.mantissa_bits);
}

std::uint32_t bits_at(const Tensor& host, std::int64_t i) {
    const std::size_t width = size_of(host.dtype());
    std::uint32_t bits = 0;  // little-endian, as all that Invar runs on
    std::memcpy(&bits, static_cast<const char*>(host.raw()) + std::size_t(i) * width, width);
    return bits;
}

bool same(double a, double b) {
    return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

// As the kernels convert it: dense, and with a gap after each element, which is another path through them.
Tensor converted_on(const Examined& on, const Tensor& host, Dtype to, std::int64_t gap) {
    const std::int64_t n = host.numel(), apart = 1 + gap;
    const Tensor dense = Tensor::empty({n}, host.dtype(), on.device), made = Tensor::empty({n}, to, on.device);
    on.kernels.upload(dense.raw(), host.raw(), host.bytes());
    if (gap == 0) {
        on.kernels.copy(dense.view(), made.view());
    } else {
        const Tensor from = Tensor::empty({n * apart}, host.dtype(), on.device).as_strided(0, {n}, {apart}),
                     into = Tensor::empty({n * apart}, to, on.device).as_strided(0, {n}, {apart});
        on.kernels.copy(dense.view(), from.view());
        on.kernels.copy(from.view(), into.view());
        on.kernels.copy(into.view(), made.view());
    }
    on.kernels.synchronize();
    return made.on_host();
}

double value_at(const Tensor& host, std::int64_t i) {
    return host.dtype() == Dtype::f64   ? host.data<double>()[i]
           : host.dtype() == Dtype::f32 ? double(host.data<float>()[i])
                                        : decoded(format_info(host.dtype()), bits_at(host, i));
}

// These values of a wide format, rounded to `to`.
ComparedValues check_rounding(const Examined& on, const Tensor& wide, Dtype to) {
    const FormatInfo format = format_info(to);
    ComparedValues all;
    for (const std::int64_t gap : {0, 1}) {
        const Tensor got = converted_on(on, wide, to, gap);
        Comparing compared;
        for (std::int64_t i = 0; i < wide.numel(); ++i) {
            const double value = value_at(wide, i), expected = rounded(format, value), was = value_at(got, i);
            const double step = std::isfinite(expected) ? step_at(format, expected) : 0;
            compared.see(i, was, expected, step, !same(was, expected));
        }
        all += compared.result(fmt::format("{} to {}", name_of(wide.dtype()), name_of(to)),
                               fmt::format("[{}]{}", wide.numel(), gap > 0 ? " with gaps" : ""), [&](std::int64_t i) {
                                   return fmt::format("{} {:.9g} ({:a})", name_of(wide.dtype()), value_at(wide, i),
                                                      value_at(wide, i));
                               });
    }
    return all;
}

// Patterns of a narrow format, widened and rounded back.
ComparedValues check_patterns(const Examined& on, const Tensor& patterns, Dtype wide) {
    ComparedValues all;
    const Dtype narrow = patterns.dtype();
    const auto pattern = [&](std::int64_t i) { return fmt::format("pattern 0x{:x}", bits_at(patterns, i)); };
    for (const std::int64_t gap : {0, 1}) {
        const Tensor widened = converted_on(on, patterns, wide, gap), back = converted_on(on, widened, narrow, gap);
        Comparing there, again;
        for (std::int64_t i = 0; i < patterns.numel(); ++i) {
            const double expected = value_at(patterns, i), was = value_at(widened, i), returned = value_at(back, i);
            const bool kept =
                bits_at(back, i) == bits_at(patterns, i) || (std::isnan(expected) && std::isnan(returned));
            there.see(i, was, expected, 0, !same(was, expected));
            again.see(i, returned, expected, 0, !kept);
        }
        const std::string shapes = fmt::format("[{}]{}", patterns.numel(), gap > 0 ? " with gaps" : "");
        all += there.result(fmt::format("{} to {}", name_of(narrow), name_of(wide)), shapes, pattern);
        all += again.result(fmt::format("{} to {} and back", name_of(narrow), name_of(wide)), shapes, pattern);
    }
    return all;
}

// Random f32 patterns, NaN, infinities and subnormals among them.
std::vector<float> random_patterns(const Examined& on) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < kRandom / 4; ++i)
        for (const std::uint32_t bits : philox(on.seed, std::uint64_t(i), kStream).v)
            values.push_back(std::bit_cast<float>(bits));
    return values;
}

// Half way between each two neighbours of a format, the step beyond its largest value included, and the nearest values
// of T on both sides of that; with both signs.
template <class T>
void add_ties(std::vector<T>& values, double low, double high) {
    const T tie = T(low + (high - low) / 2);
    for (const T each : {tie, std::nextafter(tie, T(0)), std::nextafter(tie, std::numeric_limits<T>::max())})
        for (const T sign : {T(1), T(-1)}) values.push_back(sign * each);
}

template <class T>
std::vector<T> ties_of(const FormatInfo& format) {
    std::vector<T> values;
    for (std::uint32_t bits = 0;; ++bits) {
        const double low = decoded(format, bits);
        add_ties(values, low, low + step_at(format, low));
        if (low == format.max) return values;
    }
}

Tensor all_patterns(Dtype dtype) {
    const std::int64_t count = std::int64_t(1) << (8 * size_of(dtype));
    const Tensor made = Tensor::empty({count}, dtype);
    const std::size_t width = size_of(dtype);
    for (std::int64_t i = 0; i < count; ++i) {
        const auto bits = std::uint32_t(i);
        std::memcpy(static_cast<char*>(made.raw()) + std::size_t(i) * width, &bits, width);
    }
    return made;
}

template <class T>
Tensor tensor_of(const std::vector<T>& values) {
    return Tensor::from(values, {std::int64_t(values.size())});
}

// f32 has too many patterns and ties to try them all.
ComparedValues check_f32(const Examined& on) {
    const std::vector<float> patterns = random_patterns(on);
    std::vector<double> ties;
    for (const float each : patterns)
        if (const double low = std::fabs(double(each)); std::isfinite(low))
            add_ties(ties, low, low + step_at(format_info(Dtype::f32), low));
    add_ties(ties, std::numeric_limits<float>::max(), 0x1p128);
    add_ties(ties, 0, std::numeric_limits<float>::denorm_min());
    ComparedValues all = check_patterns(on, tensor_of(patterns), Dtype::f64);
    return all += check_rounding(on, tensor_of(ties), Dtype::f32);
}

}  // namespace

ComparedValues check_conversions(const Examined& on) {
    if (on.dtype == Dtype::f32) return check_f32(on);
    const FormatInfo format = format_info(on.dtype);
    const Tensor patterns = all_patterns(on.dtype);
    ComparedValues all = check_patterns(on, patterns, Dtype::f32);
    all += check_patterns(on, patterns, Dtype::f64);
    std::vector<float> values = ties_of<float>(format);
    for (const float each : random_patterns(on)) values.push_back(each);
    for (const float each : {0.0f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(),
                             std::numeric_limits<float>::max(), std::numeric_limits<float>::denorm_min()})
        for (const float sign : {1.0f, -1.0f}) values.push_back(sign * each);
    all += check_rounding(on, tensor_of(values), on.dtype);
    // On the way through f32 what is just beside a tie would become one.
    return all += check_rounding(on, tensor_of(ties_of<double>(format)), on.dtype);
}

}  // namespace invar
