// The folder a run writes: config.yaml, metrics.jsonl, TensorBoard events, checkpoints/, pictures/, summary.json.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "invar/config/config.h"
#include "invar/core/memory.h"
#include "invar/io/checkpoint.h"
#include "invar/io/events.h"
#include "invar/io/jsonl.h"
#include "invar/tasks/metric.h"
#include "invar/train/alerts.h"
#include "invar/train/remedy.h"
#include "invar/train/speed.h"
#include "invar/train/wandb.h"

namespace invar {

// What a logged step has to say.
struct StepMetrics {
    std::int64_t step = 0;  // 1 is the first
    std::int64_t total_steps = 0;
    std::int64_t epoch = 0;  // 1 is the first
    bool due = true;  // by trainer.log_every_n_steps; others are logged since they were skipped or moved the scale
    double loss = 0.0;
    double lr = 0.0;
    double grad_norm = 0.0;
    std::optional<double> grad_norm_clipped;  // where gradients are clipped by their norm
    std::string precision;
    double scale = 1.0;
    std::int64_t growth_tracker = 0;
    bool skipped_now = false;
    std::string skip_reason;   // of this step; empty where it was taken
    std::int64_t skipped = 0;  // so far
    double samples_per_s = 0.0;
    Rate rate;
    MemoryStats memory;
    std::int64_t host_bytes = 0;
    std::optional<int> gpu_utilization;  // percent
};

struct ValidationMetrics {
    std::int64_t step = 0;
    std::int64_t epoch = 0;  // of that step
    std::vector<Measured> metrics;
};

// What the monitors measured at a step; what was not due is absent.
struct MonitorMetrics {
    std::int64_t step = 0;
    std::int64_t epoch = 0;
    std::vector<std::pair<std::string, double>> grad_norms;        // by module
    std::vector<std::pair<std::string, double>> small_grad_norms;  // of parameters, below monitor.grad_norm_low
    std::vector<std::pair<std::string, double>> activations;       // the largest magnitude, by module
    std::optional<MemoryStats> memory;
    std::optional<double> step_ms, samples_per_s;  // since the last such record
};

// Where a run goes on.
struct ResumePoint {
    std::int64_t step = 0;
    bool validated = false;         // the validation at this step counts; otherwise it is due
    std::int64_t logged_steps = 0;  // how many steps its log should hold until then; fewer are worth a note
};

class RunFolder {
  public:
    // A new run: output_dir/exp_name, or exp_name_2, _3, ... where that is taken, also by a start at the same moment. A
    // folder that holds nothing yet, as when its run was killed at once, is not taken.
    static RunFolder create(const Config& config);
    // An old one, to go on with; the configuration may have been changed by overrides.
    static RunFolder reopen(const std::filesystem::path& folder, FolderLock lock, const Config& config,
                            const ResumePoint& from);

    // One that another process writes, for those who train with it: nothing that is said to it is written.
    static RunFolder of_another(const std::filesystem::path& folder, const Config& config);

    const std::filesystem::path& path() const { return path_; }
    const CheckpointFolder& checkpoints() const { return checkpoints_; }
    void log(const StepMetrics& metrics);
    void log(const ValidationMetrics& metrics);
    void log(const MonitorMetrics& metrics);
    void log(const Alert& alert);
    void log(const Recovery& recovery, std::int64_t epoch);
    // Takes back what was logged after this step, the recoveries at it included: it is about to be repeated.
    void rewind(const ResumePoint& to);
    // What the validation at this step came to, where the log of a resumed run has it: it stays as it is, and when it
    // is logged again, no second line is written.
    std::optional<std::vector<Measured>> logged_validation(std::int64_t step, const std::vector<Metric>& metrics) const;
    void write_summary(const JsonLine& summary) const;
    // Everything logged is on the disk, or it throws. What a checkpoint rests on must be before the checkpoint is.
    // Files that somebody has deleted under the run are written anew; one that was replaced is an IoError.
    void sync();
    // Takes the folder back, with all that this run has written into it.
    void discard() noexcept;
    // Why something that was logged is not in its file yet, but waits for room; "" where all is.
    const std::string& problem() const;
    // Whether the folder was renamed while the run was writing; it goes on in the renamed one. Throws IoError where it
    // was deleted.
    bool follow();
    // What was found wrong with the folder and mended since this was asked last, in one line each.
    std::vector<std::string> take_notes() { return std::exchange(notes_, {}); }

    // Whether a run has been writing here.
    static bool is_run(const std::filesystem::path& folder);
    static std::filesystem::path config_of(const std::filesystem::path& folder) { return folder / "config.yaml"; }
    static std::filesystem::path summary_of(const std::filesystem::path& folder) { return folder / "summary.json"; }
    static std::filesystem::path metrics_of(const std::filesystem::path& folder) { return folder / "metrics.jsonl"; }
    // What the task shows of the model at the end, where it shows anything: 1.jpg, 2.jpg, ...
    static std::filesystem::path pictures_of(const std::filesystem::path& folder) { return folder / "pictures"; }
    static std::filesystem::path checkpoints_of(const std::filesystem::path& folder) { return folder / "checkpoints"; }

  private:
    RunFolder(std::filesystem::path path, const Config& config);
    RunFolder(std::filesystem::path path, FolderLock lock, const Config& config,
              const std::optional<ResumePoint>& resumed);
    // One number for TensorBoard and Weights & Biases, as far as they are wanted; flush_scalars() ends a record.
    void scalar(const std::string& tag, std::int64_t step, double value);
    void flush_scalars();
    void keep_files();
    void keep_file(AppendFile& file);
    // How many logged steps are left. The validation at the step stays where it is not due again, or where asked for.
    std::int64_t drop_lines_after(const ResumePoint& point, bool keep_validation);
    std::filesystem::path metrics_path() const { return metrics_of(path_); }

    std::filesystem::path path_;
    std::optional<FolderLock> lock_;  // none: it is another's to write
    std::string config_text_;
    std::vector<std::string> notes_;
    int keep_;
    CheckpointFolder checkpoints_;
    std::optional<JsonlFile> metrics_;
    nlohmann::json validation_ = nullptr;  // its line at the step that this process went on from
    std::unique_ptr<EventFile> events_;
    std::unique_ptr<WandbFile> wandb_;
};

JsonLine memory_line(const std::array<std::int64_t, kPurposes>& bytes, std::int64_t total);

}  // namespace invar
