// How far a result may be from f64: derived from the format, the number of terms and sums in FP32, never picked.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "invar/core/format_info.h"
#include "invar/diagnose/doctor_parts.h"

namespace invar {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// What one addition may lose, relatively: CPUs round to nearest, tensor cores cut off.
double unit_of_sums(Device device) {
    const double epsilon = format_info(Dtype::f32).epsilon;
    return device.is_cpu() ? epsilon / 2 : epsilon;
}

// From here on a format rounds to infinity: half a step beyond its largest value.
double overflow_border(Dtype dtype) {
    const FormatInfo format = format_info(dtype);
    return format.max + std::ldexp(format.epsilon, std::ilogb(format.max) - 1);
}

std::string place_in(const TriedOperation& tried, std::int64_t index) {
    Shape at = tried.got.shape();
    for (int d = at.rank() - 1; d >= 0; --d) {
        const std::int64_t size = at[d];
        at[d] = index % size * (d == 0 ? 1 : tried.stride);
        index /= size;
    }
    return at.str();
}

}  // namespace

double WorstElement::share() const {
    if (got == expected || (std::isnan(got) && std::isnan(expected))) return 0;
    const double error = std::fabs(got - expected);
    return std::isfinite(error) && bound > 0 ? error / bound : kInfinity;
}

ComparedValues& ComparedValues::operator+=(const ComparedValues& other) {
    const bool worse = other.worst && (!worst || (wrong == 0 && other.wrong > 0) ||
                                       ((wrong > 0) == (other.wrong > 0) && other.worst->share() > worst->share()));
    if (worse) worst = other.worst;
    values += other.values;
    wrong += other.wrong;
    return *this;
}

void Comparing::see(std::int64_t index, double got, double expected, double bound, bool wrong) {
    ++values_;
    WorstElement element;
    element.got = got, element.expected = expected, element.bound = bound;
    // Whatever is wrong comes before all that is right.
    const bool first_wrong = wrong && wrong_ == 0;
    wrong_ += wrong ? 1 : 0;
    if (index_ >= 0 && !first_wrong && (wrong != (wrong_ > 0) || !(element.share() > worst_.share()))) return;
    worst_.got = got, worst_.expected = expected, worst_.bound = bound;
    index_ = index;
}

ComparedValues Comparing::result(const std::string& operation, const std::string& shapes,
                                 const std::function<std::string(std::int64_t index)>& place) const {
    ComparedValues all{values_, wrong_, {}, {}};
    if (index_ < 0) return all;
    all.worst = worst_;
    all.worst->operation = operation;
    all.worst->shapes = shapes;
    all.worst->place = place(index_);
    return all;
}

GivenTensor::GivenTensor(const Examined& on, const std::vector<double>& values, const Shape& shape, Dtype dtype) {
    const Tensor host = Tensor::from(values, shape, dtype);
    there = Tensor::empty(shape, dtype, on.device);
    on.kernels.upload(there.raw(), host.raw(), host.bytes());
    exact = Tensor::from(host.to_vector<double>(), shape);
    on.kernels.synchronize();  // the host's copy goes away
}

Tensor GivenTensor::magnitude() const {
    std::vector<double> values = exact.to_vector<double>();
    for (double& value : values) value = std::fabs(value);
    return Tensor::from(values, exact.shape());
}

std::vector<double> random_values(const Examined& on, std::uint64_t stream, std::int64_t count, double scale) {
    std::vector<double> values;
    values.reserve(std::size_t(count) + 4);
    for (std::uint64_t i = 0; std::int64_t(values.size()) < count; ++i)
        for (const std::uint32_t bits : philox(on.seed, i, stream).v)
            values.push_back(scale * (2.0 * double(to_unit(bits)) - 1.0 + 0x1p-25));
    values.resize(std::size_t(count));
    return values;
}

// A sum of n terms in FP32, in any order, is within n u / (1 - n u) of the sum of their magnitudes; TF32 also rounds,
// or cuts, each operand to ten digits; the result is rounded once more to its format. What is below FP32's smallest
// normal value may count as zero, as the BF16 instructions of CPUs have it.
double error_bound(const Examined& on, const TriedOperation& tried, double exact, double magnitude) {
    const FormatInfo wide = format_info(Dtype::f32);
    const double n = double(tried.terms), nu = n * unit_of_sums(on.device);
    const double operand = tf32_info().epsilon, operands = on.tf32 && tried.multiplies ? operand * (2 + operand) : 0;
    const double sums = (nu / (1 - nu) * (1 + operands) + operands) * magnitude + n * wide.smallest_normal;
    if (tried.got.dtype() == Dtype::f32) return sums;
    const FormatInfo format = format_info(tried.got.dtype());
    return sums + format.epsilon / 2 * (std::fabs(exact) + sums) + format.smallest_subnormal / 2;
}

ComparedValues compare_values(const Examined& on, const TriedOperation& tried) {
    const std::vector<double> got = tried.got.to_vector<double>(), exact = tried.exact.to_vector<double>(),
                              magnitude = tried.magnitude.to_vector<double>();
    const double border = overflow_border(tried.got.dtype());
    Comparing all;
    for (std::size_t i = 0; i < got.size(); ++i) {
        const double bound = error_bound(on, tried, exact[i], magnitude[i]);
        const bool may_overflow = std::fabs(exact[i]) + bound >= border;
        const bool right = std::fabs(got[i] - exact[i]) <= bound || (may_overflow && std::isinf(got[i]));
        all.see(std::int64_t(i), got[i], exact[i], bound, !right);
    }
    return all.result(tried.operation, tried.shapes, [&](std::int64_t i) { return place_in(tried, i); });
}

ComparedValues compare_non_finite(const Examined& on, const TriedOperation& tried) {
    const std::vector<double> got = tried.got.to_vector<double>(), exact = tried.exact.to_vector<double>(),
                              magnitude = tried.magnitude.to_vector<double>();
    const double border = overflow_border(tried.got.dtype());
    Comparing all;
    for (std::size_t i = 0; i < got.size(); ++i) {
        const bool finite = std::isfinite(exact[i]);
        const double bound = finite ? error_bound(on, tried, exact[i], magnitude[i]) : 0;
        if (finite && std::fabs(exact[i]) - bound < border) continue;
        const double expected = finite ? std::copysign(kInfinity, exact[i]) : exact[i];
        const bool seen = std::isnan(exact[i]) ? std::isnan(got[i]) : !std::isfinite(got[i]);
        all.see(std::int64_t(i), seen ? expected : got[i], expected, 0, !seen);
    }
    return all.result(tried.operation, tried.shapes, [&](std::int64_t i) { return place_in(tried, i); });
}

ComparedValues compare_bits(const TriedOperation& first, const TriedOperation& again) {
    const std::size_t count = std::size_t(first.got.numel()), width = size_of(first.got.dtype());
    const auto *a = static_cast<const char*>(first.got.raw()), *b = static_cast<const char*>(again.got.raw());
    Comparing all;
    if (std::memcmp(a, b, count * width) == 0) {
        ComparedValues same;
        same.values = std::int64_t(count);
        return same;
    }
    const std::vector<double> before = first.got.to_vector<double>(), now = again.got.to_vector<double>();
    for (std::size_t i = 0; i < count; ++i)
        all.see(std::int64_t(i), now[i], before[i], 0, std::memcmp(a + i * width, b + i * width, width) != 0);
    return all.result(first.operation, first.shapes, [&](std::int64_t i) { return place_in(first, i); });
}

}  // namespace invar
