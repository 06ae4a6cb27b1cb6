// validate: trains the same network in FP32 and in each candidate precision, from the same weights on the same batches,
// and decides by the difference of a metric whether the candidate can be trusted.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "invar/train/trainer.h"

namespace invar {

// Ordered: the worse is the greater.
enum class Verdict : std::uint8_t { pass, marginal, fail };
std::string_view name_of(Verdict verdict);  // "PASS", "MARGINAL", "FAIL"

struct ValidateOptions {
    Config base;  // its precision is set aside: the baseline is FP32, the candidates are those named here
    std::vector<std::string> candidates = {"16-mixed", "bf16-mixed"};
    int seeds = 1;                        // runs a precision, with base.seed, base.seed + 1, ...
    std::string metric = "val_accuracy";  // or "val_loss"
    double pass = 0.01;                   // relative differences below it pass,
    double marginal = 0.02;               // below this are marginal, all others fail
};

// One precision: its runs, what they come to over the seeds, and how that compares with FP32.
struct Arm {
    std::string precision;         // canonical name
    std::vector<RunSummary> runs;  // one a seed, in order; fewer where one failed
    std::string failure;           // why there is nothing to compare; "" where there is

    // Means over the runs, unless said otherwise.
    double metric = 0.0;
    double val_accuracy = 0.0;
    double val_loss = 0.0;
    double train_loss = 0.0;
    double train_seconds = 0.0;
    double samples_per_s = 0.0;
    double max_grad_norm = 0.0;  // the largest of all runs
    double final_scale = 1.0;    // of the last run
    std::int64_t skipped = 0;    // of all runs together
    std::int64_t steps = 0;      // of all runs together
    bool all_finite = true;
    MemoryStats memory;  // of the run that took most

    // Against the baseline; of the baseline itself all neutral.
    double difference = 0.0;  // (metric - baseline) / |baseline|
    double speed_up = 1.0;
    double grad_norm_ratio = 1.0;
    Verdict verdict = Verdict::pass;
    std::string reason;

    bool failed() const { return !failure.empty(); }
};

struct Validation {
    std::filesystem::path folder;
    ValidateOptions options;
    Arm baseline;
    std::vector<Arm> candidates;
    Verdict verdict = Verdict::pass;  // the worst of the candidates'
    std::string reason;
    int threads = 0;
};

// The rule: below `pass`, below `marginal`, or neither. A difference that is not a number fails.
Verdict judge(double difference, double pass, double marginal);

// Fills in an arm's figures from its runs, and its comparison and verdict from the baseline.
void sum_up(Arm& arm, const std::string& metric);
void compare(Arm& arm, const Arm& baseline, const ValidateOptions& options);
// The overall verdict, from those of the candidates.
void conclude(Validation& validation);

// Runs everything, each run in a folder of its own under output_dir/exp_name (exp_name_2, ... where that is taken). A
// candidate whose training breaks down fails with the reason; what has nothing to do with precision (bad options, a
// full disk, an interruption) is thrown.
Validation validate(const ValidateOptions& options, Observer& observer);

}  // namespace invar
