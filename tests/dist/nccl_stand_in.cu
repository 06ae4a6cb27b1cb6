// A stand-in for libnccl: the calls that Invar makes of it, between processes on one machine that may share a card,
// which NCCL itself refuses. Each rank has a box of slots in device memory, one for each other rank, which those open
// by CUDA IPC; a flag for each slot lies in memory that all processes share, and streams wait for it: so everything can
// be part of a graph, whose replays find the flags as they left them. NCCL_STAND_IN_BOXES=host keeps the boxes in
// shared memory of the host, for machines without CUDA IPC; NCCL_STAND_IN_WAITS=kernels waits by kernels.
#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <nccl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMaxRanks = 8;
constexpr std::size_t kSlotBytes = std::size_t(1) << 20;  // what is larger goes in pieces
constexpr std::uint32_t kEmpty = 1, kFull = 2, kGivenUp = 0xffffffff;
constexpr auto kPatience = std::chrono::seconds(30);

struct Member {
    std::atomic<int> ready, opened, gave_up, left;
    int by_ipc;
    cudaIpcMemHandle_t box;
};

struct Shared {
    Member members[kMaxRanks];
    std::uint32_t flags[kMaxRanks][kMaxRanks];  // of the slot for what the first sends to the second
};
constexpr std::size_t kSharedBytes = (sizeof(Shared) + 4095) / 4096 * 4096, kBoxBytes = kMaxRanks * kSlotBytes;

void say(const char* what, const char* more = "") {
    if (std::getenv("NCCL_DEBUG") != nullptr) std::fprintf(stderr, "nccl stand-in: %s%s\n", what, more);
}

bool good(cudaError_t status, const char* what) {
    if (status == cudaSuccess) return true;
    std::fprintf(stderr, "nccl stand-in: %s: %s\n", what, cudaGetErrorString(status));
    cudaGetLastError();
    return false;
}
#define GOOD(call) good((call), #call)

__global__ void wait_kernel(const std::uint32_t* flag, std::uint32_t bits) {
    const volatile std::uint32_t* const value = flag;
    while ((*value & bits) == 0) __nanosleep(1000);
    __threadfence_system();
}

__global__ void write_kernel(std::uint32_t* flag, std::uint32_t value) {
    __threadfence_system();
    *static_cast<volatile std::uint32_t*>(flag) = value;
    __threadfence_system();
}

// By the stream itself, which then takes nothing of the card while it waits; by kernels where a graph cannot hold that.
class Flags {
  public:
    void choose(std::uint32_t* probe) {
        const char* const asked = std::getenv("NCCL_STAND_IN_WAITS");
        if (asked != nullptr && std::strcmp(asked, "kernels") == 0) return say("flags by kernels, as asked for");
        void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        if (driver == nullptr) return say("flags by kernels: no libcuda.so.1");
        wait_ = reinterpret_cast<decltype(wait_)>(dlsym(driver, "cuStreamWaitValue32_v2"));
        write_ = reinterpret_cast<decltype(write_)>(dlsym(driver, "cuStreamWriteValue32_v2"));
        if (wait_ == nullptr || write_ == nullptr || !can_be_captured(probe)) {
            wait_ = nullptr, write_ = nullptr;
            return say("flags by kernels: streams cannot wait for values in a graph");
        }
        say("flags by the streams themselves");
    }
    bool wait(std::uint32_t* flag, std::uint32_t bits, cudaStream_t stream) const {
        if (wait_ != nullptr)
            return wait_(stream, reinterpret_cast<CUdeviceptr>(flag), bits, CU_STREAM_WAIT_VALUE_AND) == CUDA_SUCCESS;
        wait_kernel<<<1, 1, 0, stream>>>(flag, bits);
        return GOOD(cudaGetLastError());
    }
    bool write(std::uint32_t* flag, std::uint32_t value, cudaStream_t stream) const {
        if (write_ != nullptr) return write_(stream, reinterpret_cast<CUdeviceptr>(flag), value, 0) == CUDA_SUCCESS;
        write_kernel<<<1, 1, 0, stream>>>(flag, value);
        return GOOD(cudaGetLastError());
    }

