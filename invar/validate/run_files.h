// Runs as they lie on a disk, whoever trained them: which files are meant by a path, and what is known of each run.
#pragma once

#include "invar/validate/comparison.h"

namespace invar {

// The runs a user may mean by a path: a log file, a run folder (ours, Lightning's, or any that holds metrics.jsonl,
// metrics.csv or log_history in trainer_state.json; TensorBoard's, W&B's or MLflow's), or a folder that holds several
// of these, in the order of their names. Of a chart that W&B exports every run is one, "export.csv:NAME"; NAME may be a
// pattern. The checkpoints of one run (Hugging Face's checkpoint-500, checkpoint-1000, ...) are one run: the last
// counts.
std::vector<std::filesystem::path> find_runs(const std::filesystem::path& path);
// The same for several paths, together.
std::vector<std::filesystem::path> find_runs(const std::vector<std::string>& paths);

// A run's log with what lies beside it: summary.json becomes series of one value, and names precision and seed.
struct FoundRun {
    RunLog log;
    std::string precision;       // all of them where it changed on the way: "32-true then bf16-mixed"
    std::string hardly_in_last;  // a warning where the last of those had few of the steps
    std::optional<std::int64_t> seed;
    std::string not_finite;        // what the summary says of NaN, Inf or an early end; "" where all is well
    std::string unfinished;        // why it is not a whole run; "" where it is, or where nothing says so
    std::filesystem::path config;  // our own config.yaml; empty where there is none
    std::vector<std::string> recoveries;
    double max_grad_norm = kUnknown;  // of all steps, where its summary knows it
    std::size_t digest = 0;           // of all that was read
};
FoundRun read_run(const std::filesystem::path& path);
RunRecord record_of(const FoundRun& run, const std::string& metric, Better direction, Take take);

}  // namespace invar
