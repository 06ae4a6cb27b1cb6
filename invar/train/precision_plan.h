// PrecisionPlan: which precision each step of a run is trained in. It follows trainer.precision_schedule; a recovery
// makes everything from there on at least as safe as what it changed to.
#pragma once

#include <optional>
#include <vector>

#include "invar/config/config.h"

namespace invar {

class PrecisionPlan {
  public:
    // Epoch n begins at first_epoch_at + n * steps_per_epoch.
    PrecisionPlan(const TrainerConfig& config, std::int64_t steps_per_epoch, std::int64_t first_epoch_at = 0);

    // Of the step that comes after `done` of them.
    Precision at(std::int64_t done) const;
    // The steps before which it changes, in order; the first is 0.
    std::vector<std::int64_t> changes() const;
    // The next safer precision, up to FP32; nothing behind that.
    std::optional<Precision> safer_than(const Precision& precision) const;
    // From now on nothing less safe than this.
    void hold_at(const std::string& precision);

  private:
    struct Change {
        std::int64_t step;
        Precision precision;
    };
    TrainerConfig config_;
    std::vector<Change> changes_;  // by step
    std::optional<Precision> held_;
};

}  // namespace invar
