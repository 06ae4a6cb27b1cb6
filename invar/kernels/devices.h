// Which devices there are. The CPU always is; CUDA is a library of its own beside this one, loaded when first asked
// for, so that one build runs with and without a GPU, a driver or the CUDA libraries.
#pragma once

#include <string>
#include <string_view>

#include "invar/core/device.h"
#include "invar/kernels/kernels.h"

namespace invar {

// The device a user means: "cpu", "cuda", "cuda:0", or "auto" (the GPU where it works, else the CPU). Throws a
// UsageError that says why where it is not there.
Device resolve_device(std::string_view text);

// Why there is no GPU to run on; empty where there is one.
const std::string& why_no_cuda();

// Why the device that a user means by "auto" is the CPU; empty where it is the GPU, and where a device was named.
std::string why_on_cpu(std::string_view text);

// A device's library calls this when it is loaded; the kernels must live until the process ends.
void register_device(Device::Kind kind, Kernels& kernels);

// Whether FP32 products on this thread may run in TF32, until the end of a scope. Devices without TF32 ignore it.
class Tf32Scope {
  public:
    explicit Tf32Scope(bool on);
    ~Tf32Scope();
    Tf32Scope(const Tf32Scope&) = delete;
    Tf32Scope& operator=(const Tf32Scope&) = delete;
    static bool on();

  private:
    bool previous_;
};

}  // namespace invar
