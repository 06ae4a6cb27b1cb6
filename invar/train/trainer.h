// Trainer: a run from its configuration to its summary, watched by an observer, interruptible and resumable to the
// byte.
#pragma once

#include <atomic>
#include <functional>
#include <optional>

#include "invar/train/run_folder.h"
#include "invar/train/setup.h"
#include "invar/train/snapshot.h"

namespace invar {

// Told what happens; the program's progress line is one. Nothing here can change the run.
class Observer {
  public:
    virtual ~Observer() = default;
    virtual void started(const Setup&, const RunFolder&, const Progress&) {}
    virtual void ticked(const Progress&, std::int64_t /*total_steps*/) {}  // after every step; nothing is read for it
    virtual void stepped(const StepMetrics&) {}                            // after every logged one
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
    void after_step(const Tensor& loss, Observer& observer);
    bool validation_due() const;
    void validate(Observer& observer);
    void save();
    [[noreturn]] void give_up(const StepState& state, double loss);

    Config config_;
    std::string config_yaml_;
    Setup setup_;
    Progress progress_;
    std::optional<RunFolder> folder_;
    std::vector<std::string> notes_;
    RunSummary summary_;
    std::int64_t saved_at_ = -1;
    // since the last logged step
    double seconds_ = 0.0;
    std::int64_t samples_ = 0;
    std::int64_t trained_samples_ = 0;
    static inline std::atomic<bool> stop_requested_ = false;
};

}  // namespace invar
