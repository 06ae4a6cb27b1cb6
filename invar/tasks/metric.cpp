#include "invar/tasks/metric.h"

#include <cmath>
#include <set>

#include "invar/core/error.h"
#include "invar/core/printable.h"

namespace invar {

std::string Metric::str(double value) const {
    if (std::isnan(value)) return "nan";  // whose sign means nothing
    if (print == Print::percent) return fmt::format("{:.2f}%", 100 * value);
    const double size = std::fabs(value);
    if (size >= 1e7) return fmt::format("{:.6g}", value);  // of a run that diverges, all digits but the first are noise
    return value != 0 && size < 1e-2 ? fmt::format("{:.4g}", value) : fmt::format("{:.6f}", value);
}

MetricSums::MetricSums(std::vector<Metric> metrics) : metrics_(std::move(metrics)) {
    check<UsageError>(!metrics_.empty() && metrics_[0].name == "loss", "the first metric of a task must be 'loss'");
    std::size_t count = 0;
    std::set<std::string> names;
    for (const Metric& metric : metrics_) {
        constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.@/";
        check<UsageError>(!metric.name.empty() && metric.name.find_first_not_of(kPlain) == std::string::npos,
                          "a metric's name must be made of letters, digits and _-.@/, not '{}'",
                          printable(metric.name));
        check<UsageError>(names.insert(metric.name).second, "the task has two metrics '{}'", metric.name);
        check<UsageError>(
            metric.sums > (metric.value == Metric::ratio ? 1 : 0) && metric.value != nullptr,
            "metric '{}': needs at least one sum, two for a ratio, and a function that makes a figure of them",
            metric.name);
        count += std::size_t(metric.sums);
    }
    sums_.resize(count);
}

void MetricSums::add(std::span<const double> sums) {
    check(sums.size() == sums_.size(), "a batch was measured by {} sums, where the task's metrics have {}", sums.size(),
          sums_.size());
    for (std::size_t i = 0; i < sums.size(); ++i) sums_[i] += sums[i];
}

void MetricSums::add_others(Communicator& ranks) {
    ranks.sum(sums_);
}

std::vector<Measured> MetricSums::values() const {
    std::vector<Measured> values;
    std::size_t at = 0;
    for (const Metric& metric : metrics_) {
        values.push_back({metric, metric.value(std::span(sums_).subspan(at, std::size_t(metric.sums)))});
        at += std::size_t(metric.sums);
    }
    return values;
}

}  // namespace invar
