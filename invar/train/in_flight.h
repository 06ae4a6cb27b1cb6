// InFlight: the steps that the device was given and has not reported yet, in order; and, from their reports, the clock
// and the speed of a run.
#pragma once

#include <deque>
#include <optional>
#include <span>

#include "invar/dist/communicator.h"
#include "invar/train/reports.h"
#include "invar/train/snapshot.h"
#include "invar/train/stopwatch.h"

namespace invar {

// A step that the device has reported.
struct ReportedStep {
    Progress before;            // where the run stood before it,
    RngState rng;               // and its random numbers
    double scale_before = 1.0;  // and the loss scale, which the step was made with
    std::int64_t samples = 0;
    double seconds = 0.0;  // of training, until the step ended
    bool newest = false;   // the device was given nothing since: the gradients are still this step's
    StepReport report;
    std::int64_t step() const { return before.step + 1; }
    std::int64_t epoch() const { return before.epoch + 1; }  // 1 is the first
};

struct Speed {
    double seconds = 0.0;  // of training, without validation and checkpoints
    double samples_per_s = 0.0;
    std::int64_t unrated_steps = 0;  // the first ones, in which libraries choose their algorithms
};

class InFlight {
  public:
    explicit InFlight(Device device) : reports_(device) {}

    const ReportSlots& slots() const { return reports_.slots(); }
    bool empty() const { return steps_.empty(); }
    bool full() const { return steps_.size() == reports_.room(); }
    // A step on this group is about to be given to the device.
    void add(const Progress& before, std::span<const Batch> group);
    // How many of the oldest steps have reported, here and on all ranks.
    std::size_t ready() const { return reports_.ready(); }
    std::size_t ready_everywhere(Communicator& ranks) const;
    // The oldest step; waits for its report.
    ReportedStep wait();
    // Waits for all of them and counts none.
    void discard();

    // The clock runs while there is training to do, not while validating or saving.
    void start_clock() { clock_.start(); }
    void stop_clock();

    // The scale that the next step to be reported was made with.
    double scale() const { return scale_; }
    void set_scale(double scale) { scale_ = scale; }
    // How many this process has been told of.
    std::int64_t reported() const { return reported_; }
    // Samples per second since the last step for which this was asked.
    double rate_until(const ReportedStep& step);
    // Of all processes that have trained the run, where those before took so long and were so fast.
    Speed speed(const Speed& earlier) const;

  private:
    struct Step {
        Progress before;
        RngState rng;
        std::int64_t samples = 0;
    };
    ReportedStep take(const StepReport& report);
    double end_of(const StepReport& report);

    Reports reports_;
    std::deque<Step> steps_;
    double scale_ = 1.0;
    Stopwatch clock_;
    struct Stretch {
        double seconds = 0.0;
        std::uint64_t ended_ns = 0;
    };
    std::optional<Stretch> stretch_;  // the first step reported since the clock was started, by both clocks
    std::int64_t reported_ = 0, samples_ = 0;
    std::int64_t warm_up_samples_ = 0;  // of the first steps, which the speed is measured without
    double warm_up_seconds_ = 0.0;
    double rated_at_ = 0.0;  // see rate_until
    std::int64_t samples_since_ = 0;
};

}  // namespace invar
