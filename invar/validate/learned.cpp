#include "invar/validate/learned.h"

#include <algorithm>
#include <cmath>

#include "invar/core/error.h"

namespace invar {

namespace {

constexpr double kDeviations = 3.0;  // that guessing may be lucky by: once in 700 times it is luckier
constexpr std::size_t kTail = 10;    // the last loss is the mean of the last tenth of them

double tail_of(const Series& loss) {
    const std::size_t n = std::max<std::size_t>(1, loss.y.size() / kTail);
    double sum = 0.0;
    for (std::size_t i = loss.y.size() - n; i < loss.y.size(); ++i) sum += loss.y[i];
    return sum / double(n);
}

// NaN has not fallen.
bool fell(const Series& loss) {
    return loss.y.size() > 1 && tail_of(loss) < loss.y.front();
}

// The best that guessing may come to on so many samples, where the metric is a share of them.
double luckiest(const Metric& metric, std::int64_t samples) {
    const double chance = *metric.chance, sign = metric.better == Better::higher ? 1.0 : -1.0;
    if (metric.print != Metric::Print::percent) return chance;
    return chance + sign * kDeviations * std::sqrt(chance * (1 - chance) / double(samples));
}

std::string from_to(double first, double last) {
    return fmt::format("{:.4g} at first, {:.4g} at the end", first, last);
}

}  // namespace

std::string why_not_learned(const RunLog& log, const Start& start) {
    const auto series = [&](const std::string& name) {
        const auto found = log.series.find(name);
        return found == log.series.end() ? Series{} : found->second;
    };
    const double loss_before = start.metrics.empty() ? kUnknown : start.metrics.front().value;
    const Series trained = series("loss"), val_loss = series("val_loss");
    const bool val_fell = !val_loss.empty() && val_loss.y.back() < loss_before;
    if (!fell(trained) && !val_fell)
        return fmt::format("its loss did not fall: {}", val_loss.empty()
                                                            ? from_to(trained.empty() ? kUnknown : trained.y.front(),
                                                                      trained.empty() ? kUnknown : tail_of(trained))
                                                            : from_to(loss_before, val_loss.y.back()));
    for (const auto& [metric, before] : start.metrics) {
        const Series values = series("val_" + metric.name);
        if (values.empty() || !metric.chance || start.samples < 1) continue;
        const double sign = metric.better == Better::higher ? 1.0 : -1.0, bound = luckiest(metric, start.samples);
        if (sign * values.y.back() > sign * bound) continue;
        return fmt::format("its val_{} of {} is what guessing gives: {}, or {} by luck on {} samples", metric.name,
                           metric.str(values.y.back()), metric.str(*metric.chance), metric.str(bound), start.samples);
    }
    return "";
}

Doubt doubt_learning(const RunRecord& run, const std::string& metric, Better direction) {
    if (run.loss.y.size() < 2 || fell(run.loss)) return {};
    const std::vector<double>& values = run.metric_curve.y;
    if (values.size() < 2)
        return {fmt::format("its loss did not fall: {}", from_to(run.loss.y.front(), tail_of(run.loss))), false};
    const bool better = direction == Better::higher ? values.back() > values.front() : values.back() < values.front();
    if (better) return {};
    return {fmt::format("its loss did not fall ({}), nor did {} get better ({})",
                        from_to(run.loss.y.front(), tail_of(run.loss)), metric, from_to(values.front(), values.back())),
            true};
}

}  // namespace invar
