// The lines a run begins with: in which precision it computes and why that is safe, what the device does itself, and
// what is trained on what.
#pragma once

#include <string>

#include "invar/train/setup.h"

namespace invar::cli {

// "[AMP] Using FP16 mixed precision (level O1)" and what follows from it; several lines, without a newline at the end.
std::string amp_lines(const Setup& setup);
// "no GPU is used: REASON", where the device was left to us and is the CPU; for commands that do not begin with those
// lines.
void say_why_on_cpu(const Config& config);
// What a task remarks, a line each; warnings on standard error.
void say_remarks(const std::vector<Remark>& remarks);
// "shared by 2 ranks (Open MPI v4.1.4, zero1)".
std::string shared_by(const Setup& setup);
std::string run_lines(Setup& setup, const Config& config);

}  // namespace invar::cli
