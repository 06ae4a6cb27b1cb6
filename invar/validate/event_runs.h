// Runs that are logged for TensorBoard: the event files of a folder are one run, as TensorBoard has it.
#pragma once

#include <filesystem>

#include "invar/validate/run_log.h"

namespace invar {

// Also a folder whose event files lie in train/ beside validation/, val/, eval/ or test/, as Keras writes them.
bool is_event_run(const std::filesystem::path& folder);
// Of such a folder or of one event file. Tags are the names of series; those of the folders of a split have its name in
// front: validation/loss. Throws IoError.
RunLog read_event_run(const std::filesystem::path& path);

}  // namespace invar
