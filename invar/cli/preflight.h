// `invar check` under a launcher: whether all ranks have what a run needs, and reach each other.
#pragma once

#include "invar/cli/common.h"

namespace invar::cli {

// `exit_code` is 1 from here on, unless all is well: a rank that is lost is a check that failed.
int preflight_command(const ConfigArguments& arguments, bool json, int& exit_code);

}  // namespace invar::cli
