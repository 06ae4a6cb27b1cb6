// Trainer: a run from its task and options to its summary, watched by an observer, interruptible and resumable to the
// byte. It is the loop; InFlight has the steps that are not reported yet, RecoveryPolicy decides what is done about an
// instability.
#pragma once

#include <atomic>
#include <optional>

#include "invar/core/cpu_use.h"
#include "invar/train/graphed_step.h"
#include "invar/train/in_flight.h"
#include "invar/train/monitor.h"
#include "invar/train/observer.h"
#include "invar/train/precision_plan.h"
#include "invar/train/recovery_policy.h"
#include "invar/train/run_folder.h"
#include "invar/train/setup.h"
#include "invar/train/snapshot.h"
#include "invar/train/stability.h"
#include "invar/train/summary.h"

namespace invar {

class Trainer {
  public:
    // resume: a run folder to go on with from its newest whole checkpoint.
    explicit Trainer(Config config, std::optional<std::filesystem::path> resume = {});
    Trainer(std::shared_ptr<const Task> task, Config config, std::optional<std::filesystem::path> resume = {});
    RunSummary fit(Observer& observer);
    RunSummary fit();
    // Whether fit() will leave the folder as it is; see RunSummary.
    bool nothing_left() const { return summary_.nothing_left; }
    // May be called from a signal handler: the run saves a checkpoint after the step at hand and stops. What asked for
    // it stands in the summary; the text must last.
    static void request_stop(const char* by = "request") {
        stopped_by_ = by;
        stop_requested_ = true;
    }
    Setup& setup() { return setup_; }
    // Has failed steps explained, as by `explain` of diagnose/record_failure.h.
    void set_diagnosis(ExplainFailure explain) { recovery_.set_diagnosis(std::move(explain)); }

  private:
    // The loop.
    void train_epoch();
    void follow_plan();
    bool ended() const { return progress_.step >= setup_.total_steps; }
    bool validation_due() const;
    void validate();
    void save();
    // Until every step has been reported: before anything that shows or keeps where the run stands.
    void drain();
    void handle_report(ReportedStep step);
    void log_step(const ReportedStep& step);
    void log_findings(const Findings& findings);
    void note_full_log();
    void note_folder_changes();
    // What is done about an instability.
    void handle_instability(const Instability& found);
    void recover();
    void record_failure(const RunFailure& failure);
    std::string computed_precision() const;

    // What of a run is kept, and how it is gone on with (trainer_state.cpp).
    void resume_from(const std::filesystem::path& folder);
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
    std::optional<GraphedStep> step_;
    Monitor monitor_;
    Stability stability_;
    PrecisionPlan plan_;
    RecoveryPolicy recovery_;
    std::optional<Instability> unstable_;  // until it is dealt with
    Progress progress_;                    // of what the device was given
    Observer* observer_ = nullptr;         // while fit() runs
    std::optional<RunFolder> folder_;
    std::vector<std::string> notes_;
    RunSummary summary_;
    EarlierTotals earlier_;
    CpuUse used_before_;
    bool noted_full_log_ = false;
    std::int64_t logged_steps_ = 0;  // that metrics.jsonl holds
    std::int64_t saved_at_ = -1;
    static inline std::atomic<bool> stop_requested_ = false;
    static inline std::atomic<const char*> stopped_by_ = "";
};

}  // namespace invar
