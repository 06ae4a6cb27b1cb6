// A stable sort of 64-bit keys with what belongs to them, on the stream, without a wait. CUB's, compiled once for all.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace invar::cuda {

// The scratch that sorting `count` pairs takes.
std::size_t radix_sort_bytes(std::int64_t count);

struct SortBuffers {
    std::uint64_t *keys, *sorted_keys;
    std::int64_t *values, *sorted_values;
};

// Looks at the lowest `bits` of the keys alone.
void radix_sort(const SortBuffers& buffers, std::int64_t count, int bits, void* scratch, std::size_t scratch_bytes,
                cudaStream_t stream);

// Where the next buffer may begin.
constexpr std::size_t round_up(std::size_t bytes) {
    return (bytes + 255) / 256 * 256;
}

// How many bits numbers below `limit` take.
inline int bits_below(std::int64_t limit) {
    int bits = 1;
    while (bits < 63 && (std::int64_t(1) << bits) < limit) ++bits;
    return bits;
}

}  // namespace invar::cuda