  private:
    // Runs a graph that writes the flag and waits for it.
    bool can_be_captured(std::uint32_t* probe) const {
        cudaStream_t stream = nullptr;
        if (!GOOD(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking))) return false;
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t ready = nullptr;
        bool fine = cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed) == cudaSuccess;
        fine = fine && write(probe, kFull, stream) && wait(probe, kFull, stream) && write(probe, kEmpty, stream);
        fine = cudaStreamEndCapture(stream, &graph) == cudaSuccess && fine && graph != nullptr;
        fine = fine && cudaGraphInstantiate(&ready, graph, 0) == cudaSuccess;
        fine = fine && cudaGraphLaunch(ready, stream) == cudaSuccess && cudaStreamSynchronize(stream) == cudaSuccess;
        if (ready != nullptr) cudaGraphExecDestroy(ready);
        if (graph != nullptr) cudaGraphDestroy(graph);
        cudaStreamDestroy(stream);
        cudaGetLastError();
        return fine;
    }
    CUresult (*wait_)(CUstream, CUdeviceptr, cuuint32_t, unsigned) = nullptr;
    CUresult (*write_)(CUstream, CUdeviceptr, cuuint32_t, unsigned) = nullptr;
};

}  // namespace

struct ncclComm {
    int rank = 0, size = 1;
    Shared* shared = nullptr;
    Shared* on_device = nullptr;  // the same, as the card sees it
    Flags flags;
    std::byte* box = nullptr;          // this rank's slots
    std::byte* boxes[kMaxRanks] = {};  // those of the others
    std::uint32_t* flag(int from, int to) const { return &on_device->flags[from][to]; }
};

