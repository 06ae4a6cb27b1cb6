// Folders as Hugging Face's library saves models: config.json, weights, and for some tokenizer.json.
#pragma once

#include <filesystem>
#include <vector>

#include "invar/config/config.h"

namespace invar {

// Whether it holds a config.json; what is in that may still be anything.
bool is_hub_folder(const std::filesystem::path& folder);

// For ConfigSources::folder_keys: the model of a folder with all its keys, and what a run on it had better start with,
// the task and the tokenizer. Throws IoError for a folder that is damaged or of a model that we do not have:
// config.json is held against the headers of the weights, so that nobody makes room for a model that they are not of.
std::vector<FolderKey> keys_of_folder(const std::filesystem::path& folder);

}  // namespace invar
