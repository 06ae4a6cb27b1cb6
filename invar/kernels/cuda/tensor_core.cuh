// The warp-wide pieces that our tensor-core kernels are made of: 16-bit operands, FP32 sums.
#pragma once

#include <cstdint>

#include "invar/core/formats.h"

namespace invar::cuda {

// c += a b for a [16, 16], b [16, 8]; lane l holds rows l/4 and l/4 + 8 of a and c, columns 2 (l%4) and the next.
template <class T>
__device__ inline void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1);

template <>
__device__ inline void multiply_add<f16>(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                         std::uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ inline void multiply_add<bf16>(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                          std::uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// 1.0 and 1.0, packed.
template <class T>
inline constexpr std::uint32_t kOnes = 0x3C003C00u;
template <>
inline constexpr std::uint32_t kOnes<bf16> = 0x3F803F80u;

// Four 8x8 matrices of 16-bit values, turned over on the way; lane l gives the address of row l%8 of matrix l/8.
__device__ inline void load_turned(std::uint32_t (&r)[4], const void* shared) {
    const auto address = std::uint32_t(__cvta_generic_to_shared(shared));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}

// The same as they lie.
__device__ inline void load_straight(std::uint32_t (&r)[4], const void* shared) {
    const auto address = std::uint32_t(__cvta_generic_to_shared(shared));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}

// 16 bytes to shared memory behind our back; zeros where `there` is false.
__device__ inline void fetch(void* shared, const void* global, bool there) {
    const auto address = std::uint32_t(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(global), "r"(there ? 16 : 0)
                 : "memory");
}
__device__ inline void close_fetches() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kOpen>
__device__ inline void wait_for_fetches() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kOpen) : "memory");
}

}  // namespace invar::cuda
