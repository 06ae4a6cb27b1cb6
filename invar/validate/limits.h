// Limits: how large a difference does not matter, and how large a one does harm.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace invar {

// Ordered: the worse is the greater. Invalid is what cannot be judged: the baseline gives nothing to compare with.
enum class Verdict : std::uint8_t { pass, marginal, fail, invalid };
std::string_view name_of(Verdict verdict);  // "PASS", "MARGINAL", "FAIL", "INVALID"

struct Limits {
    // What margin and harm are measured in: shares of the baseline's mean, percentage points of a metric that is itself
    // a share (0.005 are half a point), or the metric's own unit.
    enum class Unit : std::uint8_t { relative, points, metric };

    double margin = 0.01;  // differences below it do not matter
    double harm = 0.02;    // differences beyond it do
    double level = 0.05;   // how often each error may happen
    Unit unit = Unit::relative;

    // --margin: "0.01" of the baseline's mean, "0.5pp" for percentage points, "abs:0.005" in the metric's own unit,
    // with twice of it as harm. Throws UsageError.
    static Limits parse(const std::string& margin);
    std::string word() const;  // what parse() makes these of

    // The same as shares of a baseline of this mean.
    Limits relative_to(double mean) const;
    // "1%", "0.5 percentage points" or "0.005": one of the limits, for people.
    std::string str(double limit) const;
    // A difference that is this share of the mean, in the unit of these: "+0.15%", "-0.20pp" or "+0.0012".
    std::string difference(double share, double mean) const;
};
// Throws UsageError, naming the option, where they are not positive and in order.
void check_limits(const Limits& limits);
// Throws UsageError where points are asked for of a metric that is no share of 1; `value` is one of its values, where
// one is known: an accuracy of 90 is in percent, and says what to ask for instead.
void check_unit(const Limits& limits, const std::string& metric, bool is_share, double value = 0.0);

// The rule for one run an arm, with limits that are relative: below the margin, below `harm`, or neither. What is not a
// number fails.
Verdict judge(double difference, const Limits& limits);

// "+0.15%"; what rounds to nothing has no sign.
std::string signed_percent(double share, int decimals = 2);

}  // namespace invar
