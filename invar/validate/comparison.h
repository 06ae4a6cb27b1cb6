// A comparison: a baseline and its candidates, each with the runs it was given, what they come to, and the verdict.
// Validation makes the runs itself; `invar compare` takes them from anywhere. Figures that are not known are NaN.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "invar/validate/metric_names.h"
#include "invar/validate/run_log.h"
#include "invar/validate/statistics.h"

namespace invar {

inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// What is known of one finished run.
struct RunRecord {
    std::string name;              // its path, as it was given
    std::filesystem::path folder;  // of a run of ours, empty for others
    std::string precision;
    std::optional<std::int64_t> seed;
    double metric = kUnknown;
    double val_loss = kUnknown;
    double train_loss = kUnknown;
    double train_seconds = kUnknown;
    double samples_per_s = kUnknown;
    double tokens_per_s = kUnknown, mfu = kUnknown;  // of a language model, as its run says at the end
    double max_grad_norm = kUnknown;                 // of those that were finite
    double final_scale = kUnknown;
    double skipped = kUnknown;
    double steps = kUnknown;
    double epochs = kUnknown;
    double samples = kUnknown;                           // that it was validated on
    double waited_share = kUnknown;                      // of the time its threads could have run, others did
    std::string not_finite;                              // where the first NaN or Inf stands, "" where there is none
    std::string not_learned;                             // why it is not shown to have learned, "" where it is
    std::vector<std::string> recoveries;                 // what the run had to be saved from, and how
    std::vector<std::pair<std::string, double>> memory;  // peak bytes by purpose, "total" last
    Series metric_curve, loss, scale, grad_norm;         // no scale where the loss is not scaled
    bool gradients_watched = false;                      // whether it looked at gradients one by one
    std::vector<std::pair<std::string, double>> small_gradients;  // parameters, and the least norm that was noted

    double memory_of(std::string_view purpose) const;
};

// The runs of one configuration, what they come to, and how that compares with the baseline.
struct Arm {
    std::string name;  // canonical precision, or what the user calls it
    std::vector<RunRecord> runs;
    std::string failure;         // why there is nothing to compare; "" where there is
    bool names_command = false;  // failure ends with the command that tells more
    std::string broke = {};      // what went wrong in it first, where somebody has looked

    // Means over the runs, unless said otherwise.
    double metric = kUnknown;
    double val_loss = kUnknown;
    double train_loss = kUnknown;
    double train_seconds = kUnknown;
    double samples_per_s = kUnknown;  // the harmonic mean, which agrees with the times
    double tokens_per_s = kUnknown, mfu = kUnknown;
    double max_grad_norm = kUnknown;  // the largest of all runs
    double final_scale = kUnknown;    // of the last run
    double skipped = kUnknown;
    double steps = kUnknown;
    std::vector<std::pair<std::string, double>> memory;  // of the run that took most
    double waited_share = kUnknown;                      // the largest of all runs

    // Against the baseline; of the baseline itself all neutral.
    Equivalence equivalence;
    double speed_up = 1.0;  // unknown where it was disturbed
    std::string disturbed;  // what makes the times of this arm or of the baseline worthless; "" where nothing does
    double grad_norm_ratio = 1.0;
    Verdict verdict = Verdict::pass;
    std::string reason;

    bool failed() const { return !failure.empty(); }
    bool all_finite() const;
    std::size_t recoveries() const;  // of all runs together
    double memory_of(std::string_view purpose) const;
    Outcomes outcomes() const;
};

struct Comparison {
    std::string metric;
    Better direction = Better::higher;
    bool percent = false;  // a share, which people speak of in percent
    Limits limits;
    std::int64_t samples = 0;         // that the metric is a share of; 0 where it is none, or where nothing says so
    std::optional<Noise> noise = {};  // of the baseline, where it has runs
    Arm baseline;
    std::vector<Arm> candidates;
    Verdict verdict = Verdict::pass;  // the worst of the candidates'
    std::string reason;
    bool one_go = false;                // whether all runs were trained one after the other, by this process
    std::vector<std::string> warnings;  // what a reader should know before trusting it
};

// How many samples the metric is a share of, by what the runs say; 0 where it is no such share.
std::int64_t samples_behind(const Comparison& comparison);
// Fills in an arm's figures from its runs; its comparison and verdict from the baseline; the overall verdict.
void sum_up(Arm& arm);
void compare(Arm& arm, const Comparison& comparison);
void conclude(Comparison& comparison);
// All of these, for every arm.
void decide(Comparison& comparison);

enum class Take { last, best };  // which value of its curve stands for a run
// What a log has to say about `metric`, which must be one of its series.
RunRecord record_of(const RunLog& log, const std::string& metric, Better direction, Take take);

}  // namespace invar
