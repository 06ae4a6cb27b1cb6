// Convolutions of images with few channels, as the first layer of a network sees them, in 16 bits: a window of at most
// 31 values. The work is to write (or read) the other side at the speed of memory; libraries that pad the channels to
// eight do many times that. Windows are gathered from shared memory straight into a tensor core's operands; bias and
// ReLU are applied on the way, and the bias gradient is one more row of the weight gradient's product.
#include "invar/kernels/cuda/conv.h"
#include "invar/kernels/cuda/device.h"
#include "invar/kernels/cuda/tensor_core.cuh"
#include "invar/kernels/cuda/vector.cuh"

namespace invar::cuda {

namespace {

constexpr int kOut = 32;             // output channels of a block
constexpr int kPitch = kOut + 8;     // so that eight rows lie in different banks
constexpr int kMostValues = 31;      // of a window: one more is the bias gradient's
constexpr int kMostPositions = 512;  // of a chunk: some whole rows of an image
constexpr int kWarps = kThreads / 32;
constexpr int kBackwardBlocks = 528;

struct Geometry {
    int in_h, in_w, in_c, out_h, out_w, out_c, k_w;
    int stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
    int values;            // of a window: k_h * k_w * in_c
    int rows;              // of outputs in a chunk
    int positions;         // rows * out_w, up to a multiple of 16
    int patch_h, patch_w;  // the inputs under a chunk, padding included
    int bands;             // chunks in an image
    int chunks;
    bool relu;

    // Where the n-th value of a window lies behind its first one, in the patch.
    __device__ int value_at(int n) const {
        const int tap = n / in_c, r = tap / k_w, c = tap - r * k_w;
        return (r * dilation_h * patch_w + c * dilation_w) * in_c + n - tap * in_c;
    }
};

// The inputs under a chunk, with zeros around the image.
template <class T>
__device__ void load_patch(const Geometry& s, const T* x, int image, int top, std::uint16_t* patch) {
    const int width = s.patch_w * s.in_c, above = top * s.stride_h - s.pad_h;
    for (int row = int(threadIdx.x) / 32; row < s.patch_h; row += kWarps) {
        const int h = above + row;
        const bool inside = h >= 0 && h < s.in_h;
        const std::int64_t line = (std::int64_t(image) * s.in_h + h) * s.in_w * s.in_c;
        for (int i = int(threadIdx.x) % 32; i < width; i += 32) {
            const int at = i - s.pad_w * s.in_c;
            patch[row * width + i] = inside && at >= 0 && at < s.in_w * s.in_c ? x[line + at].bits : std::uint16_t(0);
        }
    }
}

// Where each position's window begins in the patch.
__device__ void fill_table(const Geometry& s, std::uint16_t* begins) {
    for (int j = int(threadIdx.x); j < s.positions; j += kThreads) {
        const int row = j / s.out_w, column = j - row * s.out_w;
        begins[j] = row < s.rows ? std::uint16_t((row * s.stride_h * s.patch_w + column * s.stride_w) * s.in_c) : 0;
    }
}

__device__ std::uint32_t two(std::uint16_t low, std::uint16_t high) {
    return std::uint32_t(low) | std::uint32_t(high) << 16;
}

// y = relu(x * w + bias): positions down, output channels across. kSteps: 16 values of the window each.
template <class T, int kSteps>
__global__ __launch_bounds__(kThreads) void forward(const Geometry s, const T* x, const T* w, const T* bias, T* y) {
    extern __shared__ std::uint16_t memory[];
    std::uint16_t* const begins = memory;
    std::uint16_t* const patch = memory + s.positions;
    const int lane = int(threadIdx.x) % 32, row = lane / 4, quarter = lane % 4;
    const int image = int(blockIdx.x) / s.bands, top = (int(blockIdx.x) - image * s.bands) * s.rows;
    const int first_out = int(blockIdx.y) * kOut;
    fill_table(s, begins);
    load_patch(s, x, image, top, patch);

    // Columns are dealt out so that a lane ends up with eight channels that lie side by side.
    std::uint32_t weights[kSteps][4][2];
    int at[kSteps][4];
    bool there[kSteps][4];
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
#pragma unroll
        for (int v = 0; v < 4; ++v) {
            const int n = k * 16 + quarter * 2 + v % 2 + v / 2 * 8;
            there[k][v] = n < s.values;
            at[k][v] = there[k][v] ? s.value_at(n) : 0;
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int o = first_out + row / 2 * 8 + 2 * j + row % 2;
            std::uint16_t four[4];
#pragma unroll
            for (int v = 0; v < 4; ++v) {
                const int n = k * 16 + quarter * 2 + v % 2 + v / 2 * 8;
                four[v] = o < s.out_c && n < s.values ? w[std::int64_t(o) * s.values + n].bits : std::uint16_t(0);
            }
            weights[k][j][0] = two(four[0], four[1]), weights[k][j][1] = two(four[2], four[3]);
        }
    }
    const int out = first_out + quarter * 8;
    float start[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) start[i] = bias != nullptr && out < s.out_c ? widen(bias[out + i]) : 0.0f;
    __syncthreads();

