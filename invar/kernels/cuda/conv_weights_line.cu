// Weight gradients of 3x3 convolutions that keep the size of the image or halve it, in 16 bits, summed and kept in
// FP32: on the warpgroup products of Hopper (sm_90a).
//
// The images are one long line of pixels, with a column of zeros behind each row and a row of zeros behind each image.
// A window that reaches over an edge finds zeros there, so its nine taps are nine distances on the line, and
//   gw[o, tap, i] = sum over q of gy[q, o] x[q + distance(tap), i]
// is nine products of the same operands. A block takes 64 output and 64 input channels and a stretch of the line; each
// of its three warpgroups a row of the window. The inputs under the nine taps lie in a ring in shared memory, and a tap
// is a place to begin reading: taps side by side are one product, whose columns begin a pixel apart. With a stride of 2
// there are four such lines, of the pixels in even and odd rows and columns, and each tap reads one of them. Blocks
// that share a result leave their sums side by side.
#include "invar/kernels/cuda/conv.h"
#include "invar/kernels/cuda/device.h"
#include "invar/kernels/cuda/division.cuh"
#include "invar/kernels/cuda/tensor_core.cuh"

namespace invar::cuda {

namespace {

constexpr int kChannels = 64;              // of inputs, and of results, of a block: rows of 128 bytes
[[maybe_unused]] constexpr int kTaps = 3;  // of a warpgroup
constexpr int kStages = 4;  // chunks of results: one is multiplied, the one before may still be, two are on their way
constexpr int kAgain = 24;  // rows of a ring that lie behind its end once more: those of a product, and of its taps
constexpr int kThreads = 384;
constexpr int kSlots = 132;  // blocks that run at the same time

// Pixels of a chunk. At 96 every thread loads the same number of pieces; four lines leave no room for so many.
INVAR_HD constexpr int chunk_rows(int stride) {
    return stride == 1 ? 96 : 64;
}

struct Line {
    int height, width, out_c;  // of the results
    int in_h, in_w, in_c;
    int length;  // of the line
    int chunks, chunks_a_split, splits;
    int in_tiles, out_tiles;
    int rings;          // lines of inputs
    int rows;           // of a chunk
    int before, after;  // chunks of inputs that a chunk of results reads beside its own
    Division by_row, by_image;

    // What lies at q: the pixel of the results, or -1 for zeros; and that of the inputs, the first of its two by two
    // where there is a stride, with whether it has a neighbour on the right (1) and below (2) in the lowest bits.
    struct Place {
        int result, inputs;
    };
    INVAR_HD int slots() const { return before + after + kStages; }
    INVAR_HD int ring() const { return slots() * rows; }
    INVAR_HD int pitch() const { return ring() + kAgain; }
    std::size_t shared_bytes() const {
        return 2 * std::size_t(kStages * rows + rings * pitch()) * kChannels + std::size_t(ring()) * sizeof(Place);
    }

