// The GPU itself: its stream, its memory behind the caching allocator, error checks, and what it says about itself.
// Everything runs in order on one stream, so a block that was freed on the host may be handed out again at once.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "invar/core/memory.h"
#include "invar/kernels/kernels.h"

namespace invar::cuda {

// Throws an Error that names the call.
void check_call(cudaError_t status, const char* call);
#define INVAR_CUDA_CHECK(call) ::invar::cuda::check_call((call), #call)

cudaStream_t stream();
bool capturing();  // whether what is given to the stream is being recorded instead of run
const KernelOptions& options();
void set_options(const KernelOptions& options);
// Whether to time candidates: not where that would make the choice, and with it the last bits, a matter of luck.
bool may_time_candidates();

// Device memory for the length of a call, from the caching allocator.
class Scratch {
  public:
    explicit Scratch(std::size_t bytes) {
        if (bytes > 0) storage_.emplace(bytes, Device::cuda(), Purpose::workspace);
    }
    void* data() const { return storage_ ? storage_->data() : nullptr; }

  private:
    std::optional<Storage> storage_;
};

// What products and convolutions work in; one for all, since they run one after the other.
inline constexpr std::size_t kWorkspaceBytes = std::size_t(64) << 20;
void* workspace();

// The mean of some runs of f on the stream, in milliseconds.
template <class F>
float time_on_stream(F&& f) {
    constexpr int kWarmUps = 2, kRuns = 5;
    for (int i = 0; i < kWarmUps; ++i) f();
    cudaEvent_t start = nullptr, stop = nullptr;
    INVAR_CUDA_CHECK(cudaEventCreate(&start));
    INVAR_CUDA_CHECK(cudaEventCreate(&stop));
    INVAR_CUDA_CHECK(cudaEventRecord(start, stream()));
    for (int i = 0; i < kRuns; ++i) f();
    INVAR_CUDA_CHECK(cudaEventRecord(stop, stream()));
    INVAR_CUDA_CHECK(cudaEventSynchronize(stop));
    float milliseconds = 0;
    INVAR_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, start, stop));
    cudaEventDestroy(start);
    cudaEventDestroy(stop);
    return milliseconds / kRuns;
}

// The architectures that there is code for, in __CUDA_ARCH__'s numbers, and whether some of it runs on this GPU: as it
// is, as that of an earlier card of the family, or compiled by the driver.
std::span<const int> architectures();
cudaError_t find_code();

std::size_t shared_memory_limit();  // what a block may ask for; most on an H200, least on consumer cards
std::string description();
int utilization();           // percent of the whole card, by NVML; -1 where that is not there
std::int64_t memory_used();  // of the whole card, by NVML; 0 where that is not there

}  // namespace invar::cuda
