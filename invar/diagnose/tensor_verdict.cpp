#include "invar/diagnose/tensor_verdict.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "invar/core/format_info.h"

namespace invar {

namespace {

constexpr double kMost = 0.75;         // features without significance
constexpr int kLastBinades = 3;        // where a value keeps at most so many bits
constexpr std::int64_t kFewRows = 8;   // too few to say what a feature varies by
constexpr double kSqrt12 = 3.4641016;  // a uniform error of one unit has a deviation of 1 / sqrt(12)

double share_in(const Tally& tally, int from, int below) {
    std::int64_t inside = 0;
    for (std::size_t i = 0; i < tally.exponents.size(); ++i)
        if (const int exponent = int(i) - 127; exponent >= from && exponent < below) inside += tally.exponents[i];
    return tally.counted() > 0 ? double(inside) / double(tally.counted()) : 0.0;
}

// What was lost before it was tallied. Zeros are not counted, since most are a ReLU's, unless there is nothing else.
FormatVerdict judge_held(const Tally& tally, Dtype format, bool should_vary) {
    if (tally.infinities > 0) return {Trouble::overflow, double(tally.infinities) / double(tally.values)};
    if (should_vary && tally.zeros == tally.values) return {Trouble::underflow, 1.0};
    const int last = std::ilogb(format_info(format).smallest_subnormal);
    if (const double share = share_in(tally, last, last + kLastBinades); share > kTooMuchLost)
        return {Trouble::underflow, share};
    return {};
}

FormatVerdict judge_range(const TensorStatistics& tensor, Dtype format, int shift) {
    if (const double share = overflowing_share(tensor, format, shift); share > 0) return {Trouble::overflow, share};
    if (const double share = lost_magnitude(*tensor.tally, format, shift); share > kTooMuchLost)
        return {Trouble::underflow, share};
    return {};
}

}  // namespace

std::string_view name_of(Trouble trouble) {
    constexpr std::string_view kNames[] = {"none", "significance", "underflow", "overflow"};
    return kNames[static_cast<std::size_t>(trouble)];
}

void FormatVerdict::take_worse(const FormatVerdict& other) {
    const bool scaled = by_scaling || other.by_scaling;
    if (other.trouble > trouble || (other.trouble == trouble && other.share > share)) *this = other;
    by_scaling = scaled;
}

double lost_magnitude(const Tally& tally, Dtype format, int shift) {
    const int last = std::ilogb(double(std::bit_cast<float>(thresholds_of(format).vanish)));
    double lost = 0.0, whole = 0.0;
    for (std::size_t i = 0; i < tally.exponents.size(); ++i) {
        const double magnitude = std::ldexp(double(tally.exponents[i]), int(i) - 127);
        whole += magnitude;
        if (int(i) - 127 + shift < last) lost += magnitude;
    }
    return whole > 0 ? lost / whole : 0.0;
}

double overflowing_share(const TensorStatistics& tensor, Dtype format, int shift) {
    const Tally& tally = *tensor.tally;
    if (tally.counted() == 0) return 0.0;
    const double limit = std::ldexp(double(std::bit_cast<float>(thresholds_of(format).overflow)), -shift);
    if (tally.largest < limit) return 0.0;
    const int binade = std::clamp(std::ilogb(limit), -127, 127);
    std::int64_t in_sample = 0, beyond = 0;
    for (const float value : tensor.sample)
        if (const double size = std::abs(double(value)); std::isfinite(size) && size > 0 && std::ilogb(size) == binade)
            ++in_sample, beyond += size >= limit;
    const double divided = in_sample > 0 ? double(beyond) / double(in_sample) : 0.0;
    const double share = share_in(tally, binade + 1, 128) + divided * share_in(tally, binade, binade + 1);
    return std::max(share, 1.0 / double(tally.counted()));  // the largest does, at least
}

double insignificant_share(const TensorStatistics& tensor, Dtype format) {
    const std::int64_t rows = std::int64_t(tensor.sample.size()) / tensor.features;
    if (rows < kFewRows) return 0.0;
    const FormatInfo info = format_info(format);
    std::int64_t judged = 0, lost = 0;
    for (std::int64_t f = 0; f < tensor.features; ++f) {
        double sum = 0.0, squares = 0.0, noise = 0.0;
        bool usable = true;
        const auto value = [&](std::int64_t row) {
            return double(tensor.sample[std::size_t(row * tensor.features + f)]);
        };
        for (std::int64_t row = 0; row < rows; ++row) {
            const double x = value(row);
            usable = usable && std::isfinite(x);
            sum += x;
            const double unit = x == 0 ? 0.0 : std::ldexp(info.epsilon, std::ilogb(x));  // ranges are judged apart
            noise += unit * unit;
        }
        for (std::int64_t row = 0; row < rows; ++row) squares += std::pow(value(row) - sum / double(rows), 2);
        // What is the same in every row of FP32 is so by design; in the format itself it may have become so.
        const bool by_design = squares == 0 && (tensor.held != format || !tensor.should_vary);
        if (!usable || noise == 0 || by_design) continue;
        ++judged;
        lost += std::sqrt(noise) / kSqrt12 > 0.5 * std::sqrt(squares);
    }
    return judged > 0 ? double(lost) / double(judged) : 0.0;
}

FormatVerdict judge(const TensorStatistics& tensor, Dtype format, int shift) {
    const Tally& tally = *tensor.tally;
    FormatVerdict verdict;
    if (tensor.held == format && shift == 0) {
        verdict = judge_held(tally, format, tensor.should_vary);
    } else if (tally.counted() > 0) {
        verdict = judge_range(tensor, format, shift);
        if (size_of(format) == 1 && verdict.trouble != Trouble::none) {
            const int room = std::ilogb(format_info(format).max) - std::ilogb(tally.largest) - 1;
            verdict = judge_range(tensor, format, room);
            verdict.by_scaling = verdict.trouble == Trouble::none;
        }
    }
    if (verdict.trouble == Trouble::none)
        if (const double share = insignificant_share(tensor, format); share > kMost)
            verdict.trouble = Trouble::significance, verdict.share = share;
    return verdict;
}

}  // namespace invar
