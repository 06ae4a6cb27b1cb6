// Weights from a file of anyone's, for a model that is there.
#pragma once

#include <filesystem>

#include "invar/nn/module.h"

namespace invar {

// Reads a safetensors file of weights into the model. The header is held against the model first, so that a file of
// another model is refused before anything of it is read, however large it is, with every name that does not fit; names
// of others are those that Module::own_name knows.
void load_weights(Module& model, const std::filesystem::path& file);

}  // namespace invar