    const int count = min(s.rows, s.out_h - top) * s.out_w;
    const std::int64_t first = (std::int64_t(image) * s.out_h + top) * s.out_w;
    for (int tile = int(threadIdx.x) / 32 * 16; tile < count; tile += kWarps * 16) {
        const std::uint16_t* const high = patch + begins[tile + row];
        const std::uint16_t* const low = patch + begins[tile + row + 8];
        float sum[4][4];
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[j][0] = sum[j][2] = start[2 * j], sum[j][1] = sum[j][3] = start[2 * j + 1];
#pragma unroll
        for (int k = 0; k < kSteps; ++k) {
            std::uint16_t h[4], l[4];
#pragma unroll
            for (int v = 0; v < 4; ++v) {
                h[v] = there[k][v] ? high[at[k][v]] : std::uint16_t(0);
                l[v] = there[k][v] ? low[at[k][v]] : std::uint16_t(0);
            }
            const std::uint32_t a[4] = {two(h[0], h[1]), two(l[0], l[1]), two(h[2], h[3]), two(l[2], l[3])};
#pragma unroll
            for (int j = 0; j < 4; ++j) multiply_add<T>(sum[j], a, weights[k][j][0], weights[k][j][1]);
        }
        if (out >= s.out_c) continue;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int position = tile + row + half * 8;
            if (position >= count) continue;
            float values[8];
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const float v = sum[i / 2][half * 2 + i % 2];
                values[i] = s.relu && v < 0.0f ? 0.0f : v;  // NaN is passed on
            }
            Pack<T, 8> pack;
            pack.pack(values);
            pack.write(y + (first + position) * s.out_c + out);
        }
    }
}

