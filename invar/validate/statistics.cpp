#include "invar/validate/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "invar/core/error.h"
#include "invar/validate/student_t.h"

namespace invar {

namespace {

constexpr std::int64_t kMostSeeds = 100'000, kMostSamples = 1'000'000'000'000;

// Below this share of the values a spread is what rounding left of none.
constexpr double kNoSpread = 1e-13;

// The differences seed by seed where both arms ran the same seeds, each once; empty otherwise.
std::vector<double> paired_differences(const Outcomes& baseline, const Outcomes& candidate) {
    if (baseline.size() != candidate.size()) return {};
    std::map<std::int64_t, double> by_seed;
    for (const Outcome& outcome : baseline)
        if (!outcome.seed || !by_seed.emplace(*outcome.seed, outcome.value).second) return {};
    std::vector<double> differences;
    for (const Outcome& outcome : candidate) {
        if (!outcome.seed) return {};
        const auto found = by_seed.find(*outcome.seed);
        if (found == by_seed.end()) return {};
        differences.push_back(outcome.value - found->second);
        by_seed.erase(found);  // a seed that comes twice finds nothing the second time
    }
    return differences;
}

// By how much the difference of means may be wrong, as a share of the baseline's mean.
struct Reach {
    double spread = 0.0, degrees = 0.0;  // a standard error by the runs, and what it is worth
    SamplingError::Parts samples = {};   // what their choice adds

    // On each side, where chance may go further in this share of all cases.
    double at(double tail) const {
        const double normal = normal_quantile(1 - tail);
        // Runs that happen to agree do not make the samples any surer.
        const double runs = std::max(student_t_quantile(1 - tail, degrees) * spread, normal * samples.by_runs);
        return std::hypot(runs, normal * samples.lasting) + samples.half_step;
    }
    // The share of cases in which chance goes as far as this.
    double p(double distance) const {
        if (samples.half_step == 0) return student_t_cdf(-distance / spread, degrees);
        if (distance < 0) return 1 - p(-distance);
        double low = kLeast, high = 0.5;
        while (high / low > 1 + 1e-6) {
            const double middle = std::sqrt(low * high);
            (at(middle) > distance ? low : high) = middle;
        }
        return high;
    }
    static constexpr double kLeast = 1e-15;
};

struct Evidence {
    bool paired = false;
    Moments a, b;  // of the differences twice, or of baseline and candidate
    SamplingError sampling;
    double scale;  // the size of the baseline's mean

    // As it would be with `more` further runs an arm.
    Reach with(double more) const {
        Reach reach;
        if (paired) {
            reach = {std::sqrt(a.variance / (a.n + more)) / scale, a.n + more - 1};
        } else {
            const double va = a.variance / (a.n + more), vb = b.variance / (b.n + more);
            const double sum = va + vb;
            const double degrees = va * va / (a.n + more - 1) + vb * vb / (b.n + more - 1);
            reach = {std::sqrt(sum) / scale, degrees > 0 ? sum * sum / degrees : a.n + b.n + 2 * more - 2};
        }
        reach.samples = sampling.parts(a.n + more, b.n + more, scale);
        return reach;
    }
};

bool decides(double difference, const Reach& reach, const Limits& limits) {
    const double size = std::fabs(difference), around = reach.at(limits.level);
    return size + around < limits.margin || size - around > limits.harm;
}

// The least number up to `most` that is enough, where more is never less; nothing where none is.
template <class Enough>
std::optional<std::int64_t> least(std::int64_t most, const Enough& enough) {
    if (!enough(most)) return std::nullopt;
    std::int64_t too_few = 0, plenty = most;
    while (plenty - too_few > 1) {
        const std::int64_t middle = too_few + (plenty - too_few) / 2;
        (enough(middle) ? plenty : too_few) = middle;
    }
    return plenty;
}

std::optional<std::int64_t> seeds_to_decide(double difference, const Evidence& evidence, const Limits& limits) {
    return least(kMostSeeds,
                 [&](std::int64_t more) { return decides(difference, evidence.with(double(more)), limits); });
}

// How many samples could show equivalence with these runs at best, should there be no difference at all; 0 where these
// are enough, or where their number is not known.
std::int64_t samples_to_pass(const Evidence& evidence, const Limits& limits) {
    const auto enough = [&](std::int64_t samples) {
        Evidence other = evidence;
        other.a.variance = other.b.variance = 0;
        other.sampling.samples = double(samples);
        other.sampling.difference = limits.margin * evidence.scale;
        return decides(0.0, other.with(0), limits);
    };
    const auto samples = std::int64_t(evidence.sampling.samples);
    return samples < 1 || enough(samples) ? 0 : least(kMostSamples, enough).value_or(kMostSamples);
}

std::string p_text(double p) {
    return p < 1e-4 ? "p < 0.0001" : fmt::format("p = {:.2g}", p);
}

// Why there is nothing to compare; "" where there is.
std::string obstacle(const Outcomes& baseline, const Outcomes& candidate, const std::string& metric) {
    for (const auto& [outcomes, arm] : {std::pair(&baseline, "baseline"), std::pair(&candidate, "candidate")}) {
        if (outcomes->empty()) return fmt::format("the {} has no finished run", arm);
        for (std::size_t i = 0; i < outcomes->size(); ++i)
            if (const double value = (*outcomes)[i].value; !std::isfinite(value))
                return fmt::format("{} of {} run {} is {}", metric, arm, i + 1, std::isnan(value) ? "NaN" : "infinite");
    }
    return "";
}

// What the limits are called by; the judgement itself is made with shares of the baseline's mean.
struct Words {
    std::string metric;
    Limits limits;  // as they were given
    double mean;
    std::int64_t samples;

