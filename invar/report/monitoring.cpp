#include "invar/report/monitoring.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "invar/report/content.h"

namespace invar {

namespace {

constexpr double kFewSkipped = 0.01;  // of the steps: a scaler that looks for its scale needs some
constexpr std::size_t kNames = 3;     // in one cell

using Curve = Series RunRecord::*;

// The finite values of all runs.
std::vector<double> values_of(const Arm& arm, Curve curve) {
    std::vector<double> all;
    for (const RunRecord& run : arm.runs)
        std::ranges::copy_if((run.*curve).y, std::back_inserter(all),
                             [](double value) { return std::isfinite(value); });
    return all;
}

double median_of(std::vector<double> values) {
    if (values.empty()) return kUnknown;
    const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

MonitorRow finite_row(const Arm& base, const Arm& arm) {
    const auto text = [](const Arm& one) {
        for (const RunRecord& run : one.runs)
            if (!run.not_finite.empty()) return run.not_finite;
        return std::string("none");
    };
    return {"NaN/Inf values in loss and metric", text(base), text(arm), "none", arm.all_finite()};
}

MonitorRow skipped_row(const Arm& base, const Arm& arm) {
    MonitorRow row{"Steps skipped for NaN/Inf",
                   skipped_of(base),
                   skipped_of(arm),
                   fmt::format("{:g}% at most", 100 * kFewSkipped),
                   {}};
    if (std::isfinite(arm.skipped) && arm.steps > 0) row.met = arm.skipped <= kFewSkipped * arm.steps;
    return row;
}

MonitorRow norm_row(const std::string& what, double from, double to, const std::string& baseline) {
    MonitorRow row{what, known(from), known(to), fmt::format("within {:g}x of {}", kNormFactor, baseline), {}};
    if (from > 0 && std::isfinite(to)) row.met = to <= kNormFactor * from && to * kNormFactor >= from;
    return row;
}

MonitorRow large_row(const Arm& base, const Arm& arm, double limit) {
    const auto share = [&](const Arm& one) {
        const std::vector<double> norms = values_of(one, &RunRecord::grad_norm);
        return std::pair(std::ranges::count_if(norms, [&](double norm) { return norm > limit; }), norms.size());
    };
    const auto text = [](const auto& counted) {
        return counted.second == 0 ? "n/a" : fmt::format("{} of {} logged", counted.first, counted.second);
    };
    const auto before = share(base), after = share(arm);
    MonitorRow row{fmt::format("Large gradient norms, above {:g}", limit), text(before), text(after), "none", {}};
    if (after.second > 0) row.met = after.first == 0;
    return row;
}

// Parameters, and how small their gradients were.
MonitorRow small_row(const Arm& base, const Arm& arm, double limit, const std::string& baseline) {
    const auto text = [](const Arm& one) -> std::string {
        std::vector<std::string> names;
        std::set<std::string> all;
        bool looked = false;
        for (const RunRecord& run : one.runs) {
            looked = looked || run.gradients_watched;
            for (const auto& [name, norm] : run.small_gradients)
                if (all.insert(name).second && names.size() < kNames)
                    names.push_back(fmt::format("{} = {:.2g}", name, norm));
        }
        if (!looked) return "n/a";
        if (all.empty()) return "none";
        return fmt::format("{}{}", fmt::join(names, ", "),
                           all.size() > names.size() ? fmt::format(" and {} more", all.size() - names.size()) : "");
    };
    MonitorRow row{fmt::format("Small gradients, norm below {:g}", limit),
                   text(base),
                   text(arm),
                   fmt::format("none that {} has not", baseline),
                   {}};
    if (row.baseline == "n/a" || row.candidate == "n/a") return row;
    std::set<std::string> expected;
    for (const RunRecord& run : base.runs)
        for (const auto& small : run.small_gradients) expected.insert(small.first);
    row.met = std::ranges::all_of(arm.runs, [&](const RunRecord& run) {
        return std::ranges::all_of(run.small_gradients,
                                   [&](const auto& small) { return expected.contains(small.first); });
    });
    return row;
}

// By how much the metric got worse from one validation to the next, at most, as a share of the baseline's mean.
double setback_of(const Comparison& c, const Arm& arm) {
    double worst = kUnknown;
    for (const RunRecord& run : arm.runs) {
        const std::vector<double>& y = run.metric_curve.y;
        for (std::size_t i = 1; i < y.size(); ++i) {
            const double fall = c.direction == Better::higher ? y[i - 1] - y[i] : y[i] - y[i - 1];
            const double share = std::max(0.0, fall) / std::fabs(c.baseline.metric);
            if (std::isfinite(share) && !(share <= worst)) worst = share;
        }
    }
    return worst;
}

MonitorRow stability_row(const Comparison& c, const Arm& arm, const std::string& baseline) {
    const double from = setback_of(c, c.baseline), to = setback_of(c, arm);
    const double harm = c.limits.relative_to(c.baseline.metric).harm;
    const auto text = [](double share) { return std::isnan(share) ? "n/a" : fmt::format("{:.2f}%", 100 * share); };
    MonitorRow row{fmt::format("Largest setback of {} between validations", c.metric),
                   text(from),
                   text(to),
                   fmt::format("{:.3g}%, or twice that of {}, at most", 100 * harm, baseline),
                   {}};
    if (std::isfinite(from) && std::isfinite(to)) row.met = to <= std::max(harm, 2 * from);
    return row;
}

MonitorRow scale_row(const Arm& base, const Arm& arm) {
    const auto text = [](const std::vector<double>& scales) {
        if (scales.empty()) return std::string("none");
        const auto [low, high] = std::ranges::minmax(scales);
        return low == high ? fmt::format("{:g}", low) : fmt::format("{:g} to {:g}", low, high);
    };
    const std::vector<double> scales = values_of(arm, &RunRecord::scale);
    return {"Loss scale", text(values_of(base, &RunRecord::scale)), text(scales), "1 at least",
            scales.empty() || std::ranges::min(scales) >= 1};
}

}  // namespace

std::vector<MonitorRow> monitoring_rows(const Comparison& c, const Arm& arm, const ReportContext& context) {
    const Arm& base = c.baseline;
    if (base.runs.empty() || arm.runs.empty()) return {};
    std::vector<MonitorRow> rows = {finite_row(base, arm), skipped_row(base, arm)};
    rows.push_back(norm_row("Gradient norm, median of those logged", median_of(values_of(base, &RunRecord::grad_norm)),
                            median_of(values_of(arm, &RunRecord::grad_norm)), context.baseline));
    rows.push_back(norm_row("Gradient norm, largest", base.max_grad_norm, arm.max_grad_norm, context.baseline));
    rows.push_back(large_row(base, arm, context.monitor.grad_norm_high));
    rows.push_back(small_row(base, arm, context.monitor.grad_norm_low, context.baseline));
    rows.push_back(stability_row(c, arm, context.baseline));
    if (!values_of(arm, &RunRecord::scale).empty()) rows.push_back(scale_row(base, arm));
    return rows;
}

}  // namespace invar
