// What attention's own kernels share: dropout of weights under recording, and the pieces of the fused kernels in 16
// bits. Those work on tiles of 64 positions in shared memory and multiply them on tensor cores.
#pragma once

#include "invar/kernels/cuda/attention.h"
#include "invar/kernels/cuda/brief.cuh"
#include "invar/kernels/cuda/device.h"
#include "invar/kernels/cuda/recording.h"
#include "invar/kernels/cuda/tensor_core.cuh"
#include "invar/kernels/cuda/vector.cuh"

namespace invar::cuda {

// Dropout of single weights; in recorded work the sequence starts where a counter in device memory says.
struct WeightDrop {
    DropRule rule;
    bool on;
    RngState rng;
    const std::uint64_t* base = nullptr;  // nullptr: at rng.offset

    explicit WeightDrop(const AttentionSpec& spec) : rule(spec.dropout), on(spec.dropout > 0), rng(spec.rng) {
        if (const RecordedRandom* random = recorded_random(); random != nullptr && on) {
            rng = random->from_counter(rng);
            base = random->counter();
        }
    }
    __device__ RngState sequence() const { return {rng.seed, rng.offset + (base == nullptr ? 0 : *base)}; }
};

namespace flash {

inline constexpr int kTile = 64;  // keys or queries of a tile
inline constexpr int kWarps = 4;  // of a block
inline constexpr int kBlockSize = kWarps * kWarp;
inline constexpr float kLog2E = 1.44269504f;
inline constexpr unsigned kAll = 0xffffffffu;

// The documents of a tile of positions: as keys, of those that are seen alone (none: low above high), and as queries.
struct TileDocuments {
    int low, high;
    int query_low, query_high;
    bool all_seen;
};

// What backward asks of a query: where its weights are 2^(x - base), and the sum of its weights times their gradients,
// times the scale.
struct RowNumbers {
    float base, mean;
};

// A tensor [batch, heads, length, width] with neighbours of a width side by side.
template <class T>
struct Operand {
    T* data;
    std::int64_t sample, head, row;  // strides
    explicit Operand(const View& v) : data(v.as<T>()), sample(v.stride[0]), head(v.stride[1]), row(v.stride[2]) {}
    __device__ T* at(int b, int h) const { return data + b * sample + h * head; }
};

struct Problem {
    int heads, kv_heads, group, queries, keys, width;
    bool causal;
    float scale, scale2;  // of the products; and times log2(e), since powers are taken of 2
    // What only the kernels for any rule look at.
    AttentionRule rule;
    WeightDrop drop;
    int key_tiles;
    const TileDocuments* documents = nullptr;  // [batch, key tiles], where a query may be blind

