#include "invar/tasks/metric.h"

#include <cmath>

#include "invar/core/error.h"

namespace invar {

std::string Metric::str(double value) const {
    if (std::isnan(value)) return "nan";  // whose sign means nothing
    if (print == Print::percent) return fmt::format("{:.2f}%", 100 * value);
    return value != 0 && std::fabs(value) < 1e-2 ? fmt::format("{:.4g}", value) : fmt::format("{:.6f}", value);
}

MetricSums::MetricSums(std::vector<Metric> metrics) : metrics_(std::move(metrics)) {
    std::size_t count = 0;
    for (const Metric& metric : metrics_) count += std::size_t(metric.sums);
    sums_.resize(count);
}

void MetricSums::add(std::span<const double> sums) {
    check(sums.size() == sums_.size(), "a batch was measured by {} sums, where the task's metrics have {}", sums.size(),
          sums_.size());
    for (std::size_t i = 0; i < sums.size(); ++i) sums_[i] += sums[i];
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
