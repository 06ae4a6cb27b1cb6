// BestCheckpoints: keeps the checkpoints of the validations that were best, beside the newest ones, and saves one where
// a validation is among them. Lightning's ModelCheckpoint.
#pragma once

#include <optional>

#include "invar/train/callback.h"
#include "invar/train/monitored_metric.h"

namespace invar {

class BestCheckpoints : public Callback {
  public:
    explicit BestCheckpoints(CheckpointConfig options) : options_(std::move(options)) {}

    std::string name() const override { return "checkpoint." + options_.monitor; }
    void setup(const Setup& setup) override;
    void on_train_start(RunHandle& run) override;
    void on_validation_end(RunHandle& run, const ValidationMetrics& validation) override;
    nlohmann::json state_dict() const override;
    void load_state_dict(const nlohmann::json& state) override;
    std::vector<std::int64_t> kept_checkpoints() const override;
    void add_to(RunSummary& summary) const override;

  private:
    struct Kept {
        std::int64_t step = 0;
        double value = 0.0;
    };
    CheckpointConfig options_;
    std::optional<MonitoredMetric> metric_;
    std::vector<Kept> kept_;  // the best first; of equal ones the earlier
};

}  // namespace invar