    explicit Problem(const AttentionSpec& s)
        : heads(int(s.heads)),
          kv_heads(int(s.kv_heads)),
          group(int(s.group())),
          queries(int(s.queries)),
          keys(int(s.keys)),
          width(int(s.width)),
          causal(s.causal),
          scale(float(s.scale)),
          scale2(float(s.scale * 1.4426950408889634)),
          rule(s),
          drop(s),
          key_tiles(int(divide_up(s.keys, kTile))) {}
    // Whether some pair of a tile of keys and a range of queries' documents may see each other, and whether all do.
    __device__ bool touch(int b, int tile, int low, int high) const {
        if (documents == nullptr) return true;
        const TileDocuments& d = documents[b * key_tiles + tile];
        return d.high >= low && d.low <= high;
    }
    __device__ bool all_see(int b, int tile, int low, int high) const {
        if (documents == nullptr) return true;
        const TileDocuments& d = documents[b * key_tiles + tile];
        return d.all_seen && d.low == low && d.high == low && high == low;
    }
    // The documents of the queries in [first, end).
    __device__ int2 query_documents(int b, int first, int end) const {
        if (rule.documents == nullptr) return make_int2(0, 0);
        int2 range = make_int2(0x7fffffff, -0x7fffffff - 1);
        for (int tile = first / kTile; tile < key_tiles && tile * kTile < end; ++tile) {
            const TileDocuments& d = documents[b * key_tiles + tile];
            range.x = min(range.x, d.query_low), range.y = max(range.y, d.query_high);
        }
        return range;
    }
};

// --- tiles in shared memory: rows of kWidth values whose packs of eight are dealt out so that eight rows lie in
// different banks ---

template <int kWidth>
__device__ inline int spot(int row, int pack) {
    return row * kWidth + ((pack ^ (row & 7)) << 3);
}

// kRows rows from `first` on, zeros behind the last row and the last column.
template <int kWidth, int kRows, class T>
__device__ inline void fetch_tile(std::uint16_t* tile, const T* from, std::int64_t stride, int first, int rows,
                                  int width) {
    constexpr int kPacks = kWidth / 8, kRowsAtOnce = kBlockSize / kPacks;
    const int pack = int(threadIdx.x) % kPacks, top = int(threadIdx.x) / kPacks;
#pragma unroll
    for (int i = 0; i < kRows / kRowsAtOnce; ++i) {
        const int row = top + i * kRowsAtOnce;
        const bool there = first + row < rows && pack * 8 < width;
        fetch(tile + spot<kWidth>(row, pack), there ? from + (first + row) * stride + pack * 8 : from, there);
    }
}

// --- operands of tensor cores from tiles; rows count from `row`, columns in steps of 16 ---

// a [16, 16]: 16 rows, one step.
template <int kWidth>
__device__ inline void load_left(std::uint32_t (&a)[4], const std::uint16_t* tile, int row, int step) {
    const int lane = int(threadIdx.x) % kWarp;
    load_straight(a, tile + spot<kWidth>(row + lane % 16, 2 * step + lane / 16));
}
// b [16, 16] as two of eight columns: one step of 16 rows, turned over.
template <int kWidth>
__device__ inline void load_right(std::uint32_t (&b)[4], const std::uint16_t* tile, int row, int step) {
    const int lane = int(threadIdx.x) % kWarp;
    load_straight(b, tile + spot<kWidth>(row + lane / 16 * 8 + lane % 8, 2 * step + lane / 8 % 2));
}
// b [16, 16] as two of eight columns: 16 rows, one step, as they are.
template <int kWidth>
__device__ inline void load_right_upright(std::uint32_t (&b)[4], const std::uint16_t* tile, int row, int step) {
    const int lane = int(threadIdx.x) % kWarp;
    load_turned(b, tile + spot<kWidth>(row + lane % 16, 2 * step + lane / 16));
}

// The rows of a product's left side that a warp works on, kSlabs times 16: in registers where kHeld, else read from
// their tile again and again.
template <int kWidth, int kSlabs, bool kHeld>
struct LeftRows {
    const std::uint16_t* tile;
    int row;
    std::uint32_t held[kHeld ? kWidth / 16 : 1][kSlabs][4];

