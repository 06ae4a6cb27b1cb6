#include <cub/device/device_radix_sort.cuh>

#include "invar/kernels/cuda/device.h"
#include "invar/kernels/cuda/radix_sort.h"

namespace invar::cuda {

std::size_t radix_sort_bytes(std::int64_t count) {
    std::size_t bytes = 0;
    INVAR_CUDA_CHECK(cub::DeviceRadixSort::SortPairs(
        nullptr, bytes, static_cast<const std::uint64_t*>(nullptr), static_cast<std::uint64_t*>(nullptr),
        static_cast<const std::int64_t*>(nullptr), static_cast<std::int64_t*>(nullptr), count));
    return bytes;
}

void radix_sort(const SortBuffers& buffers, std::int64_t count, int bits, void* scratch, std::size_t scratch_bytes,
                cudaStream_t stream) {
    const std::uint64_t* keys = buffers.keys;
    const std::int64_t* values = buffers.values;
    INVAR_CUDA_CHECK(cub::DeviceRadixSort::SortPairs(scratch, scratch_bytes, keys, buffers.sorted_keys, values,
                                                     buffers.sorted_values, count, 0, bits, stream));
}

}  // namespace invar::cuda
