#include "invar/validate/noise.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace invar {

Moments moments_of(const std::vector<double>& values) {
    Moments m{double(values.size()), 0.0, 0.0};
    // From the first on: of equal values the mean is that value, to the last bit.
    for (const double value : values) m.mean += (value - values.front()) / m.n;
    if (!values.empty()) m.mean += values.front();
    double squares = 0.0;
    for (const double value : values) squares += (value - m.mean) * (value - m.mean);
    if (m.n > 1) m.variance = squares / (m.n - 1);
    return m;
}

std::vector<double> values_of(const Outcomes& outcomes) {
    std::vector<double> values;
    for (const Outcome& outcome : outcomes) values.push_back(outcome.value);
    return values;
}

Noise noise_of(const Outcomes& outcomes, std::int64_t samples) {
    constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
    const Moments m = moments_of(values_of(outcomes));
    Noise noise{m.n > 1 ? std::sqrt(m.variance) : kUnknown, samples, kUnknown, kUnknown};
    if (samples < 1) return noise;
    const SamplingError error(samples, m, m, 0.0);
    noise.resolution = 1 / error.samples;
    noise.sampling_error = std::sqrt(error.right * (1 - error.right) / error.samples);
    return noise;
}

bool are_shares_of(const Outcomes& outcomes, std::int64_t samples) {
    constexpr double kRounding = 1e-6;  // of a value in a log
    return samples > 0 && std::ranges::all_of(outcomes, [&](const Outcome& outcome) {
               const double hits = outcome.value * double(samples);
               return outcome.value >= 0 && outcome.value <= 1 &&
                      std::fabs(hits - std::round(hits)) <= std::min(kRounding * double(samples), 0.05);
           });
}

SamplingError::SamplingError(std::int64_t number, const Moments& baseline, const Moments& candidate, double margin)
    : samples(double(number)), difference(std::max(margin, std::fabs(candidate.mean - baseline.mean))) {
    // Two samples of each kind more (Agresti and Coull): ten right out of ten do not show that none is ever wrong.
    const double all = samples * (baseline.n + candidate.n);
    const double hits = samples * (baseline.n * baseline.mean + candidate.n * candidate.mean);
    right = std::clamp((hits + 2) / (all + 4), 0.0, 1.0);
}

SamplingError::Parts SamplingError::parts(double baseline_runs, double candidate_runs, double scale) const {
    if (samples == 0) return {};
    const double of_run = right * (1 - right) / samples;
    return {std::sqrt(of_run * (1 / baseline_runs + 1 / candidate_runs)) / scale,
            std::sqrt(difference / samples) / scale, 0.5 / samples / scale};
}

}  // namespace invar
