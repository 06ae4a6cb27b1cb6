// Trainer: a run from its configuration to its summary, watched by an observer, interruptible and resumable to the
// byte.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <limits>
#include <optional>

#include "invar/core/cpu_use.h"
#include "invar/train/graphed_step.h"
#include "invar/train/monitor.h"
#include "invar/train/precision_plan.h"
#include "invar/train/reports.h"
#include "invar/train/run_folder.h"
#include "invar/train/setup.h"
#include "invar/train/snapshot.h"
#include "invar/train/stability.h"
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
    virtual void alerted(const Alert& alert) { noted(alert.message); }
};

// From this step on, counted from 0.
struct PrecisionSpan {
    std::int64_t step = 0;
    std::string precision;
};

struct RunSummary {
    std::filesystem::path folder;
    std::string precision;  // at the end; 32-true also where every module is kept in FP32
    std::string status;     // "finished", "interrupted", "unstable", or "running" until one of them
    std::int64_t steps = 0;
    std::int64_t steps_now = 0;  // of them by this process, which may have resumed the run
    std::int64_t skipped = 0;
    std::int64_t alerts = 0;
    std::int64_t epochs = 0;
    double final_scale = 1.0;
    double train_loss = 0.0;
    std::vector<Measured> validation;           // the last one; empty where there was none
    double val(std::string_view metric) const;  // of it; NaN where there is none
    // These three over all processes that have trained it.
    double train_seconds = 0.0;      // without validation and checkpoints
    double samples_per_s = 0.0;      // without the first steps, in which libraries choose their ways
    std::int64_t unrated_steps = 0;  // how many those were, of this process
    MemoryStats memory;              // peaks
    double max_grad_norm = 0.0;      // of all steps where it was finite
    double waited_share = 0.0;       // of the time its threads could have run, others did; NaN where nothing is known
    std::vector<PrecisionSpan> precisions;
    std::vector<Recovery> recoveries;
    bool losses_finite = true;  // of all steps
    bool all_finite = true;     // and the weights at the end
    // The run was finished before, and no step was left to train: nothing in its folder was changed.
    bool nothing_left = false;
    std::vector<std::string> not_applied;  // key=value that was asked for then, and came too late
};

class Trainer {
  public:
    // resume: a run folder to go on with from its newest whole checkpoint.
    explicit Trainer(Config config, std::optional<std::filesystem::path> resume = {});
    Trainer(std::shared_ptr<const Task> task, Config config, std::optional<std::filesystem::path> resume = {});
    RunSummary run(Observer& observer);
    // Whether run() will leave the folder as it is; see RunSummary.
    bool nothing_left() const { return summary_.nothing_left; }
    // May be called from a signal handler: the run saves a checkpoint after the step at hand and stops. What asked for
    // it stands in the summary; the text must last.
    static void request_stop(const char* by = "request") {
        stopped_by_ = by;
        stop_requested_ = true;
    }
    Setup& setup() { return setup_; }

    // The step that showed that the run has become unstable, and how things stood before it. The weights still do,
    // where its loss or gradients were not finite.
    struct FailedStep {
        std::filesystem::path run;
        Config config;  // as it is at this step, whatever has been changed since the start
        std::vector<Batch> group;
        Progress progress;
        RngState rng;
        double scale = 1.0;
        Instability found;
    };
    struct Explanation {
        std::string text;    // why, in a sentence or two
        std::string advice;  // key=value; "" where there is none
        std::string remedy;  // the same where the step was replayed with it and was finite
    };
    // Asked before anything is changed.
    using Diagnosis = std::function<Explanation(Setup&, const FailedStep&)>;
    void set_diagnosis(Diagnosis diagnosis) { diagnosis_ = std::move(diagnosis); }

  private:
    // A step that the device was given and has not reported yet, and how things stood before it.
    struct Given {
        Progress before;
        RngState rng;
        std::int64_t samples = 0;
        std::int64_t step() const { return before.step + 1; }
    };

    void resume_from(const std::filesystem::path& folder);
    void restore(const Checkpoint& checkpoint, const std::optional<Recovery>& added = {});
    // What a checkpoint holds beside the snapshot: all that later alerts, decisions and the summary rest on, but for
    // clocks and memory, so that a resumed run saves the same bytes.
    nlohmann::json watch_state() const;
    void restore_watch(const nlohmann::json& watch);
    void read_totals(const std::filesystem::path& file, const nlohmann::json& before);
    void leave_finished(const std::filesystem::path& folder, const nlohmann::json& before);
    void follow_plan(Observer& observer);
    void train_epoch(Observer& observer);
    void hear(StepReport report, Observer& observer);
    void log_step(const Given& given, const StepReport& report, double now, Observer& observer);
    void hear_out(Observer& observer);
    double end_of(const StepReport& report);
    void stop_clock();
    void tell(const Findings& findings, Observer& observer);
    void tell_of_full_log(Observer& observer);
    void tell_of_folder(Observer& observer);
    bool validation_due() const;
    void validate(Observer& observer);
    void save(Observer& observer);
    void measure_memory();
    double waited_share() const;
    std::string computed_precision() const;
    void write_summary(const std::string& status, const std::string& failure = "");
    void react(const Instability& found, Observer& observer);
    void recover(Observer& observer);
    Explanation diagnose(const Instability& found);
    void apply(const std::string& setting);
    Config config_now() const;
    HaltSpec halts() const;
    [[noreturn]] void give_up(const Instability& found, const std::string& because);

    Config config_;
    std::string config_yaml_;
    Setup setup_;
    Reports reports_;
    std::optional<GraphedStep> step_;
    Monitor monitor_;
    Stability stability_;
    PrecisionPlan plan_;
    Diagnosis diagnosis_;
    std::optional<Instability> unstable_;  // until it is dealt with
    Progress progress_;                    // of what was given
    std::deque<Given> given_;
    Given heard_;               // the step that was heard of last
    double heard_scale_ = 1.0;  // and the scale before it
    std::optional<RunFolder> folder_;
    std::vector<std::string> notes_;
    RunSummary summary_;
    struct Totals {
        double seconds = 0.0, samples_per_s = 0.0;
        double waited_share = std::numeric_limits<double>::quiet_NaN();
        MemoryStats memory;
    };
    Totals earlier_;  // of the processes before this one
    bool told_full_log_ = false;
    std::int64_t logged_steps_ = 0;  // that metrics.jsonl holds
    std::int64_t saved_at_ = -1;
    Stopwatch clock_;  // runs while there is training to do, not while validating or saving
    struct Stretch {
        double seconds = 0.0;
        std::uint64_t ended_ns = 0;
    };
    std::optional<Stretch> stretch_;  // the first step heard of since the clock was started, by both clocks
    CpuUse used_before_;
    std::int64_t heard_steps_ = 0, trained_samples_ = 0;
    std::int64_t warm_samples_ = 0;  // of the first steps, which the rate is measured without
    double warm_seconds_ = 0.0;
    double scale_ = 1.0;  // after the last step that was heard of
    // since the last logged step
    double logged_at_ = 0.0;
    std::int64_t samples_ = 0;
    static inline std::atomic<bool> stop_requested_ = false;
    static inline std::atomic<const char*> stopped_by_ = "";
};

}  // namespace invar
