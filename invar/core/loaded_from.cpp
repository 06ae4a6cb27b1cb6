#include "invar/core/loaded_from.h"

#include <dlfcn.h>

namespace invar {

std::filesystem::path loaded_from(const void* function) {
    Dl_info info{};
    if (dladdr(function, &info) == 0 || info.dli_fname == nullptr) return {};
    return std::filesystem::path(info.dli_fname).parent_path();
}

}  // namespace invar
