// A checkpoint of a run as people name it: "last", "best", or a file.
#pragma once

#include <filesystem>

#include "invar/io/checkpoint.h"

namespace invar {

// last: the newest that is whole. best: the one that summary.json names, which must be whole. Otherwise the path of a
// checkpoint, of this run or of one like it. Throws UsageError where there is no such checkpoint; for `last` alone
// there may be none yet.
LatestCheckpoint find_checkpoint(const std::filesystem::path& run, const std::string& which);
// The same for who needs one: an Error where the run has none that is whole.
LatestCheckpoint find_whole_checkpoint(const std::filesystem::path& run, const std::string& which);

}  // namespace invar
