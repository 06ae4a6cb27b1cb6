// What finished runs can and cannot show: whether a candidate's metric is equivalent to the baseline's, decided by two
// one-sided t-tests where there are several seeds, and by plain thresholds where there is one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace invar {

// Ordered: the worse is the greater. Invalid is what cannot be judged: the baseline gives nothing to compare with.
enum class Verdict : std::uint8_t { pass, marginal, fail, invalid };
std::string_view name_of(Verdict verdict);  // "PASS", "MARGINAL", "FAIL", "INVALID"

// All relative to the baseline's mean.
struct Limits {
    double margin = 0.01;  // differences below it do not matter
    double harm = 0.02;    // differences beyond it do
    double level = 0.05;   // how often each error may happen
};
// Throws UsageError, naming the option, where they are not positive and in order.
void check_limits(const Limits& limits);

// The rule for one run an arm: below the margin, below `harm`, or neither. What is not a number fails.
Verdict judge(double difference, const Limits& limits);

// A metric's value at the end of one run.
struct Outcome {
    double value = 0.0;
    std::optional<std::int64_t> seed = {};
};
using Outcomes = std::vector<Outcome>;

// "+0.15%"; what rounds to nothing has no sign.
std::string signed_percent(double share, int decimals = 2);

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
    bool paired = false;  // seed by seed, rather than arm against arm (Welch)
    double standard_error = 0.0;
    double degrees = 0.0;
    Interval ninety, ninety_five;  // confidence intervals of the difference; the tests at level 0.05 read the first
    double p_equivalent = 1.0;     // of a difference of at least the margin: small means equivalent
    double p_harm = 1.0;           // of a difference of at most `harm`: small means harm

    // Runs to be added to each arm until one test or the other would decide, should the difference and its spread stay
    // as they are. 0 where it is decided; nothing where no number would.
    std::optional<std::int64_t> further_seeds = 0;
};

Equivalence test_equivalence(const Outcomes& baseline, const Outcomes& candidate, const std::string& metric,
                             const Limits& limits);

}  // namespace invar
