#include "invar/dist/nccl/api.h"

#include <dlfcn.h>

#include <cstdlib>

#include "invar/core/error.h"
#include "invar/dist/transport.h"

namespace invar::nccl {

namespace {

template <class Function>
void look_up(void* library, const std::string& path, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    invar::check(function != nullptr, "{} has no {}", path, name);
}

Api load() {
    const char* const asked = std::getenv("INVAR_NCCL_LIBRARY");
    const std::string path = asked != nullptr && *asked != '\0' ? asked : "libnccl.so.2";
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        const char* const reason = dlerror();
        fail("{}; LD_LIBRARY_PATH can say where it is", reason != nullptr ? reason : path + " cannot be loaded");
    }
    Api api;
    look_up(library, path, "ncclGetVersion", api.get_version);
    look_up(library, path, "ncclGetUniqueId", api.get_unique_id);
    look_up(library, path, "ncclCommInitRank", api.comm_init_rank);
    look_up(library, path, "ncclCommDestroy", api.comm_destroy);
    look_up(library, path, "ncclCommAbort", api.comm_abort);
    look_up(library, path, "ncclCommGetAsyncError", api.comm_get_async_error);
    look_up(library, path, "ncclGetErrorString", api.get_error_string);
    look_up(library, path, "ncclGroupStart", api.group_start);
    look_up(library, path, "ncclGroupEnd", api.group_end);
    look_up(library, path, "ncclSend", api.send);
    look_up(library, path, "ncclRecv", api.recv);
    look_up(library, path, "ncclAllGather", api.all_gather);
    return api;
}

}  // namespace

const Api& api() {
    static const Api loaded = load();
    return loaded;
}

void Api::check(ncclResult_t result, const char* what) const {
    if (result == ncclSuccess || result == ncclInProgress) return;
    fail<RankError>("NCCL: {}: {}; NCCL_DEBUG=INFO tells more", what, get_error_string(result));
}

std::string Api::version() const {
    int number = 0;
    check(get_version(&number), "ncclGetVersion");
    const int major = number / (number < 10000 ? 1000 : 10000), rest = number - major * (number < 10000 ? 1000 : 10000);
    return fmt::format("{}.{}.{}", major, rest / 100, rest % 100);
}

}  // namespace invar::nccl
