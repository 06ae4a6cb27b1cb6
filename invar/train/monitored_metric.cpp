#include "invar/train/monitored_metric.h"

#include <fmt/ranges.h>

#include <cmath>
#include <limits>

#include "invar/core/error.h"

namespace invar {

namespace {

Metric find_metric(const std::string& section, const std::string& monitor, const std::vector<Metric>& metrics) {
    std::vector<std::string> names;
    for (const Metric& metric : metrics) {
        names.push_back("val_" + metric.name);
        if (names.back() == monitor) return metric;
    }
    fail<UsageError>("{}.monitor = {}: there is no such metric; there {} {}", section, monitor,
                     names.size() == 1 ? "is" : "are", fmt::join(names, ", "));
}

}  // namespace

MonitoredMetric::MonitoredMetric(const std::string& section, const std::string& monitor, const std::string& mode,
                                 const Setup& setup)
    : metric_(find_metric(section, monitor, setup.task->metrics())), better_(metric_.better) {
    check<UsageError>(mode == "auto" || mode == "min" || mode == "max", "{}.mode = {}: must be min, max or auto",
                      section, mode);
    if (mode != "auto") better_ = mode == "min" ? Better::lower : Better::higher;
    check<UsageError>(setup.test_data->batches_per_epoch() > 0,
                      "{}.monitor = {}: trainer.limit_val_batches=0 never validates; leave out one of the two", section,
                      monitor);
}

double MonitoredMetric::in(const ValidationMetrics& validation) const {
    for (const Measured& measured : validation.metrics)
        if (measured.metric.name == metric_.name) return measured.value;
    return std::numeric_limits<double>::quiet_NaN();
}

bool MonitoredMetric::improves(double value, double best, double min_delta) const {
    if (std::isnan(value)) return false;
    return std::isnan(best) || (better_ == Better::lower ? value < best - min_delta : value > best + min_delta);
}

}  // namespace invar