    template <int kStride>
    [[maybe_unused]] __device__ Place at(int q) const {
        const int row = by_row.of(max(q, 0)), w = q - row * (width + 1);
        const int image = by_image.of(row), h = row - image * (height + 1);
        if (q < 0 || q >= length || h >= height || w >= width) return {-1, -1};
        const int result = (image * height + h) * width + w;
        const int input = (image * in_h + h * kStride) * in_w + w * kStride;
        return {result, input * 4 + int(w * kStride + 1 < in_w) + 2 * int(h * kStride + 1 < in_h)};
    }
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// A matrix of rows of 128 bytes, of which each eight lie with their pieces of 16 bytes exchanged so that a column
// of them is in different banks. Eight more is the next row; 64 columns more begin at the next row too.
__device__ inline std::uint64_t matrix_at(const void* memory) {
    constexpr std::uint64_t kEightRows = 1024 >> 4, kOneRow = 128 >> 4, kExchanged = 1;
    return __cvta_generic_to_shared(memory) >> 4 | kOneRow << 16 | kEightRows << 32 | kExchanged << 62;
}

// clang-format off
#define INVAR_8(c, i) "+f"(c[i]), "+f"(c[i+1]), "+f"(c[i+2]), "+f"(c[i+3]), "+f"(c[i+4]), "+f"(c[i+5]), "+f"(c[i+6]), "+f"(c[i+7])
#define INVAR_32(c, i) INVAR_8(c, i), INVAR_8(c, i+8), INVAR_8(c, i+16), INVAR_8(c, i+24)
#define INVAR_FIRST "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define INVAR_SECOND "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define INVAR_THIRD "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define INVAR_MULTIPLY_64(types, c) \
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." types " {" INVAR_FIRST "}, %32, %33, 1, 1, 1, 1, 1;" \
                 : INVAR_32(c, 0) : "l"(a), "l"(b))
#define INVAR_MULTIPLY_128(types, c) \
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." types " {" INVAR_FIRST "," INVAR_SECOND "}, %64, %65, 1, 1, 1, 1, 1;" \
                 : INVAR_32(c, 0), INVAR_32(c, 32) : "l"(a), "l"(b))
#define INVAR_MULTIPLY_192(types, c) \
    asm volatile("wgmma.mma_async.sync.aligned.m64n192k16.f32." types " {" INVAR_FIRST "," INVAR_SECOND "," INVAR_THIRD "}, %96, %97, 1, 1, 1, 1, 1;" \
                 : INVAR_32(c, 0), INVAR_32(c, 32), INVAR_32(c, 64) : "l"(a), "l"(b))
// clang-format on

// c += a b, turned over, for a [16, 64] and kTogether times 64 columns b [16, 64] in shared memory; from c[kFirst] on.
template <class T, int kTogether, int kFirst>
__device__ inline void group_multiply_add(float (&c)[kTaps * 32], std::uint64_t a, std::uint64_t b) {
    if constexpr (std::is_same_v<T, f16>) {
        if constexpr (kTogether == 3)
            INVAR_MULTIPLY_192("f16.f16", c);
        else if constexpr (kTogether == 2)
            INVAR_MULTIPLY_128("f16.f16", c);
        else
            INVAR_MULTIPLY_64("f16.f16", (c + kFirst));
    } else {
        if constexpr (kTogether == 3)
            INVAR_MULTIPLY_192("bf16.bf16", c);
        else if constexpr (kTogether == 2)
            INVAR_MULTIPLY_128("bf16.bf16", c);
        else
            INVAR_MULTIPLY_64("bf16.bf16", (c + kFirst));
    }
}

template <class T, int kStride>
__device__ void sum_stretch(const Line& s, const T* x, const T* gy, float* parts, std::uint16_t* memory) {
    constexpr int kRows = chunk_rows(kStride);
    std::uint16_t* const gradients = memory;
    std::uint16_t* const inputs = memory + kStages * kRows * kChannels;
    const int ring = s.ring(), pitch = s.pitch();
    auto* const places = reinterpret_cast<Line::Place*>(inputs + s.rings * pitch * kChannels);
    const int lane = int(threadIdx.x) % 32, group = int(threadIdx.x) / 128, warp = int(threadIdx.x) / 32 % 4;
    const int first_in = int(blockIdx.x) % s.in_tiles * kChannels, first_out = int(blockIdx.x) / s.in_tiles * kChannels;
    const int begin = int(blockIdx.y) * s.chunks_a_split, count = min(s.chunks, begin + s.chunks_a_split) - begin;

    // A thread stays with eight channels, of every 48th pixel.
    constexpr int kEights = kChannels / 8, kApart = kThreads / kEights;
    static_assert(kThreads % kEights == 0 && kApart % 8 == 0);
    const int eight = int(threadIdx.x) % kEights, first_row = int(threadIdx.x) / kEights;
    const bool has_out = first_out + eight * 8 < s.out_c, has_in = first_in + eight * 8 < s.in_c;
    const T* const from_results = gy + first_out + eight * 8;
    const T* const from_inputs = x + first_in + eight * 8;
    const int exchanged = (eight ^ first_row % 8) * 8;

    // Chunks are numbered as those of the inputs, of which the first lies before that of the results. Each is looked up
    // by some of the threads a turn before it is loaded.
    const auto next_slot = [&](int slot) { return slot + 1 == s.slots() ? 0 : slot + 1; };
    const auto look_up = [&](int chunk, int slot) {
        if (int(threadIdx.x) >= kRows) return;
        const int row = int(threadIdx.x);
        places[slot * kRows + row] = s.at<kStride>((begin + chunk - s.before) * kRows + row);
    };
    const auto load_gradients = [&](int stage, int slot) {
#pragma unroll
        for (int row = first_row; row < kRows; row += kApart) {
            const int pixel = places[slot * kRows + row].result;
            const bool there = pixel >= 0 && has_out;
            fetch(gradients + (stage * kRows + row) * kChannels + exchanged,
                  from_results + (there ? std::int64_t(pixel) * s.out_c : 0), there);
        }
    };
    const auto load_inputs = [&](int slot) {
#pragma unroll
        for (int row = first_row; row < kRows; row += kApart) {
            const int place = places[slot * kRows + row].inputs;
#pragma unroll
            for (int line = 0; line < kStride * kStride; ++line) {
                const bool there = place >= 0 && has_in && (place & line) == line;
                const std::int64_t pixel = (place >> 2) + (line / 2) * s.in_w + line % 2;
                const T* const from = from_inputs + (there ? pixel * s.in_c : 0);
                std::uint16_t* const to = inputs + (line * pitch + slot * kRows + row) * kChannels + exchanged;
                fetch(to, from, there);
                if (slot == 0 && row < kAgain) fetch(to + ring * kChannels, from, there);
            }
        }
    };
    const int ahead = s.before + s.after;
    for (int chunk = 0; chunk < ahead + kStages; ++chunk) look_up(chunk, chunk);
    __syncthreads();
    for (int chunk = 0; chunk < ahead; ++chunk) load_inputs(chunk);
    int gradient_slot = s.before, input_slot = ahead, look_up_slot = 0;
#pragma unroll
    for (int chunk = 0; chunk < kStages - 2; ++chunk) {
        if (chunk < count) load_gradients(chunk, gradient_slot), load_inputs(input_slot);
        gradient_slot = next_slot(gradient_slot), input_slot = next_slot(input_slot);
        close_fetches();
    }

    // Where the first tap of the row begins to read, beside the chunk's own pixels. With a stride of 2 the middle row
    // and column of the window have even numbers and the others odd ones, of which the first lies before: the outer
    // taps are side by side on their line, and the middle one is on the other, a pixel on.
    const int up = kStride == 1 ? group - 1 : -int(group == 0), line = kStride == 1 || group == 1 ? 0 : 2;
    int tap_at = s.before * kRows + up * (s.width + 1) - 1;
    const std::uint64_t results = matrix_at(gradients), even = matrix_at(inputs + line * pitch * kChannels),
                        odd = matrix_at(inputs + (line + 1) * pitch * kChannels);
    constexpr int kRow = 128 >> 4;  // in the units of a matrix

    float sum[kTaps * 32] = {};
    int stage = 0, next_stage = kStages - 2;
    for (int chunk = 0; chunk < count; ++chunk) {
        wait_for_fetches<kStages - 3>();
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // the products read what fetches wrote
        __syncthreads();  // this chunk is here, and everybody is done with the last but one, which is overwritten next
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int k = 0; k < kRows / 16; ++k) {
            const int row = tap_at + k * 16, at = row < ring ? row : row - ring;
            const std::uint64_t a = results + std::uint64_t((stage * kRows + k * 16) * kRow);
            if constexpr (kStride == 1) {
                group_multiply_add<T, 3, 0>(sum, a, even + std::uint64_t(at * kRow));
            } else {
                group_multiply_add<T, 2, 0>(sum, a, odd + std::uint64_t(at * kRow));
                group_multiply_add<T, 1, 64>(sum, a, even + std::uint64_t((at + 1) * kRow));
            }
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        if (chunk + kStages - 2 < count) load_gradients(next_stage, gradient_slot), load_inputs(input_slot);
        close_fetches();
        look_up(chunk + ahead + kStages, look_up_slot);
        look_up_slot = next_slot(look_up_slot), gradient_slot = next_slot(gradient_slot),
        input_slot = next_slot(input_slot);
        stage = (stage + 1) % kStages, next_stage = (next_stage + 1) % kStages;
        tap_at += kRows;
        if (tap_at >= ring) tap_at -= ring;
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
    for (float& one : sum) asm volatile("" : "+f"(one)::"memory");  // read from here on

    const int column = first_in + lane % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int o = first_out + warp * 16 + half * 8 + lane / 4;
        if (o >= s.out_c) continue;
        float* const row = parts + ((std::int64_t(blockIdx.y) * s.out_c + o) * 9 + group * kTaps) * s.in_c;
#pragma unroll
        for (int n = 0; n < kTaps; ++n) {
            const int tap = kStride == 1 || n == 0 ? n : 3 - n;
#pragma unroll
            for (int j = 0; j < kEights; ++j)
                if (column + j * 8 < s.in_c)
                    *reinterpret_cast<float2*>(row + tap * s.in_c + column + j * 8) =
                        make_float2(sum[n * 32 + j * 4 + half * 2], sum[n * 32 + j * 4 + half * 2 + 1]);
        }
    }
}

#endif

// Compiled for other architectures it does nothing, and is known by needing few registers.
template <class T, int kStride>
__global__ __launch_bounds__(kThreads, 1) void line_kernel(const Line s, const T* x, const T* gy, float* parts) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) std::uint16_t memory[];
    sum_stretch<T, kStride>(s, x, gy, parts, memory);
#endif
}

bool runs_here() {
    static const bool answer = [] {
        cudaFuncAttributes attributes{};
        const cudaError_t status = cudaFuncGetAttributes(&attributes, line_kernel<f16, 1>);
        (void)cudaGetLastError();
        return status == cudaSuccess && attributes.numRegs > 64;
    }();
    return answer;
}

template <class T>
void launch(const Line& s, const View& x, const View& gy, float* parts) {
    const auto kernel = s.rings == 1 ? line_kernel<T, 1> : line_kernel<T, 2>;
    INVAR_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(s.shared_bytes())));
    const dim3 grid(unsigned(s.in_tiles * s.out_tiles), unsigned(s.splits));
    kernel<<<grid, kThreads, s.shared_bytes(), stream()>>>(s, x.as<const T>(), gy.as<const T>(), parts);
}

}  // namespace

