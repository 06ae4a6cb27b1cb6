// Runs that W&B keeps on the disk: wandb/offline-run-DATE-ID with its history in run-ID.wandb, or in
// wandb-history.jsonl as earlier versions wrote it, and the last values in files/wandb-summary.json.
#pragma once

#include <filesystem>

#include "invar/validate/run_files.h"

namespace invar {

bool is_wandb_run(const std::filesystem::path& folder);
// Of such a folder, or of a file *.wandb alone. Throws IoError.
FoundRun read_wandb_run(const std::filesystem::path& path);

// A file *.wandb: records in the blocks of LevelDB's logs, each with a checksum.
FoundRun parse_wandb_file(std::string_view bytes, const std::string& source);

}  // namespace invar
