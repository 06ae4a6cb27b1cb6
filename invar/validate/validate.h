// validate: trains the same network in FP32 and in each candidate precision, from the same weights on the same batches,
// and decides by the difference of a metric whether the candidate can be trusted.
#pragma once

#include <filesystem>
#include <functional>
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
    // Goes on with the newest validation of this name: runs that are finished stay, one that was interrupted goes on
    // from its last checkpoint, and what is missing is trained.
    bool resume = false;
    std::function<void(const std::filesystem::path& run)> kept = {};  // is told of runs that stay as they are
    // Is told of a candidate's run that broke and is trained again, up to there, to find out why.
    std::function<void(const std::filesystem::path& run)> explains = {};
};
// For resume: what of it was not asked for (0 seeds, no candidates, no metric, no margin), as it was before.
void take_up(ValidateOptions& options, bool margin_asked);

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

// Somebody has asked for an end before the verdict, by this signal.
class ValidationStopped : public Error {
  public:
    ValidationStopped(int number, const std::string& text) : Error(text), signal(number) {}
    int signal;
};

// Runs everything, each run in a folder of its own under output_dir/exp_name (exp_name_2, ... where that is taken), or
// what is missing there of a validation to resume, whose configuration must be the same, with no fewer seeds. A
// candidate whose training breaks down fails with the reason; what has nothing to do with precision (bad options, a
// full disk, an interruption) is thrown. Every run of the baseline must be shown to have learned (learned.h); where one
// is not, no candidate is trained any more, and the verdict is INVALID.
Validation validate(const ValidateOptions& options, Observer& observer);

}  // namespace invar
