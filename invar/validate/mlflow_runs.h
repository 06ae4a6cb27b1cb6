// Runs as MLflow keeps them in files: mlruns/EXPERIMENT/RUN with meta.yaml, params/ and metrics/, a file a metric.
#pragma once

#include <filesystem>

#include "invar/validate/run_files.h"

namespace invar {

// Runs that were deleted, which MLflow only marks, are none.
bool is_mlflow_run(const std::filesystem::path& folder);
// The run that a path means: itself, or the run whose metrics, or one of whose metrics, it is.
std::filesystem::path mlflow_run_of(const std::filesystem::path& path);
// Log, seed, and whether it came to its end. Metrics in folders are named with them: val/loss. Throws IoError.
FoundRun read_mlflow_run(const std::filesystem::path& folder);

// The values of one metric from its lines "timestamp value step"; a later value replaces one of the same step. Where
// all steps are the same, nobody gave any, and values are counted.
Series parse_mlflow_metric(std::string_view text, const std::string& source, std::string& note);

}  // namespace invar
