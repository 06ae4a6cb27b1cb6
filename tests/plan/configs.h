// Configurations of the repository, by the words of a command line.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "invar/config/config.h"

namespace invar {

inline Config config_of(const std::string& experiment, const std::vector<std::string>& overrides) {
    ConfigSources sources;
    sources.config_dirs = {std::filesystem::path(INVAR_SOURCE_DIR) / "configs"};
    return load_config(experiment, overrides, sources);
}

}  // namespace invar
