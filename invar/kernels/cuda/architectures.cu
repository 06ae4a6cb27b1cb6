// For which GPUs this library was compiled, as the compiler itself tells it.
#include "invar/kernels/cuda/device.h"

namespace invar::cuda {

namespace {

constexpr int kArchitectures[] = {__CUDA_ARCH_LIST__};  // 800 is compute capability 8.0

__global__ void nothing() {}

}  // namespace

std::span<const int> architectures() {
    return kArchitectures;
}

cudaError_t find_code() {
    cudaFuncAttributes attributes{};
    const cudaError_t status = cudaFuncGetAttributes(&attributes, nothing);
    cudaGetLastError();
    return status;
}

}  // namespace invar::cuda
