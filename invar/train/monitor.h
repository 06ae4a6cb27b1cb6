// Monitor: watches a run without holding it up. Every step's report is judged as it comes; at intervals the device is
// also asked for the gradients, weights and activations of each module, and answers when it gets there.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>

#include "invar/train/alerts.h"
#include "invar/train/in_flight.h"
#include "invar/train/run_folder.h"
#include "invar/train/setup.h"
#include "invar/train/tensor_stats.h"

namespace invar {

// What there is to tell, in order.
struct Findings {
    std::vector<Alert> alerts;
    std::vector<MonitorMetrics> metrics;
};

class Monitor {
  public:
    Monitor(const MonitorConfig& config, Setup& setup);
    ~Monitor();

    // After a step was given to the device: asks it to measure what is due.
    void measure(std::int64_t step, std::int64_t epoch, std::span<const Batch> group);
    // The report of a step, in order.
    Findings handle_report(const ReportedStep& step);
    // What is still to come, when all steps have been reported; waits for it.
    Findings drain();

    // The run went back: what was asked for is of steps that do not count.
    void discard();

    Alerts& alerts() { return alerts_; }

    // For checkpoints, when all steps have been reported: what later alerts rest on.
    nlohmann::json state() const;
    void restore(const nlohmann::json& state);

  private:
    struct Measurement;
    bool due(std::int64_t step, std::int64_t every) const { return config_.enabled && every > 0 && step % every == 0; }
    std::unique_ptr<Measurement> take_unused();
    void measure_shares(TensorStats& sums);
    void measure_activations(Measurement& measurement, const Batch& samples);
    void judge_report(const ReportedStep& step, Findings& findings);
    void collect(Findings& findings);
    void collect_gradients(const Measurement& measurement, Findings& findings);
    void collect_parameters(const Measurement& measurement, Findings& findings);
    void collect_activations(const Measurement& measurement, Findings& findings);
    void alert(Findings& findings, bool raised, const std::string& kind, const std::string& where, double value,
               const std::function<std::string()>& message);
    std::string bad_gradients();
    const std::string& title(const std::string& module) const;
    MonitorMetrics& metrics(Findings& findings) const;

    MonitorConfig config_;
    Setup& setup_;
    Alerts alerts_;
    std::vector<std::string> module_of_;                // of each parameter
    std::map<std::string, std::string> titles_;         // of each module, by its path
    std::deque<std::unique_ptr<Measurement>> pending_;  // the device may be some measurements behind
    std::vector<std::unique_ptr<Measurement>> unused_;  // memory to be used again
    std::int64_t step_ = 0, epoch_ = 0;                 // of what is being judged
    int small_ = 0;                                     // steps in a row with a gradient norm below the threshold
    double seconds_before_ = 0.0;                       // at the last record of throughput
    std::int64_t steps_since_ = 0, samples_since_ = 0;
};

}  // namespace invar
