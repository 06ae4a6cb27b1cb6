// Weights from files of anyone's, for a model that is there.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "invar/nn/module.h"

namespace invar {

// Reads weights into the model, from a safetensors file, a folder of Hugging Face's (hub/weight_files.h), a checkpoint,
// of which only the weights count, or the folder of a run, which stands for its last checkpoint. The headers are held against the model first, so that weights of another model are refused before any is read, however large they
// are, with every name that does not fit; names of others are those that Module::own_name knows. What the
// patterns of `fresh` (init_fresh) are of stays as it is in the model, whether the files hold it or not.
void load_weights(Module& model, const std::filesystem::path& file_or_folder,
                  const std::vector<std::string>* fresh = nullptr);

}  // namespace invar
