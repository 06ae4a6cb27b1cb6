// The program as one of several processes that train together: the first one speaks, the others write a log each.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "invar/dist/transport.h"

namespace invar::cli {

// First thing: finds out whether a launcher started several, and keeps what those behind the first one say.
void begin_as_rank();
// Throws a UsageError where `command` is for one process, and there are several.
void check_together(const std::string& command);
// The program ends by itself. Where a library ends it before, what a rank has said so far is heard after all.
void ends_in_order();
// What to do where a rank is lost.
void advise_on_loss(std::function<std::string()> advice);
std::string advice_on_loss(const RankError& error);
// What this rank says from here on is heard, whichever it is.
void speak_up();
// The second rank is heard where the first one is lost, and cannot say so.
void speak_for_the_first(const RankError& error);
// Before the ranks are joined an error is of this one alone, unless the first one has it too. That one is heard anyway;
// a rank behind it speaks up where the first one of its machine is well, and waits. Returns who speaks, "" for nobody.
std::string speak_up_by_oneself();
// Whether what is said comes to a terminal in the end.
bool launcher_has_terminal();
// What a rank behind the first one has said and will say goes into logs/rank-N.log of the run.
void log_into(const std::filesystem::path& run);
// The end in order, all ranks together.
void end_as_rank();

}  // namespace invar::cli