bool conv_backward_weights_on_a_line(const ConvSpec& c, const View& x, const View& gy, const View& gw,
                                     bool accumulate) {
    const bool around = c.k_h == 3 && c.k_w == 3 && c.pad_h == 1 && c.pad_w == 1;
    const bool plain = c.dilation_h == 1 && c.dilation_w == 1 && c.groups == 1;
    if (!around || c.stride_h != c.stride_w || c.stride_h > 2 || !plain || c.in_c % 8 != 0 || c.out_c % 8 != 0)
        return false;
    if (!is_sixteen_bit(gy.dtype) || gw.dtype != Dtype::f32) return false;
    const std::int64_t length = c.batch * (c.out_h + 1) * (c.out_w + 1);
    // Few channels leave most of a tile empty, and short lines most of the card.
    const bool counted = length < std::int64_t(1) << 29 && c.batch * c.in_h * c.in_w < std::int64_t(1) << 29;
    if (!counted || length < 1 << 12 || c.in_c < 48 || c.out_c < 48 || !runs_here()) return false;
    Line s{};
    s.height = int(c.out_h), s.width = int(c.out_w), s.out_c = int(c.out_c);
    s.in_h = int(c.in_h), s.in_w = int(c.in_w), s.in_c = int(c.in_c);
    s.length = int(length);
    s.by_row = Division(s.width + 1), s.by_image = Division(s.height + 1);
    s.rings = int(c.stride_h * c.stride_w);
    s.rows = chunk_rows(int(c.stride_h));
    s.before = (s.width + 2 + s.rows - 1) / s.rows;
    s.after = c.stride_h == 1 ? s.before : 0;
    if (s.shared_bytes() > shared_memory_limit()) return false;
    s.chunks = (s.length + s.rows - 1) / s.rows;
    s.in_tiles = (s.in_c + kChannels - 1) / kChannels, s.out_tiles = (s.out_c + kChannels - 1) / kChannels;
    const int wanted = std::max(1, std::min(kSlots / (s.in_tiles * s.out_tiles), s.chunks));
    s.chunks_a_split = (s.chunks + wanted - 1) / wanted;
    s.splits = (s.chunks + s.chunks_a_split - 1) / s.chunks_a_split;
    if (s.splits > 65535) return false;

    const std::int64_t n = gw.numel();
    const Scratch parts(std::size_t(n) * std::size_t(s.splits) * 4);
    auto* const sums = static_cast<float*>(parts.data());
    gy.dtype == Dtype::f16 ? launch<f16>(s, x, gy, sums) : launch<bf16>(s, x, gy, sums);
    add_weight_parts(sums, s.splits, gw, accumulate);
    return true;
}

}  // namespace invar::cuda
