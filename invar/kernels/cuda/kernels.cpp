#include "invar/kernels/cuda/kernels.h"

#include "invar/core/error.h"
#include "invar/kernels/cuda/copies.h"
#include "invar/kernels/cuda/device.h"
#include "invar/kernels/cuda/recording.h"

namespace invar::cuda {

void CudaKernels::configure(const KernelOptions& options) {
    set_options(options);
}
std::string CudaKernels::description() const {
    return cuda::description();
}
std::int64_t CudaKernels::memory_used() const {
    return cuda::memory_used();
}

// Memory that is not pinned is staged before this returns, so the caller may let go of it.
void CudaKernels::upload(void* device, const void* host, std::size_t bytes) {
    refuse_recording("a copy of the host's memory");
    if (bytes > 0) INVAR_CUDA_CHECK(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream()));
}
void CudaKernels::download(void* host, const void* device, std::size_t bytes) {
    copy_to_host(Device::cuda(), host, device, bytes);
}

void CudaKernels::synchronize() {
    invar::synchronize(Device::cuda());
}

bool CudaKernels::idle() {
    const cudaError_t status = cudaStreamQuery(stream());
    if (status == cudaErrorNotReady) return false;
    check_call(status, "what the device was given");
    return true;
}
std::unique_ptr<Recording> CudaKernels::record(const MemoryPool& pool, const std::function<void()>& work) {
    return cuda::record(pool, work);
}
std::unique_ptr<RawMemory> CudaKernels::host_memory() {
    return pinned_memory();
}
std::unique_ptr<CopyQueue> CudaKernels::copy_queue() {
    return cuda::copy_queue();
}

Kernels& kernels() {
    static auto* const kernels = new CudaKernels;  // never destroyed: the driver may be gone before our statics are
    return *kernels;
}

}  // namespace invar::cuda
