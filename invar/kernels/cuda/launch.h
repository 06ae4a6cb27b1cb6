// Launch: the stream for the length of a method of CudaKernels. Our own kernels are launched where that method is
// defined, in the .cu file of its family; all are asynchronous, and can be captured in a graph.
#pragma once

#include <exception>

#include "invar/kernels/cuda/device.h"
#include "invar/kernels/cuda/kernels.h"

namespace invar::cuda {

class Launch {
  public:
    explicit Launch(const char* what) : what_(what) {}
    // A launch that was refused is reported by the call that made it, not by a later one.
    ~Launch() noexcept(false) {
        if (std::uncaught_exceptions() == unwinding_) check_call(cudaGetLastError(), what_);
    }
    Launch(const Launch&) = delete;
    Launch& operator=(const Launch&) = delete;
    operator cudaStream_t() const { return stream_; }  // NOLINT(google-explicit-constructor): where a stream goes

  private:
    const char* what_;
    cudaStream_t stream_ = stream();
    int unwinding_ = std::uncaught_exceptions();
};

}  // namespace invar::cuda