namespace {

struct Operation {
    bool sends;
    std::byte* data;
    std::size_t bytes;
    int peer;
    ncclComm* comm;
    cudaStream_t stream;
};
thread_local int depth = 0;
thread_local std::vector<Operation> pending;

std::size_t bytes_of(ncclDataType_t type) {
    switch (type) {
        case ncclInt8:
        case ncclUint8:
            return 1;
        case ncclFloat16:
        case ncclBfloat16:
            return 2;
        case ncclInt32:
        case ncclUint32:
        case ncclFloat32:
            return 4;
        default:
            return 8;
    }
}

// One piece of it, from `offset` on.
bool run(const Operation& op, std::size_t offset) {
    const ncclComm& comm = *op.comm;
    const std::size_t bytes = op.bytes - offset < kSlotBytes ? op.bytes - offset : kSlotBytes;
    if (op.sends) {
        std::uint32_t* const flag = comm.flag(comm.rank, op.peer);
        std::byte* const slot = comm.boxes[op.peer] + std::size_t(comm.rank) * kSlotBytes;
        return comm.flags.wait(flag, kEmpty, op.stream) &&
               GOOD(cudaMemcpyAsync(slot, op.data + offset, bytes, cudaMemcpyDefault, op.stream)) &&
               comm.flags.write(flag, kFull, op.stream);
    }
    std::uint32_t* const flag = comm.flag(op.peer, comm.rank);
    const std::byte* const slot = comm.box + std::size_t(op.peer) * kSlotBytes;
    return comm.flags.wait(flag, kFull, op.stream) &&
           GOOD(cudaMemcpyAsync(op.data + offset, slot, bytes, cudaMemcpyDefault, op.stream)) &&
           comm.flags.write(flag, kEmpty, op.stream);
}

// Everybody sends a piece before anybody takes one, so that nobody waits for a slot that is never emptied.
ncclResult_t run_group() {
    const std::vector<Operation> group = std::move(pending);
    pending.clear();
    for (const Operation& a : group)
        for (const Operation& b : group)
            if (&a != &b && a.sends == b.sends && a.peer == b.peer) return ncclInvalidUsage;  // one slot, one message
    bool more = true;
    for (std::size_t offset = 0; more; offset += kSlotBytes) {
        more = false;
        for (const bool sends : {true, false})
            for (const Operation& op : group) {
                if (op.sends != sends || offset >= op.bytes) continue;
                if (!run(op, offset)) return ncclUnhandledCudaError;
                more = more || offset + kSlotBytes < op.bytes;
            }
    }
    return ncclSuccess;
}

ncclResult_t add(const Operation& op) {
    if (op.peer < 0 || op.peer >= op.comm->size || op.peer == op.comm->rank) return ncclInvalidArgument;
    pending.push_back(op);
    return depth > 0 ? ncclSuccess : run_group();
}

template <class Condition>
bool wait_for(const char* what, Condition&& condition) {
    const Clock::time_point until = Clock::now() + kPatience;
    while (!condition()) {
        if (Clock::now() > until) {
            std::fprintf(stderr, "nccl stand-in: waited in vain for %s\n", what);
            return false;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
}

void* map_shared(const char* name, std::size_t bytes, bool create) {
    int file = -1;
    wait_for("shared memory", [&] {
        file = ::shm_open(name, create ? O_RDWR | O_CREAT | O_EXCL : O_RDWR, 0600);
        return file >= 0 || create;
    });
    if (file < 0 || (create && ::ftruncate(file, off_t(bytes)) != 0)) {
        std::perror("nccl stand-in: shared memory");
        if (file >= 0) ::close(file);
        return nullptr;
    }
    void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    return memory == MAP_FAILED ? nullptr : memory;
}

// As the card sees it.
void* reach_from_card(void* memory, std::size_t bytes) {
    void* device = nullptr;
    const bool fine = memory != nullptr &&
                      GOOD(cudaHostRegister(memory, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable)) &&
                      GOOD(cudaHostGetDevicePointer(&device, memory, 0));
    return fine ? device : nullptr;
}

std::string box_name(const char* name, int rank) {
    return std::string(name) + "_box_" + std::to_string(rank);
}

bool make_box(ncclComm& comm, const char* name) {
    Member& mine = comm.shared->members[comm.rank];
    const char* const asked = std::getenv("NCCL_STAND_IN_BOXES");
    void* box = nullptr;
    mine.by_ipc = asked == nullptr || std::strcmp(asked, "host") != 0;
    if (mine.by_ipc != 0 && !GOOD(cudaMalloc(&box, kBoxBytes))) return false;
    if (mine.by_ipc != 0 && !GOOD(cudaIpcGetMemHandle(&mine.box, box))) mine.by_ipc = 0;
    if (mine.by_ipc == 0)
        box = reach_from_card(map_shared(box_name(name, comm.rank).c_str(), kBoxBytes, true), kBoxBytes);
    say(mine.by_ipc != 0 ? "boxes by CUDA IPC" : "boxes in the host's memory");
    comm.box = static_cast<std::byte*>(box);
    return box != nullptr;
}

bool open_box(ncclComm& comm, const char* name, int rank) {
    const Member& other = comm.shared->members[rank];
    if (!wait_for("another rank", [&] { return other.ready != 0; })) return false;
    void* opened = nullptr;
    if (other.by_ipc == 0) {
        const std::string box = box_name(name, rank);
        opened = reach_from_card(map_shared(box.c_str(), kBoxBytes, false), kBoxBytes);
        ::shm_unlink(box.c_str());
    } else if (!GOOD(cudaIpcOpenMemHandle(&opened, other.box, cudaIpcMemLazyEnablePeerAccess))) {
        std::fprintf(stderr, "nccl stand-in: NCCL_STAND_IN_BOXES=host does without CUDA IPC\n");
    }
    comm.boxes[rank] = static_cast<std::byte*>(opened);
    return opened != nullptr;
}

ncclResult_t join(ncclComm& comm, const char* name) {
    comm.shared = static_cast<Shared*>(map_shared(name, kSharedBytes, false));
    if (comm.shared == nullptr) return ncclSystemError;
    comm.on_device = static_cast<Shared*>(reach_from_card(comm.shared, kSharedBytes));
    if (comm.on_device == nullptr) return ncclUnhandledCudaError;
    Member& mine = comm.shared->members[comm.rank];
    comm.flags.choose(comm.flag(comm.rank, comm.rank));  // of a slot that nobody uses
    if (!make_box(comm, name)) return ncclUnhandledCudaError;
    mine.ready = 1;
    for (int r = 0; r < comm.size; ++r)
        if (r != comm.rank && !open_box(comm, name, r)) return ncclUnhandledCudaError;
    mine.opened = 1;
    for (int r = 0; r < comm.size; ++r)
        if (!wait_for("all ranks", [&] { return comm.shared->members[r].opened != 0; })) return ncclRemoteError;
    if (comm.rank == 0) ::shm_unlink(name);
    say("joined");
    return ncclSuccess;
}

}  // namespace

extern "C" {

// Of no NCCL that there is, so that nobody takes one for the other.
ncclResult_t ncclGetVersion(int* version) {
    *version = 1;
    return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
    switch (result) {
        case ncclSuccess:
            return "no error";
        case ncclUnhandledCudaError:
            return "a call of CUDA failed";
        case ncclSystemError:
            return "a call of the system failed";
        case ncclInvalidArgument:
            return "an argument is wrong";
        case ncclInvalidUsage:
            return "the calls do not fit together";
        case ncclRemoteError:
            return "another rank has given up or is gone";
        default:
            return "some other error";
    }
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    std::memset(id, 0, sizeof *id);
    std::snprintf(id->internal, sizeof id->internal, "/invar_nccl_%d_%lld", int(::getpid()),
                  static_cast<long long>(std::chrono::system_clock::now().time_since_epoch().count()));
    auto* const shared = static_cast<Shared*>(map_shared(id->internal, kSharedBytes, true));
    if (shared == nullptr) return ncclSystemError;
    for (auto& row : shared->flags)
        for (std::uint32_t& flag : row) flag = kEmpty;
    ::munmap(shared, kSharedBytes);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
    if (ranks > kMaxRanks || rank < 0 || rank >= ranks) return ncclInvalidArgument;
    auto* const made = new ncclComm;
    made->rank = rank, made->size = ranks;
    const ncclResult_t result = join(*made, id.internal);
    *comm = result == ncclSuccess ? made : nullptr;
    return result;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    comm->shared->members[comm->rank].left = 1;
    for (int r = 0; r < comm->size; ++r)
        if (!wait_for("all ranks to leave", [&] { return comm->shared->members[r].left != 0; })) return ncclRemoteError;
    for (int r = 0; r < comm->size; ++r)
        if (r != comm->rank && comm->shared->members[r].by_ipc != 0) GOOD(cudaIpcCloseMemHandle(comm->boxes[r]));
    if (comm->shared->members[comm->rank].by_ipc != 0) GOOD(cudaFree(comm->box));
    GOOD(cudaHostUnregister(comm->shared));
    ::munmap(comm->shared, kSharedBytes);
    delete comm;
    return ncclSuccess;
}

// Every flag says that it may go on, again and again, until the card has nothing more to wait for.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
    say("given up");
    comm->shared->members[comm->rank].gave_up = 1;
    std::atomic<bool> idle = false;
    std::thread waits([&] {
        cudaDeviceSynchronize();
        idle = true;
    });
    while (!idle) {
        for (auto& row : comm->shared->flags)
            for (std::uint32_t& flag : row) std::atomic_ref(flag).store(kGivenUp);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    waits.join();
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
    *error = ncclSuccess;
    for (int r = 0; r < comm->size; ++r)
        if (comm->shared->members[r].gave_up != 0) *error = ncclRemoteError;
    return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
    ++depth;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
    if (depth == 0) return ncclInvalidUsage;
    return --depth > 0 ? ncclSuccess : run_group();
}

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    auto* const data = static_cast<std::byte*>(const_cast<void*>(from));
    return add({true, data, count * bytes_of(type), peer, comm, stream});
}

ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
    return add({false, static_cast<std::byte*>(to), count * bytes_of(type), peer, comm, stream});
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
    const std::size_t bytes = count * bytes_of(type);
    auto* const whole = static_cast<std::byte*>(to);
    std::byte* const own = whole + std::size_t(comm->rank) * bytes;
    if (own != from && !GOOD(cudaMemcpyAsync(own, from, bytes, cudaMemcpyDefault, stream)))
        return ncclUnhandledCudaError;
    ncclGroupStart();
    ncclResult_t result = ncclSuccess;
    for (int r = 0; r < comm->size; ++r) {
        if (r == comm->rank) continue;
        const ncclResult_t sent = ncclSend(own, bytes, ncclInt8, r, comm, stream);
        const ncclResult_t received = ncclRecv(whole + std::size_t(r) * bytes, bytes, ncclInt8, r, comm, stream);
        if (sent != ncclSuccess || received != ncclSuccess) result = ncclInvalidArgument;
    }
    const ncclResult_t ran = ncclGroupEnd();
    return result != ncclSuccess ? result : ran;
}

}  // extern "C"
