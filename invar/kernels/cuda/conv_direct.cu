// The plain convolutions: what runs where cuDNN has no engine, and what it can be checked against.
#include <cstdint>

#include "invar/core/formats.h"
#include "invar/kernels/cuda/conv.h"

namespace invar::cuda::direct {

namespace {

constexpr int kThreads = 256;

unsigned blocks_for(std::int64_t count) {
    const std::int64_t blocks = (count + kThreads - 1) / kThreads;
    return unsigned(blocks < (std::int64_t(1) << 30) ? blocks : std::int64_t(1) << 30);
}

// Calls f(i) for every i below count, whatever the grid.
template <class F>
__device__ void for_each(std::int64_t count, F f) {
    const std::int64_t step = std::int64_t(gridDim.x) * blockDim.x;
    for (std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) f(i);
}

template <class T, class Sum>
__global__ void forward(ConvSpec s, const T* x, const T* w, T* y, std::int64_t count) {
    const std::int64_t in_group = s.in_c / s.groups, out_group = s.out_c / s.groups;
    for_each(count, [&](std::int64_t i) {
        const std::int64_t o = i % s.out_c, column = i / s.out_c % s.out_w, row = i / s.out_c / s.out_w % s.out_h;
        const std::int64_t image = i / s.out_c / s.out_w / s.out_h, first = o / out_group * in_group;
        Sum total = 0;
        for (std::int64_t r = 0; r < s.k_h; ++r)
            for (std::int64_t c = 0; c < s.k_w; ++c) {
                const std::int64_t h = row * s.stride_h - s.pad_h + r * s.dilation_h;
                const std::int64_t v = column * s.stride_w - s.pad_w + c * s.dilation_w;
                if (h < 0 || h >= s.in_h || v < 0 || v >= s.in_w) continue;
                const T* const from = x + ((image * s.in_h + h) * s.in_w + v) * s.in_c + first;
                const T* const weights = w + ((o * s.k_h + r) * s.k_w + c) * in_group;
                for (std::int64_t n = 0; n < in_group; ++n) total += Sum(from[n]) * Sum(weights[n]);
            }
        y[i] = T(total);
    });
}

template <class T, class Sum>
__global__ void backward_data(ConvSpec s, const T* gy, const T* w, T* gx, std::int64_t count) {
    const std::int64_t in_group = s.in_c / s.groups, out_group = s.out_c / s.groups;
    for_each(count, [&](std::int64_t i) {
        const std::int64_t n = i % s.in_c, v = i / s.in_c % s.in_w, h = i / s.in_c / s.in_w % s.in_h;
        const std::int64_t image = i / s.in_c / s.in_w / s.in_h, group = n / in_group;
        Sum total = 0;
        for (std::int64_t r = 0; r < s.k_h; ++r)
            for (std::int64_t c = 0; c < s.k_w; ++c) {
                const std::int64_t above = h + s.pad_h - r * s.dilation_h, left = v + s.pad_w - c * s.dilation_w;
                if (above < 0 || left < 0 || above % s.stride_h != 0 || left % s.stride_w != 0) continue;
                const std::int64_t row = above / s.stride_h, column = left / s.stride_w;
                if (row >= s.out_h || column >= s.out_w) continue;
                const T* const from = gy + ((image * s.out_h + row) * s.out_w + column) * s.out_c;
                for (std::int64_t o = group * out_group; o < (group + 1) * out_group; ++o)
                    total += Sum(from[o]) * Sum(w[((o * s.k_h + r) * s.k_w + c) * in_group + n % in_group]);
            }
        gx[i] = T(total);
    });
}

template <class T, class Sum>
__global__ void backward_weights(ConvSpec s, const T* x, const T* gy, Sum* gw, bool accumulate, std::int64_t count) {
    const std::int64_t in_group = s.in_c / s.groups, out_group = s.out_c / s.groups;
    for_each(count, [&](std::int64_t i) {
        const std::int64_t n = i % in_group, c = i / in_group % s.k_w, r = i / in_group / s.k_w % s.k_h;
        const std::int64_t o = i / in_group / s.k_w / s.k_h, channel = o / out_group * in_group + n;
        Sum total = 0;
        for (std::int64_t image = 0; image < s.batch; ++image)
            for (std::int64_t row = 0; row < s.out_h; ++row)
                for (std::int64_t column = 0; column < s.out_w; ++column) {
                    const std::int64_t h = row * s.stride_h - s.pad_h + r * s.dilation_h;
                    const std::int64_t v = column * s.stride_w - s.pad_w + c * s.dilation_w;
                    if (h < 0 || h >= s.in_h || v < 0 || v >= s.in_w) continue;
                    total += Sum(x[((image * s.in_h + h) * s.in_w + v) * s.in_c + channel]) *
                             Sum(gy[((image * s.out_h + row) * s.out_w + column) * s.out_c + o]);
                }
        gw[i] = accumulate ? gw[i] + total : total;
    });
}

// Calls f(T{}, Sum{}) with the element type and what sums of it are kept in.
template <class F>
void with_types(Dtype dtype, F&& f) {
    if (dtype == Dtype::f64)
        f(double{}, double{});
    else if (dtype == Dtype::f16)
        f(f16{}, float{});
    else if (dtype == Dtype::bf16)
        f(bf16{}, float{});
    else
        f(float{}, float{});
}

}  // namespace

void conv_forward(const ConvSpec& spec, const View& x, const View& w, const View& y, cudaStream_t stream) {
    const std::int64_t count = y.numel();
    if (count == 0) return;
    with_types(x.dtype, [&](auto element, auto sum) {
        using T = decltype(element);
        forward<T, decltype(sum)>
            <<<blocks_for(count), kThreads, 0, stream>>>(spec, x.as<const T>(), w.as<const T>(), y.as<T>(), count);
    });
}

void conv_backward_data(const ConvSpec& spec, const View& gy, const View& w, const View& gx, cudaStream_t stream) {
    const std::int64_t count = gx.numel();
    if (count == 0) return;
    with_types(gy.dtype, [&](auto element, auto sum) {
        using T = decltype(element);
        backward_data<T, decltype(sum)>
            <<<blocks_for(count), kThreads, 0, stream>>>(spec, gy.as<const T>(), w.as<const T>(), gx.as<T>(), count);
    });
}

void conv_backward_weights(const ConvSpec& spec, const View& x, const View& gy, const View& gw, bool accumulate,
                           cudaStream_t stream) {
    const std::int64_t count = gw.numel();
    if (count == 0) return;
    with_types(gy.dtype, [&](auto element, auto sum) {
        using T = decltype(element);
        using Sum = decltype(sum);
        backward_weights<T, Sum><<<blocks_for(count), kThreads, 0, stream>>>(spec, x.as<const T>(), gy.as<const T>(),
                                                                             gw.as<Sum>(), accumulate, count);
    });
}

}  // namespace invar::cuda::direct
