// NCCL's calls that we use, looked up when the library is loaded: it is not linked.
#pragma once

#include <nccl.h>

#include <string>

namespace invar::nccl {

struct Api {
    decltype(&ncclGetVersion) get_version = nullptr;
    decltype(&ncclGetUniqueId) get_unique_id = nullptr;
    decltype(&ncclCommInitRank) comm_init_rank = nullptr;
    decltype(&ncclCommDestroy) comm_destroy = nullptr;
    decltype(&ncclCommAbort) comm_abort = nullptr;
    decltype(&ncclCommGetAsyncError) comm_get_async_error = nullptr;
    decltype(&ncclGetErrorString) get_error_string = nullptr;
    decltype(&ncclGroupStart) group_start = nullptr;
    decltype(&ncclGroupEnd) group_end = nullptr;
    decltype(&ncclSend) send = nullptr;
    decltype(&ncclRecv) recv = nullptr;
    decltype(&ncclAllGather) all_gather = nullptr;

    // Throws a RankError that says what failed.
    void check(ncclResult_t result, const char* what) const;
    std::string version() const;
};

// libnccl.so.2, or the library that INVAR_NCCL_LIBRARY names, loaded at the first call. Throws an Error that says why
// it cannot be.
const Api& api();

}  // namespace invar::nccl
