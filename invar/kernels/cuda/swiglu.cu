// silu(gate) * up and its gradients, over rows that hold gate and then up.
#include "invar/kernels/cuda/brief.cuh"
#include "invar/kernels/cuda/launch.h"
#include "invar/kernels/cuda/source.cuh"
#include "invar/kernels/pointwise.h"

namespace invar::cuda {
namespace {

using pointwise::Silu;

// In as many digits as the tensors keep.
template <class Source, class C>
__device__ inline C forward(C gate) {
    if constexpr (Source::kWidth == 8)
        return C(Silu::forward(Brief(gate), Scalars{}));
    else
        return Silu::forward(gate, Scalars{});
}
template <class Source, class C>
__device__ inline C backward(C g, C gate) {
    if constexpr (Source::kWidth == 8)
        return C(Silu::backward(Brief(g), Brief(gate), Scalars{}));
    else
        return Silu::backward(g, gate, Scalars{});
}

// A pack of one row: where it begins in y, and its gate and up in x.
template <int kWidth>
struct Place {
    std::int64_t y, gate, up;
    __device__ Place(std::int64_t pack, std::int64_t packs, std::int64_t n) {
        const Quotient q = divide(pack, packs);
        y = q.whole * n + q.rest * kWidth;
        gate = q.whole * 2 * n + q.rest * kWidth;
        up = gate + n;
    }
};

template <class Source>
__global__ __launch_bounds__(kThreads) void swiglu_rows(const Source x, const Dense y, const std::int64_t rows,
                                                        const std::int64_t n) {
    using C = typename Source::C;
    constexpr int kWidth = Source::kWidth;
    const std::int64_t packs = n / kWidth, count = rows * packs;
    for (std::int64_t i = global_thread(); i < count; i += grid_threads()) {
        const Place<kWidth> at(i, packs, n);
        typename Source::Raw gate_raw, up_raw;
        x.read(at.gate, gate_raw);
        x.read(at.up, up_raw);
        C gate[kWidth], up[kWidth];
        Source::unpack(gate_raw, gate);
        Source::unpack(up_raw, up);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) gate[k] = forward<Source>(gate[k]) * up[k];
        Source::store(gate, y, at.y);
    }
}

template <class Source>
__global__ __launch_bounds__(kThreads) void swiglu_backward_rows(const Source gy, const Source x, const Dense gx,
                                                                 const Dense again, const std::int64_t rows,
                                                                 const std::int64_t n) {
    using C = typename Source::C;
    constexpr int kWidth = Source::kWidth;
    const std::int64_t packs = n / kWidth, count = rows * packs;
    for (std::int64_t i = global_thread(); i < count; i += grid_threads()) {
        const Place<kWidth> at(i, packs, n);
        typename Source::Raw gate_raw, up_raw, g_raw;
        gy.read(at.y, g_raw);
        x.read(at.gate, gate_raw);
        x.read(at.up, up_raw);
        C gate[kWidth], up[kWidth], g[kWidth], out[kWidth];
        Source::unpack(g_raw, g);
        Source::unpack(gate_raw, gate);
        Source::unpack(up_raw, up);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) out[k] = backward<Source>(g[k] * up[k], gate[k]);
        Source::store(out, gx, at.gate);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) gate[k] = forward<Source>(gate[k]);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) out[k] = g[k] * gate[k];
        Source::store(out, gx, at.up);
        if (again.data == nullptr) continue;
#pragma unroll
        for (int k = 0; k < kWidth; ++k) out[k] = gate[k] * up[k];
        Source::store(out, again, at.y);
    }
}

}  // namespace

void CudaKernels::swiglu(const View& x, const View& y) {
    const Launch stream("swiglu");
    const std::int64_t n = y.size[y.rank - 1], count = y.numel();
    if (count == 0) return;
    with_source(n, {&x, &y}, {}, [&](auto tag) {
        using Source = typename decltype(tag)::type;
        swiglu_rows<<<grid_for(count / Source::kWidth, kThreads), kThreads, 0, stream>>>(Source(x), Dense(y), count / n,
                                                                                         n);
    });
}

void CudaKernels::swiglu_backward(const View& gy, const View& x, const View& gx, const View& again) {
    const Launch stream("swiglu_backward");
    const std::int64_t n = gy.size[gy.rank - 1], count = gy.numel();
    if (count == 0) return;
    with_source(n, {&gy, &x, &gx, &again}, {}, [&](auto tag) {
        using Source = typename decltype(tag)::type;
        swiglu_backward_rows<<<grid_for(count / Source::kWidth, kThreads), kThreads, 0, stream>>>(
            Source(gy), Source(x), Dense(gx), Dense(again), count / n, n);
    });
}

}  // namespace invar::cuda
