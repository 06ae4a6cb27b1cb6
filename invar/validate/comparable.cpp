// Whether runs can be held against each other at all: each counted once, all of them whole, all as long as the others.
#include "invar/validate/comparable.h"

#include <algorithm>
#include <cmath>

#include "invar/core/error.h"

namespace invar {

namespace {

constexpr std::size_t kEnoughValues = 4;  // that agree to the bit, so that it can be no accident
constexpr double kSameLength = 0.01;      // by so much of a run its last validations may lie apart

// Whether `longer` began with all that `shorter` holds.
bool begins(const RunLog& longer, const RunLog& shorter) {
    std::size_t values = 0;
    for (const std::string& name : metrics_among(shorter.names())) {
        const auto found = longer.series.find(name);
        const Series& part = shorter.series.at(name);
        if (found == longer.series.end() || found->second.y.size() < part.y.size()) return false;
        const auto same = [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); };
        if (!std::equal(part.y.begin(), part.y.end(), found->second.y.begin(), same)) return false;
        if (!std::equal(part.x.begin(), part.x.end(), found->second.x.begin(), same)) return false;
        values += part.y.size();
    }
    return values >= kEnoughValues;
}

}  // namespace

std::string why_one_run(const FoundRun& a, const FoundRun& b) {
    const std::string &one = a.log.source, &other = b.log.source;
    if (a.digest == b.digest)
        return one == other ? fmt::format("{} is given twice", one)
                            : fmt::format("{} and {} hold the same log", one, other);
    if (begins(b.log, a.log)) return fmt::format("{} holds the beginning of {}", one, other);
    if (begins(a.log, b.log)) return fmt::format("{} holds the beginning of {}", other, one);
    return "";
}

std::string why_unequal(const Comparison& comparison) {
    const RunRecord *shortest = nullptr, *longest = nullptr;
    const auto end_of = [](const RunRecord& run) { return run.metric_curve.x.back(); };
    const auto look = [&](const Arm& arm) {
        for (const RunRecord& run : arm.runs) {
            if (run.metric_curve.empty() || !run.not_finite.empty()) continue;  // what broke off has its own verdict
            if (shortest == nullptr || end_of(run) < end_of(*shortest)) shortest = &run;
            if (longest == nullptr || end_of(run) > end_of(*longest)) longest = &run;
        }
    };
    look(comparison.baseline);
    for (const Arm& arm : comparison.candidates) look(arm);
    if (shortest == nullptr || end_of(*longest) - end_of(*shortest) <= kSameLength * std::fabs(end_of(*longest)))
        return "";
    return fmt::format("the last {} of {} is at {:g}, that of {} at {:g}", comparison.metric, shortest->name,
                       end_of(*shortest), longest->name, end_of(*longest));
}

}  // namespace invar
