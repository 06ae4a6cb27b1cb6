// ProgressLine: a run as it is seen on a terminal (one live line, lasting lines above it) or through a pipe (a line a
// logged step).
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "invar/cli/console.h"
#include "invar/train/trainer.h"

namespace invar::cli {

class ProgressLine : public Observer {
  public:
    // `label` stands before everything, as where several runs follow each other; `quiet` shows nothing at all.
    explicit ProgressLine(std::string label = "", bool quiet = false) : label_(std::move(label)), quiet_(quiet) {}

    void started(const Setup& setup, const RunFolder& folder, const Progress& progress) override;
    void step_launched(const Progress& progress, std::int64_t total_steps) override;
    void step_reported(const ReportedStep& step) override;
    void step_logged(const StepMetrics& metrics) override;
    void validated(const ValidationMetrics& metrics) override;
    void noted(const std::string& note) override;
    void alerted(const Alert& alert) override;
    // Takes the live line away; call it before printing something else.
    void finish();

  private:
    using Clock = std::chrono::steady_clock;
    void draw(const Progress& progress, std::int64_t total);
    // "[AMP Stats] Scale: 32768, Growth tracker: 12 of 2000, Skipped: 3 of 500", once for a step, where the loss is
    // scaled.
    void tell_amp_stats();
    void lasting(std::string_view line);

    std::string label_;
    bool quiet_;
    LiveLine line_;
    const Setup* setup_ = nullptr;  // while the run lasts
    bool scaled_ = false;
    SpeedUnit unit_;
    std::int64_t samples_per_step_ = 0;
    std::int64_t epochs_ = 0;
    std::optional<StepReport> last_;
    std::int64_t last_step_ = 0, amp_told_at_ = 0, growth_interval_ = 0;  // 0: the scale is fixed
    std::int64_t unasked_ = 0;  // lines of steps that were skipped, or moved the scale, between those of the interval
    Rate logged_rate_;          // with the share of the machine's arithmetic, which is only known of logged steps
    bool told_stop_ = false, told_lost_ = false;
    // Speed is of the recent steps, so that the first, slow one does not count for long.
    Clock::time_point before_;
    double step_seconds_ = 0.0;  // a moving mean; 0 before the second step
    std::int64_t ticks_ = 0;
};

}  // namespace invar::cli
