// Where code was loaded from, for libraries that lie beside it.
#pragma once

#include <filesystem>

namespace invar {

// The folder of the library, or of the program, that holds this function; empty where that is not known.
std::filesystem::path loaded_from(const void* function);

}  // namespace invar
