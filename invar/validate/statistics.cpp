#include "invar/validate/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "invar/core/error.h"
#include "invar/validate/student_t.h"

namespace invar {

namespace {

constexpr std::int64_t kMostSeeds = 100'000;

// Below this share of the values a spread is what rounding left of none.
constexpr double kNoSpread = 1e-13;

struct Moments {
    double n = 0.0, mean = 0.0, variance = 0.0;
};

Moments moments_of(const std::vector<double>& values) {
    Moments m{double(values.size()), 0.0, 0.0};
    for (const double value : values) m.mean += value / m.n;
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

// The spread of the difference of means, in the metric's own unit, as it would be with `more` further runs an arm.
struct Spread {
    double error = 0.0, degrees = 0.0;
};
struct Evidence {
    bool paired = false;
    Moments a, b;  // of the differences and nothing, or of baseline and candidate

    Spread with(double more) const {
        if (paired) return {std::sqrt(a.variance / (a.n + more)), a.n + more - 1};
        const double va = a.variance / (a.n + more), vb = b.variance / (b.n + more);
        const double sum = va + vb;
        const double degrees = va * va / (a.n + more - 1) + vb * vb / (b.n + more - 1);
        return {std::sqrt(sum), degrees > 0 ? sum * sum / degrees : a.n + b.n + 2 * more - 2};
    }
};

bool decides(double difference, Spread spread, const Limits& limits) {
    const double reach = student_t_quantile(1 - limits.level, spread.degrees) * spread.error;
    return std::fabs(difference) + reach < limits.margin || std::fabs(difference) - reach > limits.harm;
}

std::optional<std::int64_t> seeds_to_decide(double difference, const Evidence& evidence, double scale,
                                            const Limits& limits) {
    const auto enough = [&](std::int64_t more) {
        const Spread spread = evidence.with(double(more));
        return decides(difference, {spread.error / scale, spread.degrees}, limits);
    };
    if (!enough(kMostSeeds)) return std::nullopt;
    std::int64_t too_few = 0, plenty = kMostSeeds;
    while (plenty - too_few > 1) {
        const std::int64_t middle = too_few + (plenty - too_few) / 2;
        (enough(middle) ? plenty : too_few) = middle;
    }
    return plenty;
}

std::string p_text(double p) {
    return p < 1e-4 ? "p < 0.0001" : fmt::format("p = {:.2g}", p);
}

std::string percent(double share) {
    return fmt::format("{:.2f}%", 100 * share);
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

void judge_one_run(Equivalence& result, const std::string& metric, const Limits& limits, bool single) {
    result.verdict = judge(result.difference, limits);
    const bool pass = result.verdict == Verdict::pass, fail = result.verdict == Verdict::fail;
    result.reason = fmt::format("{} differs by {} from the baseline, which is {}below {:g}%", metric,
                                percent(std::fabs(result.difference)), pass ? "" : "not ",
                                100 * (fail ? limits.harm : limits.margin));
    result.further_seeds = std::nullopt;
    result.caveat =
        single ? "One run an arm cannot tell the effect of the precision from that of the seed: two baseline runs that "
                 "differ in their seed alone differ too, and by how much was not measured here. A small difference is "
                 "no proof of equivalence, and a larger one no proof of harm."
               : "One arm has a single run, so its spread is not known and means are compared by plain thresholds; two "
                 "runs or more in each arm can be tested.";
}

void judge_tested(Equivalence& result, const std::string& metric, const Limits& limits) {
    const double size = std::fabs(result.difference);
    const std::string interval = "90% interval " + result.ninety.str();
    if (result.ninety.low == 0 && result.ninety.high == 0) {
        result.verdict = Verdict::pass;
        result.reason = metric + " is the same as the baseline's in every run";
    } else if (result.p_equivalent < limits.level) {
        result.verdict = Verdict::pass;
        result.reason = fmt::format("{} is equivalent to the baseline's within {:g}% ({}, {})", metric,
                                    100 * limits.margin, interval, p_text(result.p_equivalent));
    } else if (result.p_harm < limits.level) {
        result.verdict = Verdict::fail;
        result.reason = fmt::format("{} differs from the baseline's by more than {:g}% ({}, {})", metric,
                                    100 * limits.harm, interval, p_text(result.p_harm));
    } else {
        result.verdict = Verdict::marginal;
        const std::string so_far = fmt::format("{} differs by {} and nothing is established ({})", metric,
                                               signed_percent(result.difference), interval);
        if (result.further_seeds)
            result.reason = fmt::format("{}; about {} further seed{} an arm would decide it", so_far,
                                        *result.further_seeds, *result.further_seeds == 1 ? "" : "s");
        else if (size >= limits.margin && size <= limits.harm)
            result.reason = fmt::format(
                "{}; the difference lies between {:g}% and {:g}%, where more seeds would not "
                "decide it",
                so_far, 100 * limits.margin, 100 * limits.harm);
        else
            result.reason = fmt::format("{}; more than {} further seeds would be needed", so_far, kMostSeeds);
    }
}

}  // namespace

std::string_view name_of(Verdict verdict) {
    constexpr std::string_view kNames[] = {"PASS", "MARGINAL", "FAIL", "INVALID"};
    return kNames[static_cast<int>(verdict)];
}

std::string signed_percent(double share, int decimals) {
    const std::string text = fmt::format("{:+.{}f}%", 100 * share, decimals);
    return text.find_first_of("123456789nif") == text.npos ? text.substr(1) : text;
}

std::string Interval::str(int decimals) const {
    const std::string from = signed_percent(low, decimals), to = signed_percent(high, decimals);
    return from == to ? from : from + " to " + to;
}

void check_limits(const Limits& limits) {
    check<UsageError>(limits.margin > 0 && limits.margin <= limits.harm && std::isfinite(limits.harm),
                      "the limits {} (PASS) and {} (FAIL) must be above 0 and in this order", limits.margin,
                      limits.harm);
    check<UsageError>(limits.level > 0 && limits.level < 0.5, "the level {} must lie above 0 and below 0.5",
                      limits.level);
}

Verdict judge(double difference, const Limits& limits) {
    const double size = std::fabs(difference);
    return size < limits.margin ? Verdict::pass : size < limits.harm ? Verdict::marginal : Verdict::fail;
}

Equivalence test_equivalence(const Outcomes& baseline, const Outcomes& candidate, const std::string& metric,
                             const Limits& limits) {
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
    if (baseline.size() < 2 || candidate.size() < 2) {
        judge_one_run(result, metric, limits, baseline.size() == 1 && candidate.size() == 1);
        return result;
    }

    const std::vector<double> differences = paired_differences(baseline, candidate);
    result.tested = true;
    result.paired = !differences.empty();
    const Evidence evidence = result.paired ? Evidence{true, moments_of(differences), {}} : Evidence{false, a, b};
    const Spread spread = evidence.with(0);
    result.degrees = spread.degrees;
    result.standard_error = spread.error / scale;
    const double size = std::fabs(result.difference);
    if (result.standard_error <= kNoSpread * std::max(1.0, size)) {
        // Runs that do not spread leave nothing to estimate from: the difference is taken as it is.
        result.standard_error = 0.0;
        result.ninety = result.ninety_five = {result.difference, result.difference};
        result.p_equivalent = size < limits.margin ? 0.0 : 1.0;
        result.p_harm = size > limits.harm ? 0.0 : 1.0;
        if (size <= kNoSpread) {
            result.difference = 0.0;
            result.ninety = result.ninety_five = {};
        } else {
            result.caveat =
                "The difference is the same for every seed; a metric of few steps, such as an accuracy on a small set, "
                "can "
                "look like that by chance.";
        }
    } else {
        const auto interval = [&](double share) {
            const double reach = student_t_quantile(share, spread.degrees) * result.standard_error;
            return Interval{result.difference - reach, result.difference + reach};
        };
        result.ninety = interval(0.95), result.ninety_five = interval(0.975);
        // The larger of the two one-sided p-values is that of the limit nearer to the difference.
        result.p_equivalent = student_t_cdf((size - limits.margin) / result.standard_error, spread.degrees);
        result.p_harm = student_t_cdf((limits.harm - size) / result.standard_error, spread.degrees);
    }
    const bool decided = result.p_equivalent < limits.level || result.p_harm < limits.level;
    result.further_seeds = decided ? 0 : seeds_to_decide(result.difference, evidence, scale, limits);
    judge_tested(result, metric, limits);
    return result;
}

}  // namespace invar
