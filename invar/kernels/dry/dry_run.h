// DryRun: while it lives, what this thread gives to a device is counted and not done. Memory, kernels, recordings and
// copies are those of the device in all but their contents; the host's own work on the CPU is not done either.
#pragma once

#include <memory>
#include <optional>

#include "invar/core/memory_stand_in.h"
#include "invar/kernels/dry/kernels.h"
#include "invar/kernels/dry/memory.h"
#include "invar/kernels/stand_in.h"

namespace invar::dry {

class DryRun {
  public:
    // `capacity`: bytes that the device has; 0: as many as are asked for.
    explicit DryRun(Device device, std::int64_t capacity = 0);

    DryKernels& kernels() { return *kernels_; }
    const Held& held() const { return *held_; }

  private:
    std::shared_ptr<Held> held_ = std::make_shared<Held>();
    std::optional<MemoryStandIn> memory_, host_memory_;
    std::unique_ptr<DryKernels> kernels_, host_kernels_;
    std::optional<KernelsStandIn> stand_in_, host_stand_in_;
};

}  // namespace invar::dry
