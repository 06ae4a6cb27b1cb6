// RunSummary: a run as a whole, as fit() returns it and summary.json holds it.
#pragma once

#include <filesystem>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "invar/config/config.h"
#include "invar/core/memory.h"
#include "invar/io/jsonl.h"
#include "invar/tasks/metric.h"
#include "invar/train/in_flight.h"
#include "invar/train/remedy.h"
#include "invar/train/speed.h"

namespace invar {

// From this step on, counted from 0.
struct PrecisionSpan {
    std::int64_t step = 0;
    std::string precision;
};

// The checkpoint of the validation that was best.
struct BestCheckpoint {
    std::int64_t step = 0;
    std::string monitor;  // "val_loss"
    double value = 0.0;
    bool operator==(const BestCheckpoint&) const = default;
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
    double samples_per_s = 0.0;      // without the first steps, in which libraries choose their algorithms
    Rate rate;                       // the same in the task's unit
    std::int64_t unrated_steps = 0;  // how many those were, of this process
    MemoryStats memory;              // peaks
    double max_grad_norm = 0.0;      // of all steps where it was finite
    double waited_share = 0.0;       // of the time its threads could have run, others did; NaN where nothing is known
    std::vector<PrecisionSpan> precisions;
    std::vector<Recovery> recoveries;
    bool losses_finite = true;                      // of all steps
    bool all_finite = true;                         // and the weights at the end
    std::optional<BestCheckpoint> best_checkpoint;  // where one is kept; see BestCheckpoints
    std::string stopped_early;                      // why a callback has ended the run; "" where none has
    // The run was finished before, and no step was left to train: nothing in its folder was changed.
    bool nothing_left = false;
    std::vector<std::string> not_applied;  // key=value that was asked for then, and came too late
};

// What summary.json holds.
JsonLine summary_line(const Config& config, const RunSummary& summary, const Device& device);
// The same read back; no object where the file says nothing.
nlohmann::json read_summary(const std::filesystem::path& file);

// What the processes before this one took to train the run.
struct EarlierTotals {
    Speed speed;
    double waited_share = std::numeric_limits<double>::quiet_NaN();
    MemoryStats memory;
    // From the summary that was written just before the checkpoint of this step. Where that is of another step, since
    // the newest checkpoint was damaged or not written any more, the time is taken in proportion. Throws where the
    // summary lacks it.
    static EarlierTotals read(const nlohmann::json& summary, std::int64_t step);
    // Each process's share by the time it took.
    double waited_share_with(double now, double seconds) const;
    MemoryStats memory_with(MemoryStats now) const;
};

}  // namespace invar
