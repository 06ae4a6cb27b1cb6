// Weight and bias gradients of 16-bit convolutions on tensor cores, summed and kept in FP32. (cuDNN rounds them to 16
// bits, or takes an engine without a split of the sum that leaves most of the card idle.)
//
// gw[o, r, c, i] = sum over positions p of gy[p, o] x[p moved by (r, c), i]: a product whose inner dimension is long
// and whose result is small. A block takes 64 output channels, 32 input channels and all taps of the window (or of one
// row of it) and walks over chunks of positions, a rectangle of one image each. The chunk's gradients and the patch of
// x under it lie in shared memory, so that every tap reads the same patch. Blocks that share a result leave their sums
// side by side, and a second kernel adds them up in order.
#include "invar/kernels/cuda/conv.h"
#include "invar/kernels/cuda/device.h"
#include "invar/kernels/cuda/division.cuh"
#include "invar/kernels/cuda/tensor_core.cuh"

namespace invar::cuda {

namespace {

constexpr int kOut = 64, kIn = 32;                       // channels of a block
constexpr int kPitchOut = kOut + 8, kPitchIn = kIn + 8;  // so that eight rows lie in different banks
constexpr int kThreads = 128, kStages = 3;
constexpr std::size_t kStageLimit = 36 << 10;  // bytes: two blocks fit on an H200's multiprocessor
constexpr int kMostPositions = 128;            // of a chunk
constexpr int kSlots = 264;                    // blocks that run at the same time
constexpr unsigned kAddingThreads = 256, kMostRows = 8;

struct Geometry {
    int in_h, in_w, in_c, out_h, out_w, out_c, k_h, k_w;
    int stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
    int rows, columns;         // of output positions in a chunk
    int positions;             // rows * columns, up to a multiple of 16
    int tap_rows, tap_groups;  // rows of the window that a block does, and how many such groups there are
    int patch_h, patch_w;
    int chunks_h, chunks_w;  // in an image
    int in_tiles, out_tiles;
    int chunks, chunks_a_split, splits;
    Division by_columns, by_patch_w;