    __device__ LeftRows(const std::uint16_t* from, int first) : tile(from), row(first) {
        if constexpr (kHeld) {
#pragma unroll
            for (int step = 0; step < kWidth / 16; ++step)
#pragma unroll
                for (int s = 0; s < kSlabs; ++s) load_left<kWidth>(held[step][s], tile, row + 16 * s, step);
        }
    }
    __device__ void load(std::uint32_t (&a)[kSlabs][4], int step) const {
#pragma unroll
        for (int s = 0; s < kSlabs; ++s) {
            if constexpr (kHeld) {
#pragma unroll
                for (int i = 0; i < 4; ++i) a[s][i] = held[step][s][i];
            } else {
                load_left<kWidth>(a[s], tile, row + 16 * s, step);
            }
        }
    }
};

// Sums of kSlabs times 16 rows: [s][n] are columns 8 n ... 8 n + 7, dealt out to lanes as multiply_add says.
template <int kSlabs, int kColumns>
using Sums = float[kSlabs][kColumns / 8][4];

// sums = left times rows of a tile from `first` on turned over, along the width.
template <class T, int kColumns, int kWidth, int kSlabs, bool kHeld>
__device__ inline void products(Sums<kSlabs, kColumns>& sums, const LeftRows<kWidth, kSlabs, kHeld>& left,
                                const std::uint16_t* tile, int first = 0) {
#pragma unroll
    for (int i = 0; i < kSlabs * kColumns / 2; ++i) sums[i / (kColumns / 2)][i / 4 % (kColumns / 8)][i % 4] = 0.0f;
#pragma unroll
    for (int step = 0; step < kWidth / 16; ++step) {
        std::uint32_t a[kSlabs][4];
        left.load(a, step);
#pragma unroll
        for (int j = 0; j < kColumns / 16; ++j) {
            std::uint32_t b[4];
            load_right<kWidth>(b, tile, first + 16 * j, step);
#pragma unroll
            for (int s = 0; s < kSlabs; ++s) {
                multiply_add<T>(sums[s][2 * j], a[s], b[0], b[1]);
                multiply_add<T>(sums[s][2 * j + 1], a[s], b[2], b[3]);
            }
        }
    }
}

template <class T>
__device__ inline std::uint32_t packed(float low, float high) {
    std::uint32_t both;
    if constexpr (std::is_same_v<T, bf16>)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    else
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

// sums += weights, rounded to 16 bits, times rows of a tile from `first` on as they are, along those rows.
template <class T, int kWidth, int kColumns, int kSlabs>
__device__ inline void add_weighted(Sums<kSlabs, kWidth>& sums, const Sums<kSlabs, kColumns>& weights,
                                    const std::uint16_t* tile, int first = 0) {
#pragma unroll
    for (int k = 0; k < kColumns / 16; ++k) {
        std::uint32_t a[kSlabs][4];
#pragma unroll
        for (int s = 0; s < kSlabs; ++s) {
            const float(&left)[4] = weights[s][2 * k], (&right)[4] = weights[s][2 * k + 1];
            a[s][0] = packed<T>(left[0], left[1]), a[s][1] = packed<T>(left[2], left[3]);
            a[s][2] = packed<T>(right[0], right[1]), a[s][3] = packed<T>(right[2], right[3]);
        }
#pragma unroll
        for (int j = 0; j < kWidth / 16; ++j) {
            std::uint32_t b[4];
            load_right_upright<kWidth>(b, tile, first + 16 * k, j);
#pragma unroll
            for (int s = 0; s < kSlabs; ++s) {
                multiply_add<T>(sums[s][2 * j], a[s], b[0], b[1]);
                multiply_add<T>(sums[s][2 * j + 1], a[s], b[2], b[3]);
            }
        }
    }
}

// Which weights of 16 queries from `q` on and a tile of keys from `k` on dropout leaves, queries down: a lane's eight
// columns of each row are found by the four lanes that share the rows, two of eight columns each.
struct KeptAcross {
    std::uint32_t all[4];
    __device__ KeptAcross(const Problem& p, const RngState& rng, int b, int h, int q, int k) {
        const int lane = int(threadIdx.x) % kWarp, row = lane / 4, quarter = lane % 4;
        std::uint32_t mine = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i)
            mine |= kept_eight(p.drop.rule, rng, p.rule.place(b, h, q + row + i / 2 * 8, k + (quarter * 2 + i % 2) * 8))
                    << (8 * i);
#pragma unroll
        for (int from = 0; from < 4; ++from) all[from] = __shfl_sync(kAll, mine, (lane & ~3) | from);
    }
    // Of column n * 8 + (this lane's first or second), the lane's upper or lower row.
    __device__ bool operator()(int n, int half, int second) const {
        return all[n / 2] >> (8 * (n % 2 + 2 * half) + int(threadIdx.x) % 4 * 2 + second) & 1u;
    }
};

// Rows of kSlabs times 16 sums, times a factor, to a tensor.
template <class T, int kWidth>
__device__ inline void store_row(T* row, const float (&sums)[kWidth / 8][4], int half, float factor, int width) {
    const int column = int(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n)
        if (n * 8 < width)
            *reinterpret_cast<std::uint32_t*>(row + n * 8 + column) =
                packed<T>(sums[n][2 * half] * factor, sums[n][2 * half + 1] * factor);
}

// --- on the host ---

// Whether a tensor can be moved in packs of eight.
bool in_packs(const View& v);
// Whether the fused kernels serve it.
bool serves(const AttentionSpec& spec, const AttentionTensors& tensors);
// Whether the kernels that know no rule but causality do.
inline bool simple(const AttentionSpec& spec) {
    return spec.plain() && spec.scale > 0;
}
// Scratch for Problem::documents, and what fills it.
std::size_t document_bytes(const AttentionSpec& spec);
void find_documents(const AttentionSpec& spec, Problem& problem, void* scratch);

// The gradient of the queries, by a kernel of its own; `rows` is what RowNumbers says, in `padded` rows for each head.
void find_query_gradient(const AttentionSpec& spec, const AttentionTensors& tensors, const Problem& problem,
                         const RowNumbers* rows, int padded);

// Calls f(T{}, integral_constant kWidth, bool_constant kGeneral).
template <class F>
void with_kind(const AttentionSpec& spec, Dtype dtype, const F& f) {
    const auto widths = [&](auto element) {
        const auto rules = [&](auto width) {
            if (simple(spec))
                f(element, width, std::false_type{});
            else
                f(element, width, std::true_type{});
        };
        if (spec.width <= 64)
            rules(std::integral_constant<int, 64>{});
        else
            rules(std::integral_constant<int, 128>{});
    };
    if (dtype == Dtype::f16)
        widths(f16{});
    else
        widths(bf16{});
}

template <class Kernel>
std::size_t with_shared(Kernel kernel, std::size_t bytes) {
    check_call(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes)),
               "cudaFuncSetAttribute");
    return bytes;
}

}  // namespace flash
}  // namespace invar::cuda
