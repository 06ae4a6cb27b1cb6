// The lines a run begins with: in which precision it computes and why that is safe, what the device does itself, and
// what is trained on what.
#pragma once

#include <string>

#include "invar/train/setup.h"

namespace invar {

// "[AMP] Using FP16 mixed precision (level O1)" and what follows from it; several lines, without a newline at the end.
std::string amp_lines(const Setup& setup);
std::string run_lines(Setup& setup, const Config& config);

}  // namespace invar