    INVAR_HD std::size_t stage_bytes() const {
        return std::size_t(positions) * kPitchOut * 2 + std::size_t(patch_h) * std::size_t(patch_w) * kPitchIn * 2;
    }
    std::size_t shared_bytes() const { return kStages * stage_bytes() + std::size_t(positions) * 2; }
    std::int64_t weights() const { return std::int64_t(out_c) * k_h * k_w * in_c; }
    int blocks() const { return in_tiles * out_tiles * tap_groups; }
};

template <class T, int kTaps>
__global__ __launch_bounds__(kThreads, 2) void weights_kernel(const Geometry s, const T* x, const T* gy, float* parts,
                                                              float* bias_parts) {
    extern __shared__ __align__(16) unsigned char memory[];
    const std::size_t stage_bytes = s.stage_bytes();
    auto* const row_of = reinterpret_cast<std::uint16_t*>(memory + kStages * stage_bytes);
    const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;

    const int group = int(blockIdx.x) / (s.in_tiles * s.out_tiles), tile = int(blockIdx.x) % (s.in_tiles * s.out_tiles);
    const int first_in = tile % s.in_tiles * kIn, first_out = tile / s.in_tiles * kOut;
    const int first_row = group * s.tap_rows * s.dilation_h;  // of the patch, beside the window's top
    const bool sums_bias = bias_parts != nullptr && first_in == 0 && group == 0;
    const int split = int(blockIdx.y);
    const int begin = split * s.chunks_a_split, end = min(s.chunks, begin + s.chunks_a_split);

    // Where position j's window begins in the patch; those behind the last see zeros in gy, wherever they look in x.
    for (int j = int(threadIdx.x); j < s.positions; j += kThreads) {
        const int at = j < s.rows * s.columns ? j : 0, row = s.by_columns.of(at), column = at - row * s.columns;
        row_of[j] = std::uint16_t(row * s.stride_h * s.patch_w + column * s.stride_w);
    }

    const auto load = [&](int chunk) {
        unsigned char* const stage = memory + std::size_t(chunk - begin) % kStages * stage_bytes;
        auto* const g_rows = reinterpret_cast<std::uint16_t*>(stage);
        auto* const x_rows = g_rows + s.positions * kPitchOut;
        const int an_image = s.chunks_h * s.chunks_w, image = chunk / an_image, place = chunk - image * an_image;
        const int top = place / s.chunks_w * s.rows, left = place % s.chunks_w * s.columns;
        for (int i = int(threadIdx.x); i < s.positions * (kOut / 8); i += kThreads) {
            const int j = i / (kOut / 8), c = i % (kOut / 8) * 8;
            const int down = s.by_columns.of(j), h = top + down, w = left + j - down * s.columns;
            const bool there = down < s.rows && h < s.out_h && w < s.out_w && first_out + c < s.out_c;
            const std::int64_t from = ((std::int64_t(image) * s.out_h + h) * s.out_w + w) * s.out_c + first_out + c;
            fetch(g_rows + j * kPitchOut + c, gy + (there ? from : 0), there);
        }
        const int above = top * s.stride_h - s.pad_h + first_row, before = left * s.stride_w - s.pad_w;
        for (int i = int(threadIdx.x); i < s.patch_h * s.patch_w * (kIn / 8); i += kThreads) {
            const int row = i / (kIn / 8), c = i % (kIn / 8) * 8;
            const int down = s.by_patch_w.of(row), h = above + down, w = before + row - down * s.patch_w;
            const bool there = h >= 0 && h < s.in_h && w >= 0 && w < s.in_w && first_in + c < s.in_c;
            const std::int64_t from = ((std::int64_t(image) * s.in_h + h) * s.in_w + w) * s.in_c + first_in + c;
            fetch(x_rows + row * kPitchIn + c, x + (there ? from : 0), there);
        }
    };

    // Which tap each half of the warp fetches for its j-th load, as a distance in the patch.
    constexpr int kLoads = (kTaps + 1) / 2;
    int tap_at[kLoads];
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {
        const int tap = min(2 * j + lane / 16, kTaps - 1), r = tap / s.k_w, c = tap - r * s.k_w;
        tap_at[j] = (r * s.dilation_h * s.patch_w + c * s.dilation_w) * kPitchIn + warp * 8;
    }
    const int out_at = (lane % 8 + lane / 16 * 8) * kPitchOut + lane / 8 % 2 * 8;
    const int position_at = lane % 8 + lane / 8 % 2 * 8;

    float sum[4][kTaps][4] = {}, bias_sum[4] = {};
#pragma unroll
    for (int ahead = 0; ahead < kStages - 1; ++ahead) {
        if (begin + ahead < end) load(begin + ahead);
        close_fetches();
    }
    for (int chunk = begin; chunk < end; ++chunk) {
        wait_for_fetches<kStages - 2>();
        __syncthreads();  // this chunk is here, and everybody is done with the one that the next load overwrites
        if (chunk + kStages - 1 < end) load(chunk + kStages - 1);
        close_fetches();
        const unsigned char* const stage = memory + std::size_t(chunk - begin) % kStages * stage_bytes;
        const auto* const g_rows = reinterpret_cast<const std::uint16_t*>(stage);
        const auto* const x_rows = g_rows + s.positions * kPitchOut;
        for (int k = 0; k < s.positions; k += 16) {
            std::uint32_t g[4][4];
#pragma unroll
            for (int i = 0; i < 4; ++i) load_turned(g[i], g_rows + k * kPitchOut + out_at + i * 16);
            const auto* const window = x_rows + row_of[k + position_at] * kPitchIn;
#pragma unroll
            for (int j = 0; j < kLoads; ++j) {
                std::uint32_t two[4];
                load_turned(two, window + tap_at[j]);
#pragma unroll
                for (int i = 0; i < 4; ++i) multiply_add<T>(sum[i][2 * j], g[i], two[0], two[1]);
                if (2 * j + 1 < kTaps) {
#pragma unroll
                    for (int i = 0; i < 4; ++i)
                        multiply_add<T>(sum[i][min(2 * j + 1, kTaps - 1)], g[i], two[2], two[3]);
                }
            }
            if (sums_bias) {
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    if (i == warp) multiply_add<T>(bias_sum, g[i], kOnes<T>, kOnes<T>);
            }
        }
    }

    const int column = first_in + warp * 8 + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int o = first_out + i * 16 + half * 8 + lane / 4;
            if (o >= s.out_c || column >= s.in_c) continue;
            const std::int64_t line = (std::int64_t(split) * s.out_c + o) * s.k_h * s.k_w + group * s.tap_rows * s.k_w;
#pragma unroll
            for (int tap = 0; tap < kTaps; ++tap)
                *reinterpret_cast<float2*>(parts + (line + tap) * s.in_c + column) =
                    make_float2(sum[i][tap][2 * half], sum[i][tap][2 * half + 1]);
        }
    if (sums_bias && lane % 4 == 0) {
        const int o = first_out + warp * 16 + lane / 4;
        if (o < s.out_c) bias_parts[std::int64_t(split) * s.out_c + o] = bias_sum[0];
        if (o + 8 < s.out_c) bias_parts[std::int64_t(split) * s.out_c + o + 8] = bias_sum[2];
    }
}

// Sums that lie side by side, n to a part, and where their total goes.
struct Total {
    const float* parts;
    std::int64_t n;
    float* out;
};

// out[i] (+)= parts[0][i] + parts[1][i] + ..., four at a time; each row of threads adds a stretch of the parts. The
// weights' blocks come first, the bias's behind them.
__global__ __launch_bounds__(kAddingThreads) void add_parts(const Total weights, const Total bias,
                                                            const unsigned weight_blocks, const int count,
                                                            const bool accumulate) {
    const bool first = blockIdx.x < weight_blocks;
    const auto [parts, n, out] = first ? weights : bias;
    __shared__ float4 sums[kAddingThreads];
    const int across = int(blockDim.x), rows = int(blockDim.y), x = int(threadIdx.x), y = int(threadIdx.y);
    const std::int64_t i = (std::int64_t(first ? blockIdx.x : blockIdx.x - weight_blocks) * across + x) * 4;
    const int each = (count + rows - 1) / rows, begin = y * each, end = min(count, begin + each);
    float4 sum = make_float4(0, 0, 0, 0);
    if (i < n) {
#pragma unroll 8
        for (int p = begin; p < end; ++p) {
            const float4 v = *reinterpret_cast<const float4*>(parts + p * n + i);
            sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
        }
    }
    sums[y * across + x] = sum;
    __syncthreads();
    if (y != 0 || i >= n) return;
    for (int row = 1; row < rows; ++row) {
        const float4 v = sums[row * across + x];
        sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    }
    float* const to = out + i;  // a window of a flat store: aligned to a float, no more
    const float four[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) to[k] = accumulate ? to[k] + four[k] : four[k];
}

// As many rows of threads as there are parts for them.
void add_all(const Total& weights, const Total& bias, int count, bool accumulate) {
    unsigned rows = 1;
    while (rows < kMostRows && int(rows) < count) rows *= 2;
    const dim3 threads(kAddingThreads / rows, rows);
    const auto blocks = [&](const Total& t) { return unsigned((t.n + 4 * threads.x - 1) / (4 * threads.x)); };
    add_parts<<<blocks(weights) + blocks(bias), threads, 0, stream()>>>(weights, bias, blocks(weights), count,
                                                                        accumulate);
}

// The rectangle of positions that wastes least of the 16 that a tensor core takes at a time, within shared memory.
bool choose_chunk(Geometry& s) {
    const std::size_t table = kMostPositions * sizeof(std::uint16_t);
    const std::size_t stage_limit = std::min(kStageLimit, (shared_memory_limit() - table) / kStages);
    const int pieces = (s.out_w + 63) / 64;
    s.columns = (s.out_w + pieces - 1) / pieces;
    s.patch_w = (s.columns - 1) * s.stride_w + (s.k_w - 1) * s.dilation_w + 1;
    double best = 0;
    int best_rows = 0;
    for (int rows = 1; rows <= s.out_h && rows * s.columns <= kMostPositions; ++rows) {
        s.rows = rows;
        s.positions = (rows * s.columns + 15) / 16 * 16;
        s.patch_h = (rows - 1) * s.stride_h + (s.tap_rows - 1) * s.dilation_h + 1;
        const std::int64_t places = std::int64_t(s.patch_h) * s.patch_w;
        if (s.stage_bytes() > stage_limit || places > 65535) continue;
        const int bands = (s.out_h + rows - 1) / rows;
        // Rows of the patch that two chunks share are read twice.
        const double halo = double(rows * s.stride_h) / double(s.patch_h);
        const double use = double(s.out_h) * s.columns / (double(bands) * s.positions) * (0.7 + 0.3 * halo);
        if (use > best) best = use, best_rows = rows;
    }
    if (best_rows == 0) return false;
    s.rows = best_rows;
    s.positions = (s.rows * s.columns + 15) / 16 * 16;
    s.patch_h = (s.rows - 1) * s.stride_h + (s.tap_rows - 1) * s.dilation_h + 1;
    s.chunks_h = (s.out_h + s.rows - 1) / s.rows;
    s.chunks_w = pieces;
    s.by_columns = Division(s.columns), s.by_patch_w = Division(s.patch_w);
    return true;
}

template <class T, int kTaps>
void launch(const Geometry& s, const View& x, const View& gy, float* parts, float* bias_parts) {
    const auto kernel = weights_kernel<T, kTaps>;
    INVAR_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(s.shared_bytes())));
    kernel<<<dim3(unsigned(s.blocks()), unsigned(s.splits)), kThreads, s.shared_bytes(), stream()>>>(
        s, x.as<const T>(), gy.as<const T>(), parts, bias_parts);
}

}  // namespace

