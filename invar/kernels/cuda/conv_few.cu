// Gradients of images with few channels under windows that lie side by side, in 16 bits: what a transposed convolution
// to one map does forward. Each result of the convolution is read once, by as many threads as it has packs of channels,
// and gives the pixels of its window: dot products over the channels, summed in FP32.
#include "invar/kernels/cuda/conv.h"
#include "invar/kernels/cuda/device.h"
#include "invar/kernels/cuda/division.cuh"
#include "invar/kernels/cuda/vector.cuh"

namespace invar::cuda {

namespace {

constexpr int kMost = 4, kAtOnce = 4;  // values of a window, and windows on their way to a thread

struct Windows {
    int count, out_h, out_w, out_c, k_h, values;
    std::int64_t in_w, in_c;
    Division by_row, by_image;
};

template <class T>
__global__ __launch_bounds__(kThreads) void dots_of_windows(const Windows s, const T* gy, const T* w, const T* bias,
                                                            T* gx) {
    using Eight = Pack<T, 8>;
    const int lanes = s.out_c / 8, lane = int(threadIdx.x) % lanes, values = s.values, row = values / s.k_h;
    float weight[8][kMost] = {};
#pragma unroll
    for (int c = 0; c < 8; ++c)
#pragma unroll
        for (int v = 0; v < kMost; ++v)
            if (v < values) weight[c][v] = widen(w[(lane * 8 + c) * values + v]);
    const int together = kThreads / lanes, apart = together * int(gridDim.x);
    // Whole warps stay in the loop: their threads sum together.
    for (int first = int(blockIdx.x) * together; first < s.count; first += kAtOnce * apart) {
        const int mine = first + int(threadIdx.x) / lanes;
        Eight raw[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
            const int window = min(mine + i * apart, s.count - 1);
            raw[i].read(gy + std::int64_t(window) * s.out_c + lane * 8);
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
            float g[8], sum[kMost] = {};
            raw[i].unpack(g);
#pragma unroll
            for (int c = 0; c < 8; ++c)
#pragma unroll
                for (int v = 0; v < kMost; ++v) sum[v] += g[c] * weight[c][v];
            for (int mask = lanes / 2; mask > 0; mask /= 2)
#pragma unroll
                for (int v = 0; v < kMost; ++v) sum[v] += __shfl_xor_sync(0xffffffffu, sum[v], mask);
            const int window = mine + i * apart;
            if (window >= s.count || lane != 0) continue;
            const int line = s.by_row.of(window), image = s.by_image.of(line);
            const std::int64_t top = (std::int64_t(image) * s.out_h + (line - image * s.out_h)) * s.k_h;
            const std::int64_t left = std::int64_t(window - line * s.out_w) * row;
#pragma unroll
            for (int v = 0; v < kMost; ++v)
                if (v < values) {
                    const int down = v / row, across = v - down * row;
                    const float b = bias == nullptr ? 0.0f : widen(bias[across % int(s.in_c)]);
                    gx[(top + down) * s.in_w * s.in_c + left + across] = narrow<T>(sum[v] + b);
                }
        }
    }
}

}  // namespace

bool few_channels_backward_data(const ConvSpec& c, const View& gy, const View& w, const View& gx, const View& pending) {
    const std::int64_t values = c.k_h * c.k_w * c.in_c, count = c.batch * c.out_h * c.out_w, lanes = c.out_c / 8;
    const bool suits =
        is_sixteen_bit(gy.dtype) && tiles_image(c) && values <= kMost && count < 1 << 30 && aligned(gy.data);
    const bool shared = c.out_c % 8 == 0 && lanes >= 1 && lanes <= kWarp && (lanes & (lanes - 1)) == 0;
    if (!suits || !shared || count == 0 || (pending && !is_along_channels(pending))) return false;
    const Windows s{int(count),  int(c.out_h), int(c.out_w), int(c.out_c),      int(c.k_h),
                    int(values), c.in_w,       c.in_c,       Division(c.out_w), Division(c.out_h)};
    const auto run = [&](auto zero) {
        using T = decltype(zero);
        const std::int64_t together = kThreads / lanes;
        const unsigned blocks = grid_for(count, together * kAtOnce, 132 * 8);
        dots_of_windows<T><<<blocks, kThreads, 0, stream()>>>(s, gy.as<const T>(), w.as<const T>(),
                                                              pending ? pending.as<const T>() : nullptr, gx.as<T>());
    };
    gy.dtype == Dtype::f16 ? run(f16{}) : run(bf16{});
    return true;
}

}  // namespace invar::cuda