    std::string margin() const { return limits.str(limits.margin); }
    std::string harm() const { return limits.str(limits.harm); }
    std::string difference(double share) const { return limits.difference(share, mean); }
    std::string size(double share) const {
        const std::string text = difference(std::fabs(share));
        return text.starts_with('+') ? text.substr(1) : text;
    }
    std::string interval(const Interval& i) const {
        const std::string from = difference(i.low), to = difference(i.high);
        return "90% interval " + (from == to ? from : from + " to " + to);
    }
    std::string one_sample() const {
        return fmt::format("one of the {} samples is {}", samples, size(1 / double(samples) / std::fabs(mean)));
    }
};

void judge_one_run(Equivalence& result, const Words& words, const Limits& limits, bool single) {
    result.verdict = judge(result.difference, limits);
    const bool pass = result.verdict == Verdict::pass, fail = result.verdict == Verdict::fail;
    result.reason =
        fmt::format("{} differs by {} from the baseline, which is {}below {}", words.metric,
                    words.size(result.difference), pass ? "" : "not ", fail ? words.harm() : words.margin());
    result.further_seeds = std::nullopt;
    result.caveat =
        single ? "One run an arm cannot tell the effect of the precision from that of the seed: two baseline runs that "
                 "differ in their seed alone differ too, and by how much was not measured here. A small difference is "
                 "no proof of equivalence, and a larger one no proof of harm."
               : "One arm has a single run, so its spread is not known and means are compared by plain thresholds; two "
                 "runs or more in each arm can be tested.";
    if (words.samples > 0)
        result.caveat += fmt::format(" Nor does the rule ask how many samples there are: {}.", words.one_sample());
}

// What would decide what is not decided.
std::string advice_of(const Equivalence& result, const Words& words, const Limits& limits) {
    const double size = std::fabs(result.difference);
    const std::string more_samples =
        result.enough_samples == 0
            ? ""
            : fmt::format("at least {} samples with these seeds, where {}", result.enough_samples, words.one_sample());
    if (result.further_seeds)
        return fmt::format("about {} further seed{} an arm would decide it{}", *result.further_seeds,
                           *result.further_seeds == 1 ? "" : "s",
                           more_samples.empty() ? "" : ", or equivalence can be shown by " + more_samples);
    if (!more_samples.empty())
        return fmt::format("no number of seeds shows equivalence on so few samples: it takes {}", more_samples);
    if (size >= limits.margin && size <= limits.harm)
        return fmt::format("the difference lies between {} and {}, where more seeds would not decide it",
                           words.margin(), words.harm());
    return fmt::format("more than {} further seeds would be needed", kMostSeeds);
}

void judge_tested(Equivalence& result, const Words& words, const Limits& limits) {
    const std::string interval = words.interval(result.ninety);
    if (result.ninety.low == 0 && result.ninety.high == 0) {
        result.verdict = Verdict::pass;
        result.reason = words.metric + " is the same as the baseline's in every run";
    } else if (result.p_equivalent < limits.level) {
        result.verdict = Verdict::pass;
        result.reason = fmt::format("{} is equivalent to the baseline's within {} ({}, {})", words.metric,
                                    words.margin(), interval, p_text(result.p_equivalent));
    } else if (result.p_harm < limits.level) {
        result.verdict = Verdict::fail;
        result.reason = fmt::format("{} differs from the baseline's by more than {} ({}, {})", words.metric,
                                    words.harm(), interval, p_text(result.p_harm));
    } else {
        result.verdict = Verdict::marginal;
        result.reason = fmt::format("{} differs by {} and nothing is established ({}); {}", words.metric,
                                    words.difference(result.difference), interval, advice_of(result, words, limits));
    }
}

}  // namespace

std::string Interval::str(int decimals) const {
    const std::string from = signed_percent(low, decimals), to = signed_percent(high, decimals);
    return from == to ? from : from + " to " + to;
}

Equivalence test_equivalence(const Outcomes& baseline, const Outcomes& candidate, const std::string& metric,
                             const Limits& given, std::int64_t samples) {
    Equivalence result;
    result.difference = std::numeric_limits<double>::quiet_NaN();
    result.reason = obstacle(baseline, candidate, metric);
    if (!result.reason.empty()) return result;

    const Moments a = moments_of(values_of(baseline)), b = moments_of(values_of(candidate));
    result.baseline_mean = a.mean, result.candidate_mean = b.mean;
    const double scale = std::fabs(a.mean);
    double largest = 0;
    for (const Outcome& outcome : baseline) largest = std::max(largest, std::fabs(outcome.value));
    const bool zero = scale <= kNoSpread * largest;  // or what rounding left of it
    if (zero || !std::isfinite((b.mean - a.mean) / scale)) {
        result.verdict = Verdict::invalid;
        result.reason = fmt::format(
            "the baseline's mean {} is {}, and there is no share of zero to compare by; train longer, or compare "
            "another metric",
            metric, zero ? "0" : "too close to 0");
        return result;
    }
    result.difference = (b.mean - a.mean) / scale;
    const Limits limits = given.relative_to(scale);
    const Words words{metric, given, scale, samples};
    if (baseline.size() < 2 || candidate.size() < 2) {
        judge_one_run(result, words, limits, baseline.size() == 1 && candidate.size() == 1);
        return result;
    }

    const std::vector<double> differences = paired_differences(baseline, candidate);
    result.tested = true;
    result.paired = !differences.empty();
    const Moments pairs = moments_of(differences);
    const SamplingError sampling = samples > 0 ? SamplingError(samples, a, b, limits.margin * scale) : SamplingError();
    const Evidence evidence{result.paired, result.paired ? pairs : a, result.paired ? pairs : b, sampling, scale};
    Reach reach = evidence.with(0);
    const double size = std::fabs(result.difference);
    const bool agree = reach.spread <= kNoSpread * std::max(1.0, size);
    if (agree) reach.spread = 0.0;
    result.degrees = reach.degrees;
    result.standard_error = reach.spread;
    result.sampling_error = std::hypot(reach.samples.by_runs, reach.samples.lasting);
    if (agree && size <= kNoSpread) result.difference = 0.0;
    if (agree && samples == 0) {
        // Runs that do not spread leave nothing to estimate from: the difference is taken as it is.
        result.ninety = result.ninety_five = {result.difference, result.difference};
        result.p_equivalent = size < limits.margin ? 0.0 : 1.0;
        result.p_harm = size > limits.harm ? 0.0 : 1.0;
        if (result.difference != 0)
            result.caveat =
                "The difference is the same for every seed; a metric of few steps, such as an accuracy on a small set, "
                "can look like that by chance.";
    } else {
        const auto interval = [&](double tail) {
            const double around = reach.at(tail);
            return Interval{result.difference - around, result.difference + around};
        };
        result.ninety = interval(0.05), result.ninety_five = interval(0.025);
        // The larger of the two one-sided p-values is that of the limit nearer to the difference.
        result.p_equivalent = reach.p(limits.margin - size);
        result.p_harm = reach.p(size - limits.harm);
    }
    const bool decided = result.p_equivalent < limits.level || result.p_harm < limits.level;
    if (!decided) {
        result.further_seeds = seeds_to_decide(result.difference, evidence, limits);
        result.enough_samples = samples_to_pass(evidence, limits);
    }
    judge_tested(result, words, limits);
    return result;
}

}  // namespace invar