void add_weight_parts(const float* parts, int count, const View& gw, bool accumulate) {
    add_all({parts, gw.numel(), gw.as<float>()}, {}, count, accumulate);
}

bool conv_backward_weights_by_us(const ConvSpec& c, const View& x, const View& gy, const View& gw, const View& gb,
                                 bool accumulate) {
    const bool square_or_row = (c.k_h == 3 && c.k_w == 3) || c.k_w == 1 || c.k_w == 5 || c.k_w == 7;
    const bool fits = c.in_c % 8 == 0 && c.out_c % 8 == 0 && c.groups == 1 && square_or_row && c.batch < (1 << 20);
    if (!fits || !is_sixteen_bit(gy.dtype) || gw.dtype != Dtype::f32) return false;
    Geometry s{};
    s.in_h = int(c.in_h), s.in_w = int(c.in_w), s.in_c = int(c.in_c);
    s.out_h = int(c.out_h), s.out_w = int(c.out_w), s.out_c = int(c.out_c);
    s.k_h = int(c.k_h), s.k_w = int(c.k_w);
    s.stride_h = int(c.stride_h), s.stride_w = int(c.stride_w), s.pad_h = int(c.pad_h), s.pad_w = int(c.pad_w);
    s.dilation_h = int(c.dilation_h), s.dilation_w = int(c.dilation_w);
    s.tap_rows = c.k_w == 3 ? 3 : 1;
    s.tap_groups = s.k_h / s.tap_rows;
    if (!choose_chunk(s)) return false;
    s.in_tiles = (s.in_c + kIn - 1) / kIn, s.out_tiles = (s.out_c + kOut - 1) / kOut;
    const std::int64_t chunks = c.batch * s.chunks_h * s.chunks_w;
    if (chunks > (std::int64_t(1) << 30)) return false;
    s.chunks = int(chunks);
    const int wanted = std::max(1, std::min(kSlots / s.blocks(), s.chunks));
    s.chunks_a_split = (s.chunks + wanted - 1) / wanted;
    s.splits = (s.chunks + s.chunks_a_split - 1) / s.chunks_a_split;

    const std::int64_t n = s.weights();
    const Scratch parts(std::size_t(n) * std::size_t(s.splits) * 4);
    const Scratch bias_parts(gb ? std::size_t(s.out_c) * std::size_t(s.splits) * 4 : 0);
    const auto run = [&](auto element) {
        using T = decltype(element);
        auto* const sums = static_cast<float*>(parts.data());
        auto* const bias_sums = static_cast<float*>(bias_parts.data());
        if (s.k_w == 3) return launch<T, 9>(s, x, gy, sums, bias_sums);
        if (s.k_w == 1) return launch<T, 1>(s, x, gy, sums, bias_sums);
        if (s.k_w == 5) return launch<T, 5>(s, x, gy, sums, bias_sums);
        launch<T, 7>(s, x, gy, sums, bias_sums);
    };
    if (gy.dtype == Dtype::f16)
        run(f16{});
    else
        run(bf16{});
    const Total weights{static_cast<const float*>(parts.data()), n, gw.as<float>()};
    const Total bias{static_cast<const float*>(bias_parts.data()), gb ? s.out_c : 0, gb.as<float>()};
    add_all(weights, bias, s.splits, accumulate);
    return true;
}

}  // namespace invar::cuda
