// Stability: tells from the reports of the steps whether a run is still healthy. It looks for what does not mend by
// itself: a loss that is not finite, a scale at its floor, skipped steps in a row, and a loss that was thrown off and
// does not come back. That a loss or a gradient norm leaps is worth a word; what it does to the run decides.
#pragma once

#include <deque>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "invar/config/config.h"
#include "invar/train/in_flight.h"

namespace invar {

struct Instability {
    enum class Kind : std::uint8_t {
        loss_nonfinite,
        scale_floor,
        skipped_streak,
        loss_spike,
        gradient_spike,
        loss_diverged
    };
    static constexpr Kind kKinds[] = {Kind::loss_nonfinite, Kind::scale_floor,    Kind::skipped_streak,
                                      Kind::loss_spike,     Kind::gradient_spike, Kind::loss_diverged};
    Kind kind = Kind::loss_nonfinite;
    std::string reason;           // "the loss is NaN"
    ReportedStep at;              // that it began with
    bool breaks = true;           // false: the run may well get over it
    std::int64_t shown_at = 0;    // the step that showed it, the same or a later one
    std::int64_t good_until = 0;  // the last step before any of it
};
// "loss_spike", as its alert is called.
std::string name_of(Instability::Kind kind);

class Stability {
  public:
    explicit Stability(const StabilityConfig& config) : config_(config) {}
    // Every step, in order.
    std::optional<Instability> judge(const ReportedStep& step);
    // The loss of the network before it has learnt anything; tiny where no step was judged.
    double untrained() const;
    // Whether the loss was thrown off and has not come back.
    bool is_thrown_off() const { return thrown_.has_value(); }
    // The last step before what may yet turn out to be trouble: a loss that was thrown off, steps that are skipped.
    std::optional<std::int64_t> good_until() const;

    nlohmann::json state() const;
    // Whether a state() was taken while something was amiss.
    static bool in_trouble(const nlohmann::json& state);
    void restore(const nlohmann::json& state);

  private:
    // What a value must exceed beside the window's own spread.
    struct Bounds {
        double spread = 0.0;          // the least standard deviation that counts,
        double of_median = 0.0;       // and that as a share of the usual value
        double least = 0.0;           // below it a single value is at most a hard batch,
        double least_in_a_row = 0.0;  // and below this any number of them
    };
    // The last values of a healthy run. Judged by their median and by the median of their deviations, which a leap that
    // was let pass does not blur.
    struct Window {
        double usual() const;
        bool falls() const;  // from its first half to its second
        double spread(const Bounds& bounds) const;
        // How far above in standard deviations where this is a spike; otherwise nothing.
        std::optional<double> spike(double value, const Bounds& bounds, const StabilityConfig& config);
        std::deque<double> values;
        std::optional<double> first;
        int above = 0;  // values in a row that are far off
    };
    // A loss that left what was usual, until it is back or has shown that it will not be.
    struct Thrown {
        ReportedStep at;
        double bound = 0.0;          // at or below it the run is as good as it was
        std::vector<double> losses;  // since then
        bool knew_usual = true;      // whether a whole window came before
    };
    std::optional<Instability> look(const ReportedStep& step);
    std::optional<Instability> follow(const ReportedStep& step);
    void throw_off(const ReportedStep& step);
    Bounds loss_bounds() const;

    StabilityConfig config_;
    Window losses_, norms_;           // the norms as logarithms: they differ by factors
    std::optional<double> at_first_;  // the usual loss of the first whole window
    std::optional<std::int64_t> skipping_since_;
    std::optional<Thrown> thrown_;
};

}  // namespace invar
