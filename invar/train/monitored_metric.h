// MonitoredMetric: the figure of a validation that a callback goes by, val_NAME for each metric of the task.
#pragma once

#include "invar/tasks/metric.h"
#include "invar/train/run_folder.h"
#include "invar/train/setup.h"

namespace invar {

class MonitoredMetric {
  public:
    // `section` names the keys in errors: a UsageError for a metric that the task does not have, with those it has, and
    // for a run that never validates. `mode`: min, max, or auto for the metric's own direction.
    MonitoredMetric(const std::string& section, const std::string& monitor, const std::string& mode,
                    const Setup& setup);

    double in(const ValidationMetrics& validation) const;
    // Whether it is better than `best` by more than `min_delta`; NaN never is.
    bool improves(double value, double best, double min_delta = 0.0) const;
    std::string str(double value) const { return metric_.str(value); }

  private:
    Metric metric_;
    Better better_;
};

}  // namespace invar
