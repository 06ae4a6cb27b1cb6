// EarlyStopping: ends a run whose validations have not got better for a while. Lightning's callback of that name.
#pragma once

#include <optional>

#include "invar/train/callback.h"
#include "invar/train/monitored_metric.h"

namespace invar {

class EarlyStopping : public Callback {
  public:
    explicit EarlyStopping(EarlyStoppingConfig options) : options_(std::move(options)) {}

    std::string name() const override { return "early_stopping." + options_.monitor; }
    void setup(const Setup& setup) override;
    void on_train_start(RunHandle& run) override;
    void on_validation_end(RunHandle& run, const ValidationMetrics& validation) override;
    nlohmann::json state_dict() const override;
    void load_state_dict(const nlohmann::json& state) override;

  private:
    void stop_where_due(RunHandle& run) const;
    EarlyStoppingConfig options_;
    std::optional<MonitoredMetric> metric_;
    double best_ = std::numeric_limits<double>::quiet_NaN();
    std::int64_t best_step_ = 0;
    std::int64_t wait_ = 0;  // validations since
};

}  // namespace invar
