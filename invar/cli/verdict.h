// How commands that end with a verdict show it: a table, the reason, where the reports lie, and the exit code.
#pragma once

#include "invar/io/jsonl.h"
#include "invar/report/html.h"
#include "invar/validate/validate.h"

namespace invar::cli {

inline constexpr const char* kMarginHelp =
    "Difference that does not matter, twice of which is harm: a share of the baseline's mean, percentage points (pp), "
    "or "
    "abs: in the metric's own unit";

// Prints the comparison, as text or as JSON lines (`more` goes into the last of them), and returns the exit code:
// 0 PASS, 3 MARGINAL, 1 FAIL, 4 INVALID. Files that were not written are empty paths.
int show_verdict(const Comparison& comparison, const ReportFiles& files, bool json, JsonLine more = {});

// Validates, writes the reports, remembers the verdict and shows it. `config` and `overrides` are the words that would
// do the same again.
int run_validation(ValidateOptions options, const std::string& config, const std::vector<std::string>& overrides,
                   bool json);

}  // namespace invar::cli
