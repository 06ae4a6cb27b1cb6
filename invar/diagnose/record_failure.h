// What a run hands the step that broke it: kept in RUN/failure for `invar diagnose RUN`, and explained at once.
#pragma once

#include "invar/diagnose/failure.h"
#include "invar/train/recovery_policy.h"

namespace invar {

// Saves the step, then finds its first bad operation. Leaves the setup as it was but for gradients.
Finding record_failure(Setup& setup, const FailedStep& step);
// The same as a trainer wants it: Trainer::set_diagnosis(explain). Ranks, of which none has the whole step to replay,
// keep the part that failed.
Explanation explain(Setup& setup, const FailedStep& step);

// For an error message or a log: "linear in fc1, forward, gave Inf in f16; the precision is to blame".
std::string one_line(const Finding& finding);

}  // namespace invar
