// What the tests on a GPU share. Where there is none they are reported as skipped, with the reason.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "invar/core/tensor.h"
#include "invar/kernels/devices.h"
#include "invar/ops/to.h"
#include "tests/ops/gradcheck.h"
#include "tests/ops/rounding.h"

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

inline Tensor random_on_gpu(const Shape& shape, Dtype dtype, std::uint64_t seed) {
    return on_gpu(Tensor::from(random_values(shape.numel(), -1, 1, seed), shape, dtype).set_requires_grad());
}

// The same values as an f64 leaf on the CPU.
inline Tensor exactly(const Tensor& x) {
    return Tensor::from(x.to_vector<double>(), x.shape()).set_requires_grad();
}

inline double distance(const Tensor& got, const Tensor& exact) {
    const std::vector<double> a = got.to_vector<double>(), b = exact.to_vector<double>();
    std::vector<double> difference;
    for (std::size_t i = 0; i < a.size(); ++i) difference.push_back(a[i] - b[i]);
    return norm(difference) / norm(b);
}

inline std::string bytes_of(const Tensor& tensor) {
    const Tensor host = tensor.on_host();
    return std::string(static_cast<const char*>(host.raw()), host.bytes());
}

}  // namespace invar::testing
