// Stability: tells from the reports of the steps whether a run is still healthy. It looks for what does not mend by
// itself: a loss that is not finite, a scale at its floor, skipped steps in a row, a loss or gradient norm far off.
#pragma once

#include <deque>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "invar/train/monitor.h"

namespace invar {

struct Instability {
    std::int64_t step = 0, epoch = 0;
    std::string kind;    // one of Stability::kKinds
    std::string reason;  // "the loss is nan"
    StepReport report;
};

class Stability {
  public:
    static constexpr const char* kKinds[] = {"loss_nonfinite", "scale_floor", "skipped_streak", "loss_spike",
                                             "gradient_spike"};
    explicit Stability(const StabilityConfig& config) : config_(config) {}
    // Every step, in order.
    std::optional<Instability> judge(const HeardStep& step);

    nlohmann::json state() const;
    void restore(const nlohmann::json& state);

  private:
    // The last values of a healthy run. One value far above them is a spike where it is also worse than the first value
    // of all by `leap`; less than that may be a hard batch, and takes three in a row.
    struct Window {
        // How far above in standard deviations where this is a spike; otherwise nothing.
        std::optional<double> spike(double value, double least_deviation, double leap, const StabilityConfig& config);
        std::deque<double> values;
        std::optional<double> first;
        int above = 0;
    };
    StabilityConfig config_;
    Window losses_, norms_;  // the norms as logarithms: they differ by factors
};

}  // namespace invar