// parts[block][n][o] = sum over the block's positions of the n-th value of the window times gy; row `values` of a
// window is 1, so that it sums gy itself. Where there was a ReLU, gy counts where its result y was above zero, or NaN.
template <class T, int kTiles>
__global__ __launch_bounds__(kThreads) void backward_weights(const Geometry s, const T* x, const T* gy, const T* y,
                                                             float* parts) {
    extern __shared__ __align__(16) std::uint16_t memory[];
    std::uint16_t* const gradients = memory;
    std::uint16_t* const begins = gradients + s.positions * kPitch;
    std::uint16_t* const patch = begins + s.positions;
    const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32, row = lane / 4, quarter = lane % 4;
    const int first_out = int(blockIdx.y) * kOut;
    fill_table(s, begins);

    int at[kTiles][2];
    std::uint16_t otherwise[kTiles][2];  // what stands where there is no such value
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int n = m * 16 + half * 8 + row;
            at[m][half] = n < s.values ? s.value_at(n) : -1;
            otherwise[m][half] = n == s.values ? std::uint16_t(kOnes<T>) : std::uint16_t(0);
        }

    float sum[kTiles][4][4] = {};
    for (int chunk = int(blockIdx.x); chunk < s.chunks; chunk += int(gridDim.x)) {
        const int image = chunk / s.bands, top = (chunk - image * s.bands) * s.rows;
        const int count = min(s.rows, s.out_h - top) * s.out_w;
        const std::int64_t first = (std::int64_t(image) * s.out_h + top) * s.out_w;
        __syncthreads();  // the chunk before has been used
        load_patch(s, x, image, top, patch);
        for (int i = int(threadIdx.x); i < s.positions * (kOut / 8); i += kThreads) {
            const int j = i / (kOut / 8), o = first_out + i % (kOut / 8) * 8;
            uint4 eight = make_uint4(0, 0, 0, 0);
            if (j < count && o < s.out_c) {
                eight = *reinterpret_cast<const uint4*>(gy + (first + j) * s.out_c + o);
                if (s.relu) {
                    Pack<T, 8> g, result;
                    result.read(y + (first + j) * s.out_c + o);
                    g.read(gy + (first + j) * s.out_c + o);
                    float v[8], passed[8];
                    result.unpack(passed), g.unpack(v);
#pragma unroll
                    for (int c = 0; c < 8; ++c) v[c] = passed[c] <= 0.0f ? 0.0f : v[c];
                    g.pack(v);
                    g.write(reinterpret_cast<T*>(&eight));
                }
            }
            *reinterpret_cast<uint4*>(gradients + j * kPitch + i % (kOut / 8) * 8) = eight;
        }
        __syncthreads();
        for (int k = warp * 16; k < s.positions; k += kWarps * 16) {
            std::uint32_t g[2][4];
#pragma unroll
            for (int j = 0; j < 2; ++j)
                load_turned(g[j], gradients + (k + lane % 8 + lane / 8 % 2 * 8) * kPitch + (2 * j + lane / 16) * 8);
            int begin[4];
#pragma unroll
            for (int v = 0; v < 4; ++v) begin[v] = begins[k + quarter * 2 + v % 2 + v / 2 * 8];
#pragma unroll
            for (int m = 0; m < kTiles; ++m) {
                std::uint16_t high[4], low[4];
#pragma unroll
                for (int v = 0; v < 4; ++v) {
                    high[v] = at[m][0] >= 0 ? patch[begin[v] + at[m][0]] : otherwise[m][0];
                    low[v] = at[m][1] >= 0 ? patch[begin[v] + at[m][1]] : otherwise[m][1];
                }
                const std::uint32_t a[4] = {two(high[0], high[1]), two(low[0], low[1]), two(high[2], high[3]),
                                            two(low[2], low[3])};
#pragma unroll
                for (int j = 0; j < 4; ++j) multiply_add<T>(sum[m][j], a, g[j / 2][j % 2 * 2], g[j / 2][j % 2 * 2 + 1]);
            }
        }
    }

    // The warps' sums together, in order, then out.
    auto* const sums = reinterpret_cast<float*>(memory);
    for (int turn = 0; turn < kWarps; ++turn) {
        __syncthreads();
        if (turn != warp) continue;
#pragma unroll
        for (int m = 0; m < kTiles; ++m)
#pragma unroll
            for (int j = 0; j < 4; ++j)
#pragma unroll
                for (int v = 0; v < 4; ++v) {
                    float& to = sums[(m * 16 + v / 2 * 8 + row) * kOut + j * 8 + quarter * 2 + v % 2];
                    to = turn == 0 ? sum[m][j][v] : to + sum[m][j][v];
                }
    }
    __syncthreads();
    float* const to = parts + (std::int64_t(blockIdx.y) * gridDim.x + blockIdx.x) * (kTiles * 16 * kOut);
    for (int i = int(threadIdx.x); i < kTiles * 16 * kOut; i += kThreads) to[i] = sums[i];
}

// One block a value of the window and a group of channels; its rows of threads add a stretch of the parts each.
__global__ __launch_bounds__(kThreads) void gather_weights(const Geometry s, const float* parts, const int blocks,
                                                           const int size, float* gw, float* gb,
                                                           const bool accumulate) {
    __shared__ float sums[kWarps][32];
    const int n = int(blockIdx.x), lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
    const float* const from = parts + std::int64_t(blockIdx.y) * blocks * size + n * kOut + lane;
    const int each = (blocks + kWarps - 1) / kWarps, begin = warp * each, end = min(blocks, begin + each);
    float sum = 0;
#pragma unroll 8
    for (int b = begin; b < end; ++b) sum += from[std::int64_t(b) * size];
    sums[warp][lane] = sum;
    __syncthreads();
    const int o = int(blockIdx.y) * kOut + lane;
    if (warp != 0 || o >= s.out_c) return;
#pragma unroll
    for (int w = 1; w < kWarps; ++w) sum += sums[w][lane];
    float* const to = n < s.values ? gw + std::int64_t(o) * s.values + n : gb != nullptr ? gb + o : nullptr;
    if (to != nullptr) *to = accumulate ? *to + sum : sum;
}

