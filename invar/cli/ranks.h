// The program as one of several processes that train together: the first one speaks, the others write a log each.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "invar/dist/transport.h"

namespace invar::cli {

// First thing: finds out whether a launcher started several processes, and mutes those behind the first one: what they
// print is held back.
void begin_as_rank();
// Throws a UsageError where `command` is for one process, and there are several.
void check_command_for_ranks(const std::string& command);
// The program ends by itself. Where a library ends it before, what a muted rank has printed so far is shown after all.
void mark_normal_end();
// What to do where a rank is lost.
void set_advice_on_lost_rank(std::function<std::string()> advice);
std::string advice_on_lost_rank(const RankError& error);
// From here on what this rank writes to standard error reaches the launcher, whichever rank it is.
void unmute();
// Rank 1 reports where the first one is lost, and cannot.
void unmute_if_first_is_lost(const RankError& error);
// Before the ranks are joined an error is of this one alone, unless the first one has it too, which reports it anyway.
// A rank behind it waits to see whether the first one of its machine is well, and then reports for itself. Returns who
// reports, "" where nobody but the first one does.
std::string unmute_if_failed_alone();
// A launcher ends all ranks with the first one that fails: a muted rank gives the first one time to report.
void wait_for_first_to_report();
// Whether what is printed comes to a terminal in the end.
bool launcher_has_terminal();
// What a rank behind the first one has printed and will print goes into logs/rank-N.log of the run.
void log_into(const std::filesystem::path& run);
// The end in order, all ranks together.
void end_as_rank();

}  // namespace invar::cli
