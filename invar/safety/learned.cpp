#include "invar/safety/learned.h"

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

std::string from_to(double first, double last) {
    return fmt::format("{:.4g} at first, {:.4g} at the end", first, last);
}

}  // namespace

std::string why_not_learned(const RunLog& log, const Start& start) {
    const auto series = [&](const char* name) {
        const auto found = log.series.find(name);
        return found == log.series.end() ? Series{} : found->second;
    };
    const Series trained = series("loss"), val_loss = series("val_loss"), accuracy = series("val_accuracy");
    const bool val_fell = !val_loss.empty() && val_loss.y.back() < start.loss;
    if (!fell(trained) && !val_fell)
        return fmt::format("its loss did not fall: {}", val_loss.empty()
                                                            ? from_to(trained.empty() ? kUnknown : trained.y.front(),
                                                                      trained.empty() ? kUnknown : tail_of(trained))
                                                            : from_to(start.loss, val_loss.y.back()));
    if (accuracy.empty() || start.classes < 1 || start.samples < 1) return "";
    const double chance = 1.0 / double(start.classes);
    const double luck = chance + kDeviations * std::sqrt(chance * (1 - chance) / double(start.samples));
    if (accuracy.y.back() > luck) return "";
    return fmt::format("its val_accuracy of {:.2f}% is what guessing gives: {} classes, {} samples, so up to {:.2f}%",
                       100 * accuracy.y.back(), start.classes, start.samples, 100 * luck);
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
