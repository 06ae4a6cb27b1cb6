// Trainer: a run from its task and options to its summary, watched by an observer, interruptible and resumable to the
// byte. It is the loop; InFlight has the steps that are not reported yet, RecoveryPolicy decides what is done about an
// instability.
#pragma once

#include <atomic>
#include <optional>

#include "invar/core/cpu_use.h"
#include "invar/train/callback.h"
#include "invar/train/checkpoint_writer.h"
#include "invar/train/in_flight.h"
#include "invar/train/monitor.h"
#include "invar/train/observer.h"
#include "invar/train/precision_plan.h"
#include "invar/train/recorded_step.h"
#include "invar/train/recovery_policy.h"
#include "invar/train/run_folder.h"
#include "invar/train/setup.h"
#include "invar/train/snapshot.h"
#include "invar/train/speed.h"
#include "invar/train/stability.h"
#include "invar/train/summary.h"

namespace invar {

// A run to go on with.
struct Resume {
    std::filesystem::path folder;
    std::string checkpoint = "last";  // or "best", or the file of one
    Resume(std::filesystem::path run, std::string from = "last")
        : folder(std::move(run)), checkpoint(std::move(from)) {}
};

class Trainer final : private RunHandle {
  public:
    explicit Trainer(Config config, std::optional<Resume> resume = {});
    explicit Trainer(std::shared_ptr<const Task> task, Config config = {}, std::optional<Resume> resume = {});
    Trainer(const Trainer&) = delete;
    Trainer& operator=(const Trainer&) = delete;
    RunSummary fit(Observer& observer);
    RunSummary fit();
    // Before fit(). The callbacks are called in the order in which they were added; those that the configuration asks
    // for (early_stopping, checkpoint) come first.
    void add(std::shared_ptr<Callback> callback);
    // Whether fit() will leave the folder as it is; see RunSummary.
    bool nothing_left() const { return summary_.nothing_left; }
    // May be called from a signal handler: the run saves a checkpoint after the step at hand and stops. What asked for
    // it stands in the summary; the text must last.
    // `number`: of the signal, which other ranks are told.
    static void request_stop(const char* by = "request", int number = 1) {
        stopped_by_ = by;
        stop_number_ = number;
        stop_requested_ = true;
        hurry_world();
    }
    // Whether a rank has asked for it and all have agreed, at the same step.
    bool stopping() const { return setup_.ranks->alone() ? stop_requested_.load() : stop_agreed_ != 0; }
    // What any of them was asked by; 0: nothing.
    int stop_number() const { return setup_.ranks->alone() ? stop_number_.load() : stop_agreed_; }
    Setup& setup() { return setup_; }
    // Has failed steps explained, as by `explain` of diagnose/record_failure.h.
    void set_diagnosis(ExplainFailure explain) { recovery_.set_diagnosis(std::move(explain)); }

  private:
    // What callbacks may do.
    const Setup& run_setup() const override { return setup_; }
    const Progress& progress() const override { return progress_; }
    const CheckpointFolder& checkpoints() const override { return folder_->checkpoints(); }
    void stop(const std::string& reason) override;
    void save_checkpoint() override { save_requested_ = true; }
    double learning_rate() const override;
    void set_learning_rate(double rate) override;
    void note(const std::string& line) override { observer_->noted(line); }

    // The loop.
    RunSummary run(Observer& observer);
    void train_epoch();
    void run_step(const std::vector<Batch>& group);
    void follow_plan();
    void set_precision(const Precision& precision);
    bool ended() const { return progress_.step >= setup_.total_steps; }
    bool goes_on() const { return !ended() && !stopping() && summary_.stopped_early.empty(); }
    bool validation_due() const;
    void start_callbacks();
    void call_step_callbacks();
    // What follows a step beside its checkpoint, once for each: validation where it is due, and callbacks.
    void after_step(bool validation);
    void update_best();
    void keep_only_best();
    void check_best();
    void validate();
    void save_pictures();
    void save();
    // Of the checkpoint that is being written: waits until it is there, or goes on where it is not yet. What rests on
    // it comes after.
    void finish_save(bool wait = true);
    // What all ranks begin and validate with is the first one's.
    void share_buffers();
    // Until every step has been reported: before anything that shows or keeps where the run stands.
    void drain();
    std::size_t reports_to_handle() const;
    void handle_report(ReportedStep step);
    void log_step(const ReportedStep& step);
    void log_findings(const Findings& findings);
    void note_full_log();
    void note_folder_changes();
    // What is done about an instability.
    void handle_instability(const Instability& found);
    void recover();
    LatestCheckpoint good_checkpoint(const Instability& found) const;
    void record_failure(const RunFailure& failure);
    std::string computed_precision() const;

    // What of a run is kept, and how it is gone on with (trainer_state.cpp).
    void resume_from(const Resume& resume);
    ResumePoint resume_point() const;
    CheckpointFolder::StepSet kept_checkpoints() const;
    void scale_learning_rates(double factor);
    void leave_finished(const std::filesystem::path& folder, const nlohmann::json& before);
    void restore(const Checkpoint& checkpoint, const std::optional<Recovery>& added = {});
    // What a checkpoint holds beside the snapshot: all that later alerts, decisions and the summary rest on, but for
    // clocks and memory, so that a resumed run saves the same bytes.
    nlohmann::json watch_state() const;
    void restore_watch(const nlohmann::json& watch);
    void restore_precisions(std::vector<PrecisionSpan> precisions);
    void measure_memory();
    void write_summary(const std::string& status, const RunFailure* failure = nullptr);

    Config config_;
    std::string config_yaml_;
    Setup setup_;
    InFlight in_flight_;
    std::optional<RecordedStep> step_;
    std::optional<SpeedScale> speed_;  // while it runs
    Monitor monitor_;
    Stability stability_;
    PrecisionPlan plan_;
    RecoveryPolicy recovery_;
    std::optional<Instability> unstable_;  // until it is dealt with
    Progress progress_;                    // of what the device was given
    ReportedStep last_reported_;
    std::vector<std::shared_ptr<Callback>> callbacks_;
    nlohmann::json callback_states_ = nlohmann::json::object();  // as the checkpoint had them, by name
    bool save_requested_ = false;                                // by a callback
    std::vector<double> base_rates_;                             // of the optimizer's groups, by the configuration
    double lr_factor_ = 1.0;                                     // by which callbacks have changed them
    std::int64_t after_step_done_ = -1;                          // the step that after_step was called for last
    Observer* observer_ = nullptr;                               // while fit() runs
    std::optional<RunFolder> folder_;
    std::vector<std::string> notes_;
    RunSummary summary_;
    EarlierTotals earlier_;
    CpuUse used_before_;
    bool noted_full_log_ = false;
    std::int64_t logged_steps_ = 0;  // that metrics.jsonl holds
    std::int64_t saved_at_ = -1;
    struct Saving {
        std::int64_t step;
        CheckpointFolder::StepSet kept;
    };
    std::optional<Saving> saving_;  // what the writer has
    CheckpointWriter writer_;
    int stop_agreed_ = 0;
    static inline std::atomic<bool> stop_requested_ = false;
    static inline std::atomic<const char*> stopped_by_ = "";
    static inline std::atomic<int> stop_number_ = 0;
};

}  // namespace invar
