// The GPU's kernels: our own, each in the .cu file of its family, cuBLASLt for products and cuDNN for convolutions,
// with scratch from the caching allocator. Nothing here waits for the device but download, all_finite and synchronize.
#pragma once

#include "invar/kernels/kernels.h"

namespace invar::cuda {

class CudaKernels final : public Kernels {
  public:
    void configure(const KernelOptions& options) override;
    std::string description() const override;
    std::int64_t memory_used() const override;

#define INVAR_KERNEL(result, name, parameters) result name parameters override;
#define INVAR_OPTIONAL_KERNEL(result, name, parameters) result name parameters override;
#include "invar/kernels/kernel_list.inc"

    void synchronize() override;
    bool idle() override;
    std::unique_ptr<Recording> record(const MemoryPool& pool, const std::function<void()>& work) override;
    std::unique_ptr<RawMemory> host_memory() override;
    std::unique_ptr<CopyQueue> copy_queue() override;
};

// The one object of them.
Kernels& kernels();

}  // namespace invar::cuda
