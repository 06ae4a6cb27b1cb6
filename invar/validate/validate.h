// validate: trains the same network in FP32 and in each candidate precision, from the same weights on the same batches,
// and decides by the difference of a metric whether the candidate can be trusted.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "invar/train/trainer.h"
#include "invar/validate/comparison.h"

namespace invar {

struct ValidateOptions {
    std::shared_ptr<const Task> task = {};  // none: that of the configuration
    Config base;  // its precision is set aside: the baseline is FP32, the candidates are those named here
    std::vector<std::string> candidates;  // also kConfigured; none: default_candidates(base)
    int seeds = 1;                        // runs a precision, with base.seed, base.seed + 1, ...
    std::string metric = {};  // a metric of the task: val_hmean, val/hmean or hmean; none: what it is compared by
    Limits limits;
};

// The candidate that is trained as the configuration says, with its precision_schedule and overrides.
inline constexpr const char* kConfigured = "configured";
// Whether that is something no single precision could stand for: a schedule, or modules of an FP32 run in lower ones.
bool is_of_its_own(const Config& base);
// That where it is so, else the precision that the configuration trains in; FP16 and BF16 where that is FP32.
std::vector<std::string> default_candidates(const Config& base);
// Why a run would be FP32 from its first step to its last, and agree perfectly with the baseline; "" where it is not.
std::string why_fp32(const std::shared_ptr<const Task>& task, const Config& config);
// What a run in one of the candidates is trained with.
Config candidate_config(const Config& base, const std::string& candidate);

struct Validation : Comparison {
    std::filesystem::path folder;
    ValidateOptions options;  // with its task
    int threads = 0;
    std::string device;  // what trained, as it describes itself; "" for the CPU
};

// Runs everything, each run in a folder of its own under output_dir/exp_name (exp_name_2, ... where that is taken). A
// candidate whose training breaks down fails with the reason; what has nothing to do with precision (bad options, a
// full disk, an interruption) is thrown. Every run of the baseline must be shown to have learned (learned.h); where one
// is not, no candidate is trained any more, and the verdict is INVALID.
Validation validate(const ValidateOptions& options, Observer& observer);

}  // namespace invar
