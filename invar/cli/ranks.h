// The program as one of several processes that train together: the first one speaks, the others write a log each.
#pragma once

#include <filesystem>
#include <string>

namespace invar::cli {

// First thing: finds out whether a launcher started several, and keeps what those behind the first one say. Throws a
// UsageError where `command` is for one process.
void begin_as_rank(const std::string& command);
// What a rank behind the first one has said and will say goes into logs/rank-N.log of the run.
void log_into(const std::filesystem::path& run);
// The end in order, all ranks together.
void end_as_rank();

}  // namespace invar::cli
