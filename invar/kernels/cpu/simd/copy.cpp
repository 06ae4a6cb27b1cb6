// Moving values: copies between any dtypes and strides, fills, and the check for values that are not finite.
#include <cmath>
#include <numeric>

#include "invar/kernels/cpu/simd/cpu_kernels.h"
#include "invar/kernels/cpu/simd/iteration.h"

namespace invar::INVAR_ISA {

namespace {

template <class C>
void convert(const View& from, const View& to) {
    const Iteration<2> it({&from, &to});
    it.for_blocks([&](const auto& at, std::int64_t n) {
        alignas(64) C buffer[kBlock];
        void* sink = byte_at(to.data, to.dtype, at[1]);
        C* place = target<C>(sink, to.dtype, it.stride[1][0], buffer);
        const C* values = load<C>(byte_at(from.data, from.dtype, at[0]), from.dtype, it.stride[0][0], n, place);
        store<C>(values, sink, to.dtype, it.stride[1][0], n);
    });
}

// Same dtype: elements move as bits, so that NaN payloads and 64-bit integers arrive untouched.
template <class Bits>
void move_bits(const View& from, const View& to) {
    const Iteration<2> it({&from, &to});
    it.for_blocks([&](const auto& at, std::int64_t n) {
        const Bits* source = static_cast<const Bits*>(from.data) + at[0];
        Bits* sink = static_cast<Bits*>(to.data) + at[1];
        const std::int64_t step_in = it.stride[0][0], step_out = it.stride[1][0];
        if (step_in == 1 && step_out == 1) {
            std::memcpy(sink, source, std::size_t(n) * sizeof(Bits));
        } else {
            for (std::int64_t i = 0; i < n; ++i) sink[i * step_out] = source[i * step_in];
        }
    });
}

}  // namespace

void CpuKernels::copy(const View& from, const View& to) {
    if (from.dtype == to.dtype) {
        switch (size_of(from.dtype)) {
            case 8:
                return move_bits<std::uint64_t>(from, to);
            case 4:
                return move_bits<std::uint32_t>(from, to);
            case 2:
                return move_bits<std::uint16_t>(from, to);
            default:
                return move_bits<std::uint8_t>(from, to);
        }
    }
    // Double would lose the last digits of large ones.
    if (from.dtype == Dtype::i64) return convert<std::int64_t>(from, to);
    // From f64 directly: rounding twice, through f32, would not be rounding to nearest.
    needs_double(from.dtype) || needs_double(to.dtype) ? convert<double>(from, to) : convert<float>(from, to);
}

void CpuKernels::upload(void* device, const void* host, std::size_t bytes) {
    std::memcpy(device, host, bytes);
}
void CpuKernels::download(void* host, const void* device, std::size_t bytes) {
    std::memcpy(host, device, bytes);
}

void CpuKernels::fill(const View& out, double value) {
    const Iteration<1> it({&out});
    it.for_blocks([&](const auto& at, std::int64_t n) {
        alignas(64) double buffer[kBlock];
        std::fill_n(buffer, n, value);
        store<double>(buffer, byte_at(out.data, out.dtype, at[0]), out.dtype, it.stride[0][0], n);
    });
}

void CpuKernels::arange(const View& out, std::int64_t first) {
    const Iteration<1> it({&out});
    it.for_blocks([&](const auto& at, std::int64_t n) {
        alignas(64) std::int64_t buffer[kBlock];
        std::iota(buffer, buffer + n, first + at[0]);
        store<std::int64_t>(buffer, byte_at(out.data, out.dtype, at[0]), out.dtype, 1, n);
    });
}

bool CpuKernels::all_finite(const View& x) {
    const Iteration<1> it({&x});
    bool finite = true;
    it.for_blocks([&](const auto& at, std::int64_t n) {
        alignas(64) float buffer[kBlock];
        alignas(64) double wide[kBlock];
        bool good = true;
        if (x.dtype == Dtype::f64) {
            const double* values = load<double>(byte_at(x.data, x.dtype, at[0]), x.dtype, it.stride[0][0], n, wide);
            for (std::int64_t i = 0; i < n; ++i) good &= std::fabs(values[i]) <= 1.7976931348623157e308;
        } else {
            const float* values = load<float>(byte_at(x.data, x.dtype, at[0]), x.dtype, it.stride[0][0], n, buffer);
            for (std::int64_t i = 0; i < n; ++i) good &= std::fabs(values[i]) <= 3.402823466e38f;
        }
        if (!good) {
#pragma omp atomic write
            finite = false;
        }
    });
    return finite;
}

}  // namespace invar::INVAR_ISA
