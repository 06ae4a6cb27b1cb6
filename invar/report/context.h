// What a report says besides the figures: its title, the surroundings of the runs, and the commands that go back to the
// baseline and that repeat it all.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "invar/validate/validate.h"

namespace invar {

struct ReportContext {
    std::string title;
    std::string baseline;                                    // what tables call it: "FP32"
    std::vector<std::pair<std::string, std::string>> facts;  // "Date" and "2025-10-14 12:00 UTC", ...
    std::string validated_on;                                // "full validation set"; "" where that is not known
    std::string rollback;                                    // a shell command, "" where we know none
    std::string rollback_note;                               // a sentence or two on it
    std::string reproduce;                                   // a shell command
    std::string further;                                     // the command that adds seeds where some would decide
    std::string settings;                                    // YAML, "" where there is none
    MonitorConfig monitor;                                   // which gradients are large, and which small
};

// config and overrides as they were given on the command line. The machine and the moment are those of the call.
ReportContext validation_context(const Validation& validation, const std::string& config,
                                 const std::vector<std::string>& overrides);
// The command that goes on with a validation of these options, with so many seeds.
std::string resume_command(const ValidateOptions& options, const std::string& config,
                           const std::vector<std::string>& overrides, std::int64_t seeds);
// For runs that others made; `words` are those after `invar compare`, `config` the baseline's, where it is one of ours.
ReportContext comparison_context(const Comparison& comparison, const std::vector<std::string>& words,
                                 const std::filesystem::path& config);

}  // namespace invar
