// Noise: by how much a metric's values differ for reasons that are not the precision: the seed, the samples that it
// happened to be measured on, and the steps in which it can be counted at all.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace invar {

// A metric's value at the end of one run.
struct Outcome {
    double value = 0.0;
    std::optional<std::int64_t> seed = {};
};
using Outcomes = std::vector<Outcome>;

struct Moments {
    double n = 0.0, mean = 0.0, variance = 0.0;  // no variance for one value
};
Moments moments_of(const std::vector<double>& values);
std::vector<double> values_of(const Outcomes& outcomes);

// Of one arm, in the metric's own unit. NaN: not known.
struct Noise {
    double spread;          // standard deviation over the runs; of one run not known
    std::int64_t samples;   // that the metric is a share of; 0 where it is none, or where nothing says how many
    double resolution;      // one sample
    double sampling_error;  // standard deviation of such a share, on other samples of this number
};
Noise noise_of(const Outcomes& outcomes, std::int64_t samples);
// Whether the values can be shares of so many samples: each a whole number of them.
bool are_shares_of(const Outcomes& outcomes, std::int64_t samples);

// What the choice of the samples adds to the difference of two arms that are shares of the same samples. Errors of
// different runs are taken as independent of each other, though many samples are hard for all of them; a difference
// that is in every run of an arm is there on the same samples each time, so that more seeds do not make it surer.
struct SamplingError {
    double samples = 0.0;  // 0: not known, and nothing is added
    double right = 0.0;    // the share itself, of both arms together, kept away from 0 and 1 by a few made-up samples
    double difference = 0.0;  // that may lie on single samples: the one seen, but no less than the margin
    SamplingError() = default;
    SamplingError(std::int64_t samples, const Moments& baseline, const Moments& candidate, double margin);

    // As shares of a metric of this size.
    struct Parts {
        double by_runs = 0.0;    // a standard deviation that more runs make smaller,
        double lasting = 0.0;    // one that they do not,
        double half_step = 0.0;  // and half a sample, since nothing lies between two
    };
    Parts parts(double baseline_runs, double candidate_runs, double scale) const;
};

}  // namespace invar