bool make_geometry(const ConvSpec& c, Dtype dtype, Geometry& s) {
    const std::int64_t values = c.k_h * c.k_w * c.in_c;
    if (!is_sixteen_bit(dtype) || c.groups != 1 || values > kMostValues || c.out_c % 8 != 0) return false;
    if (c.out_w > kMostPositions || c.out_h > 1 << 20 || c.batch > 1 << 20) return false;
    s.in_h = int(c.in_h), s.in_w = int(c.in_w), s.in_c = int(c.in_c);
    s.out_h = int(c.out_h), s.out_w = int(c.out_w), s.out_c = int(c.out_c), s.k_w = int(c.k_w);
    s.stride_h = int(c.stride_h), s.stride_w = int(c.stride_w), s.pad_h = int(c.pad_h), s.pad_w = int(c.pad_w);
    s.dilation_h = int(c.dilation_h), s.dilation_w = int(c.dilation_w);
    s.values = int(values);
    s.relu = c.activation == Activation::relu;
    s.patch_w = (s.out_w - 1) * s.stride_w + (s.k_w - 1) * s.dilation_w + 1;
    const int bands = (s.out_h * s.out_w + kMostPositions - 1) / kMostPositions;
    s.rows = std::min((s.out_h + bands - 1) / bands, kMostPositions / s.out_w);
    s.bands = (s.out_h + s.rows - 1) / s.rows;
    s.positions = (s.rows * s.out_w + 15) / 16 * 16;
    s.patch_h = (s.rows - 1) * s.stride_h + (int(c.k_h) - 1) * s.dilation_h + 1;
    const std::int64_t chunks = c.batch * s.bands, patch = std::int64_t(s.patch_h) * s.patch_w * s.in_c;
    s.chunks = int(std::min<std::int64_t>(chunks, 0x7fffffff));
    return chunks < 0x7fffffff && patch < 20000;
}

unsigned groups_of(const Geometry& s) {
    return unsigned((s.out_c + kOut - 1) / kOut);
}

template <class F>
void with_element(Dtype dtype, const F& f) {
    if (dtype == Dtype::f16)
        f(f16{});
    else
        f(bf16{});
}

template <class Kernel>
std::size_t with_shared(Kernel kernel, std::size_t values) {
    INVAR_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(values * 2)));
    return values * 2;
}

}  // namespace

bool first_conv_forward(const ConvSpec& spec, const View& x, const View& w, const View& bias, const View& y) {
    Geometry s{};
    if (!make_geometry(spec, x.dtype, s)) return false;
    const dim3 grid(unsigned(s.chunks), groups_of(s));
    const std::size_t values = std::size_t(s.positions) + std::size_t(s.patch_h) * s.patch_w * s.in_c;
    with_element(x.dtype, [&](auto element) {
        using T = decltype(element);
        const auto kernel = s.values <= 16 ? forward<T, 1> : forward<T, 2>;
        kernel<<<grid, kThreads, with_shared(kernel, values), stream()>>>(s, x.as<const T>(), w.as<const T>(),
                                                                          bias.as<const T>(), y.as<T>());
    });
    return true;
}

bool first_conv_backward_weights(const ConvSpec& spec, const View& x, const View& gy, const View& y, const View& gw,
                                 const View& gb, bool accumulate) {
    Geometry s{};
    if (!make_geometry(spec, x.dtype, s) || gw.dtype != Dtype::f32) return false;
    const int tiles = s.values < 16 ? 1 : 2, size = tiles * 16 * kOut, blocks = std::min(s.chunks, kBackwardBlocks);
    const std::size_t values = std::max(
        std::size_t(s.positions) * (kPitch + 1) + std::size_t(s.patch_h) * s.patch_w * s.in_c, std::size_t(size) * 2);
    const Scratch parts(std::size_t(blocks) * groups_of(s) * std::size_t(size) * 4);
    auto* const sums = static_cast<float*>(parts.data());
    with_element(x.dtype, [&](auto element) {
        using T = decltype(element);
        const auto kernel = tiles == 1 ? backward_weights<T, 1> : backward_weights<T, 2>;
        kernel<<<dim3(unsigned(blocks), groups_of(s)), kThreads, with_shared(kernel, values), stream()>>>(
            s, x.as<const T>(), gy.as<const T>(), y.as<const T>(), sums);
    });
    gather_weights<<<dim3(unsigned(s.values + 1), groups_of(s)), kThreads, 0, stream()>>>(
        s, sums, blocks, size, gw.as<float>(), gb.as<float>(), accumulate);
    return true;
}

}  // namespace invar::cuda
