// What the tests on a GPU share. Where there is none they are reported as skipped, with the reason.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "invar/core/tensor.h"
#include "invar/kernels/devices.h"
#include "invar/ops/to.h"

namespace invar::testing {

template <class Base>
class OnGpu : public Base {
  protected:
    void SetUp() override {
        if (!why_no_cuda().empty()) GTEST_SKIP() << "no GPU: " << why_no_cuda();
        kernels_for(Device::cuda()).configure({});
    }
};
using Gpu = OnGpu<::testing::Test>;

// A leaf with the same values on the GPU.
inline Tensor on_gpu(const Tensor& x) {
    return ops::to(x.detach(), Device::cuda()).set_requires_grad(x.requires_grad());
}

inline std::string bytes_of(const Tensor& tensor) {
    const Tensor host = tensor.on_host();
    return std::string(static_cast<const char*>(host.raw()), host.bytes());
}

}  // namespace invar::testing
