// Modules by the names that people know: the path within the model, as PyTorch has it, and the class.
#pragma once

#include <string>

#include "invar/nn/module.h"

namespace invar {

// "Linear", "Conv2d"; without the namespaces around it.
std::string class_name(const Module& module);
// "layers.0.fc1 (Linear)"; "the model itself (Mlp)" where the path is empty.
std::string module_title(const std::string& path, const Module& module);

}  // namespace invar
