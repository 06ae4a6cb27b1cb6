// The configuration of a run that exists: its config.yaml, or where that is missing, cut off or no YAML any more, the
// one inside its newest whole checkpoint.
#pragma once

#include <filesystem>
#include <string>

#include "invar/config/config.h"

namespace invar {

// What a run folder's config.yaml holds. A last line says that it is whole, since a part of YAML is YAML too.
std::string run_config_text(const Config& config);

// What has become of config.yaml: "is empty", "is cut off ..."; "" where it is as it was written, or as somebody edited
// it.
std::string run_config_damage(const std::filesystem::path& folder);

struct RunConfig {
    std::string yaml;
    std::string note;  // one line where it is not that of config.yaml: why, and from which file it is
};

// Throws UsageError where there is neither.
RunConfig read_run_config(const std::filesystem::path& folder);

}  // namespace invar
