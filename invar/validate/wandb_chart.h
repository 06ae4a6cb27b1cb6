// The CSV that W&B exports of a chart: a column of positions (Step), then a run a column as `name - metric`, each
// perhaps followed by `name - metric__MIN` and `__MAX`, which are passed over.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "invar/validate/run_log.h"

namespace invar {

// By the line of its column names, with which the text begins.
bool is_wandb_chart(std::string_view text);
// The names of its runs, in the order of their columns.
std::vector<std::string> runs_in_chart(std::string_view text);
// The log of one of them. Throws IoError for what is damaged, UsageError where there is no such run.
RunLog parse_chart_run(std::string_view text, const std::string& run, const std::string& source);

}  // namespace invar
