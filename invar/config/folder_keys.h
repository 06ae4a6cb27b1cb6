// What a folder of weights says about the keys of a run, taken together with what files and the command line say.
#pragma once

#include <vector>

#include "invar/config/keys.h"

namespace invar {

// The settings of files and of the command line with the folder's between them: what it decides stands over the files,
// and what it only proposes under everything. Where init_from names no folder, or nobody knows about folders, they stay
// as they are. Throws UsageError, with both values, where the command line asks for another model than the folder's.
std::vector<Setting> with_folder_keys(std::vector<Setting> files, const std::vector<Setting>& words,
                                      const ConfigSources& sources);

}  // namespace invar
