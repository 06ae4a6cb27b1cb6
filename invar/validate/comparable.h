// Whether runs may be compared at all.
#pragma once

#include "invar/validate/run_files.h"

namespace invar {

// Why two of these are one run, which must not count twice: the same log, or the beginning of one. "" where they are
// runs of their own.
std::string why_one_run(const FoundRun& a, const FoundRun& b);
// Why these runs do not end at the same point, so that their last values say little of each other; "" where they do.
std::string why_unequal(const Comparison& comparison);

}  // namespace invar
