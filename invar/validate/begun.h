// What a validation has begun: validation.json in its folder, by which an interrupted or finished one is known again
// and goes on with the runs that it has.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "invar/validate/learned.h"
#include "invar/validate/validate.h"

namespace invar {

struct BegunValidation {
    std::string config;  // as it was asked for, as YAML
    std::vector<std::string> candidates;
    int seeds = 1;
    std::string metric, margin;
    std::string version;                       // of Invar
    std::map<std::string, Start> starts;       // how the baselines did before their first step, by their folders' names
    std::map<std::string, std::string> broke;  // what went wrong first in runs that were looked into, by their names
    std::map<int, Verdict> judged;             // the verdicts so far, by the number of seeds

    // Replaces the file as a whole: a validation that is killed has the old one or the new one.
    void write(const std::filesystem::path& folder) const;
    // `metrics`: the task's. Throws where the file is missing or damaged.
    static BegunValidation read(const std::filesystem::path& folder, const std::vector<Metric>& metrics);
};

// Whether a validation was begun in it.
bool is_validation(const std::filesystem::path& folder);
// The newest validation under output_dir/exp_name, exp_name_2, ...; throws UsageError where there is none.
std::filesystem::path find_validation(const Config& base);

// A new folder for one, of the first of these names that is free.
std::filesystem::path make_validation_folder(const Config& base);

// Throws UsageError where `options` are not those of the validation that was begun in the folder, or with fewer seeds
// or candidates.
void check_same(const BegunValidation& begun, const ValidateOptions& options, const std::filesystem::path& folder);

// "optimizer.lr was 0.01 and is 0.02", of all keys but `kept`; "" where nothing differs.
std::string what_differs(const Config& was, const Config& is, const std::vector<std::string>& kept);

// How far a run of a validation has come.
struct BegunRun {
    enum class State { none, begun, unstable, finished } state = State::none;
    std::string failure;         // of an unstable one
    bool names_command = false;  // failure ends with the command that tells more
    std::string stopped_early;   // why a finished one ended before its time; "" where it did not
    std::int64_t steps = 0;
};
// Throws UsageError where the folder holds a run of another configuration.
BegunRun look_at_run(const std::filesystem::path& folder, const Config& wanted);

}  // namespace invar
