// What finished runs can and cannot show: whether a candidate's metric is equivalent to the baseline's, decided by two
// one-sided t-tests where there are several seeds, and by plain thresholds where there is one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "invar/validate/limits.h"
#include "invar/validate/noise.h"

namespace invar {

struct Interval {
    double low = 0.0, high = 0.0;
    std::string str(int decimals = 2) const;  // "-0.40% to +0.10%"
};

// All differences are relative to the size of the baseline's mean; positive ones mean a larger metric.
struct Equivalence {
    Verdict verdict = Verdict::fail;
    std::string reason;  // one sentence without a full stop
    std::string caveat;  // what these runs cannot show; "" where there is nothing to add

    double baseline_mean = 0.0, candidate_mean = 0.0;
    double difference = 0.0;  // NaN where there is none: no finished runs, or a baseline of 0

    // Whether the tests could be done; nothing below means anything otherwise.
    bool tested = false;
    bool paired = false;          // seed by seed, rather than arm against arm (Welch)
    double standard_error = 0.0;  // by the spread of the runs
    double degrees = 0.0;
    double sampling_error = 0.0;   // what the choice of the samples adds; 0 where nothing is known of them
    Interval ninety, ninety_five;  // confidence intervals of the difference; the tests at level 0.05 read the first
    double p_equivalent = 1.0;     // of a difference of at least the margin: small means equivalent
    double p_harm = 1.0;           // of a difference of at most `harm`: small means harm

    // Runs to be added to each arm until one test or the other would decide, should the difference and its spread stay
    // as they are. 0 where it is decided; nothing where no number would.
    std::optional<std::int64_t> further_seeds = 0;
    // Where the samples are what is lacking: how many could show equivalence with these seeds, at least. 0 elsewhere.
    std::int64_t enough_samples = 0;
};

// `samples`: of a metric that is a share of samples, how many; 0 for any other, and where that is not known.
Equivalence test_equivalence(const Outcomes& baseline, const Outcomes& candidate, const std::string& metric,
                             const Limits& limits, std::int64_t samples = 0);

}  // namespace invar
