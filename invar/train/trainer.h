// Trainer: a run from its configuration to its summary, watched by an observer, interruptible and resumable to the
// byte.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <optional>

#include "invar/train/graphed_step.h"
#include "invar/train/reports.h"
#include "invar/train/run_folder.h"
#include "invar/train/setup.h"
#include "invar/train/snapshot.h"
#include "invar/train/stopwatch.h"

namespace invar {

// Told what happens; the program's progress line is one. Nothing here can change the run.
class Observer {
  public:
    virtual ~Observer() = default;
    virtual void started(const Setup&, const RunFolder&, const Progress&) {}
    // After every step that was given to the device, which may still be busy with it.
    virtual void ticked(const Progress&, std::int64_t /*total_steps*/) {}
    virtual void stepped(const StepMetrics&) {}  // after every logged one, when the device has reported it
    virtual void validated(const ValidationMetrics&) {}
    virtual void noted(const std::string&) {}  // one line worth showing
};

struct RunSummary {
    std::filesystem::path folder;
    std::string precision;
    std::string status;  // "finished" or "interrupted"
    std::int64_t steps = 0;
    std::int64_t skipped = 0;
    std::int64_t epochs = 0;
    double final_scale = 1.0;
    double train_loss = 0.0;
    double val_loss = 0.0;
    double val_accuracy = 0.0;
    double train_seconds = 0.0;  // without validation and checkpoints
    double samples_per_s = 0.0;
    double max_grad_norm = 0.0;
    MemoryStats memory;
    bool all_finite = true;  // every logged loss, and the weights at the end
};

class Trainer {
  public:
    // resume: a run folder to go on with from its newest whole checkpoint.
    explicit Trainer(Config config, std::optional<std::filesystem::path> resume = {});
    RunSummary run(Observer& observer);
    // May be called from a signal handler: the run saves a checkpoint after the step at hand and stops.
    static void request_stop() { stop_requested_ = true; }
    Setup& setup() { return setup_; }

  private:
    void resume_from(const std::filesystem::path& folder);
    void train_epoch(Observer& observer);
    void hear(const StepReport& report, Observer& observer);
    void hear_out(Observer& observer);
    bool validation_due() const;
    void validate(Observer& observer);
    void save(Observer& observer);
    [[noreturn]] void give_up(std::int64_t step, const StepReport& report);

    // A step that the device was given and has not reported yet.
    struct Given {
        std::int64_t step, epoch, samples;
    };

    Config config_;
    std::string config_yaml_;
    Setup setup_;
    Reports reports_;
    std::optional<GraphedStep> step_;
    Progress progress_;  // of what was given
    std::deque<Given> given_;
    std::optional<RunFolder> folder_;
    std::vector<std::string> notes_;
    RunSummary summary_;
    std::int64_t saved_at_ = -1;
    Stopwatch clock_;  // runs while there is training to do, not while validating or saving
    std::int64_t trained_samples_ = 0;
    // since the last logged step
    double logged_at_ = 0.0;
    std::int64_t samples_ = 0;
    static inline std::atomic<bool> stop_requested_ = false;
};

}  // namespace invar
