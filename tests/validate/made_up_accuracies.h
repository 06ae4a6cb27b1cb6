// Accuracies of made-up runs: two arms whose true accuracies differ by so much, measured on so many samples.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>

#include "invar/validate/noise.h"

namespace invar {

struct MadeUpRuns {
    std::int64_t samples = 1000;
    int seeds = 2;
    double accuracy = 0.9;     // of the baseline
    double difference = 0.01;  // by which share of it the candidate's is lower
    double spread = 0.0;       // standard deviation of a run's true accuracy over the seeds
    bool same_errors = false;  // each arm errs on the same samples with every seed, the candidate on more of them
};

struct MadeUpArms {
    Outcomes baseline, candidate;
};

inline MadeUpArms make_up(const MadeUpRuns& runs, std::mt19937_64& random) {
    const auto count = [&](std::int64_t of, double share) {
        return double(std::binomial_distribution<std::int64_t>(of, std::clamp(share, 0.0, 1.0))(random));
    };
    std::normal_distribution<double> normal;
    const double n = double(runs.samples), lower = runs.accuracy * (1 - runs.difference);
    const double lost = count(runs.samples, runs.accuracy - lower);
    const double kept = count(runs.samples - std::int64_t(lost), lower / (1 - (runs.accuracy - lower)));
    const auto value = [&](double accuracy, double of_the_set) {
        const double seed = runs.spread * normal(random);
        if (!runs.same_errors) return count(runs.samples, accuracy + seed) / n;
        return std::clamp(std::round(of_the_set + n * seed), 0.0, n) / n;
    };
    MadeUpArms arms;
    for (std::int64_t seed = 0; seed < runs.seeds; ++seed) {
        arms.baseline.push_back({value(runs.accuracy, kept + lost), seed});
        arms.candidate.push_back({value(lower, kept), seed});
    }
    return arms;
}

}  // namespace invar
