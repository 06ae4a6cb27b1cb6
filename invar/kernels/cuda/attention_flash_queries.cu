// The gradient of attention's queries in 16 bits: a block takes some queries and goes over tiles of keys and values.
// The products that the gradients of keys and values need too are done twice: summed by one block each, nothing depends
// on the order in which blocks run.
#include "invar/kernels/cuda/attention.cuh"
#include "invar/kernels/cuda/launch.h"

namespace invar::cuda::flash {
namespace {

template <int kWidth, bool kGeneral>
inline constexpr int kQuerySlabs = kWidth == 64 && !kGeneral ? 2 : 1;

template <int kWidth, int kSlabs>
inline constexpr std::size_t kQueryBytes = std::size_t(2 * kWarps * 16 * kSlabs + 4 * kTile) * kWidth * 2;

template <class T, int kWidth, bool kGeneral>
__global__ __launch_bounds__(kBlockSize,
                             2) void query_gradient(const Problem p, const Operand<const T> q_in,
                                                    const Operand<const T> k_in, const Operand<const T> v_in,
                                                    const Operand<const T> gy_in, const RowNumbers* const rows,
                                                    const int padded, const Operand<T> gq_out) {
    constexpr int kSlabs = kQuerySlabs<kWidth, kGeneral>, kMine = 16 * kSlabs, kRows = kWarps * kMine;
    constexpr int kStage = 2 * kTile * kWidth;
    extern __shared__ __align__(128) std::uint16_t memory[];
    std::uint16_t* const stages = memory + 2 * kRows * kWidth;
    const int lane = int(threadIdx.x) % kWarp, warp = int(threadIdx.x) / kWarp, row = lane / 4, quarter = lane % 4;
    const int blocks = (p.queries + kRows - 1) / kRows, head = int(blockIdx.x) / blocks;
    const int first = (blocks - 1 - (int(blockIdx.x) - head * blocks)) * kRows;
    const int b = head / p.heads, h = head - b * p.heads;
    const T *const k_head = k_in.at(b, h / p.group), *const v_head = v_in.at(b, h / p.group);
    const int keys = p.causal ? min(p.keys, first + kRows) : p.keys, end = (keys + kTile - 1) / kTile;
    const int mine = first + warp * kMine;

    int2 seen_documents = make_int2(0, 0);
    if constexpr (kGeneral) seen_documents = p.query_documents(b, first, first + kRows);
    const auto next = [&](int tile) {
        if constexpr (kGeneral)
            while (tile < end && !p.touch(b, tile, seen_documents.x, seen_documents.y)) ++tile;
        return tile;
    };
    const auto fetch_keys = [&](int tile, int stage) {
        std::uint16_t* const to = stages + stage * kStage;
        fetch_tile<kWidth, kTile>(to, k_head, k_in.row, tile * kTile, p.keys, p.width);
        fetch_tile<kWidth, kTile>(to + kTile * kWidth, v_head, v_in.row, tile * kTile, p.keys, p.width);
        close_fetches();
    };

    int now = next(0);
    fetch_tile<kWidth, kRows>(memory, q_in.at(b, h), q_in.row, first, p.queries, p.width);
    fetch_tile<kWidth, kRows>(memory + kRows * kWidth, gy_in.at(b, h), gy_in.row, first, p.queries, p.width);
    if (now < end)
        fetch_keys(now, 0);
    else
        close_fetches();
    float base[2 * kSlabs], mean[2 * kSlabs];
    int documents[2 * kSlabs] = {};
    RngState rng{};
    if constexpr (kGeneral) rng = p.drop.sequence();
#pragma unroll
    for (int r = 0; r < 2 * kSlabs; ++r) {
        const int q = mine + 8 * r + row;
        const RowNumbers numbers = q < p.queries ? rows[std::int64_t(head) * padded + q] : RowNumbers{INFINITY, 0.0f};
        base[r] = numbers.base, mean[r] = numbers.mean;
        if constexpr (kGeneral)
            if (q < p.queries) documents[r] = p.rule.document(b, q);
    }
    wait_for_fetches<0>();
    __syncthreads();

    const LeftRows<kWidth, kSlabs, kWidth == 128 && !kGeneral> q_left(memory, warp * kMine),
        gy_left(memory + kRows * kWidth, warp * kMine);
    Sums<kSlabs, kWidth> out = {};
    const auto use = [&](int tile, const std::uint16_t* stage) {
        const int first_key = tile * kTile;
        if (p.causal && first_key > mine + kMine - 1) return;
        Sums<kSlabs, kTile> x, g;
        products<T, kTile>(x, q_left, stage);
        bool single = first_key + kTile > p.keys || (p.causal && first_key + kTile - 1 > mine);
        if constexpr (kGeneral)
            single = single || p.rule.bias != nullptr || !p.all_see(b, tile, seen_documents.x, seen_documents.y);
        if (single) {
#pragma unroll
            for (int i = 0; i < kTile / 4; ++i) {
                const int n = i / 2, second = i % 2, k = first_key + n * 8 + quarter * 2 + second;
                const bool there = k < p.keys;
                AttentionRule::Key key{};
                if constexpr (kGeneral)
                    if (there) key = p.rule.key(b, k);
#pragma unroll
                for (int r = 0; r < 2 * kSlabs; ++r) {
                    const int q = mine + 8 * r + row;
                    float& weight = x[r / 2][n][r % 2 * 2 + second];
                    float from = base[r];
                    bool sees = there && !(p.causal && k > q);
                    if constexpr (kGeneral) {
                        sees = there && q < p.queries && p.rule.sees(q, documents[r], k, key);
                        if (sees && p.rule.bias != nullptr) from -= p.rule.added<float>(b, h, q, k) * kLog2E;
                    }
                    weight = sees ? brief_exp2(fmaf(weight, p.scale2, -from)) : 0.0f;
                }
            }
        } else {
#pragma unroll
            for (int i = 0; i < kSlabs * kTile / 2; ++i) {
                float& weight = x[i / 32][i / 4 % 8][i % 4];
                weight = brief_exp2(fmaf(weight, p.scale2, -base[i / 32 * 2 + i % 4 / 2]));
            }
        }
        products<T, kTile>(g, gy_left, stage + kTile * kWidth);
        if constexpr (kGeneral) {
            if (p.drop.on) {
#pragma unroll
                for (int s = 0; s < kSlabs; ++s) {
                    const KeptAcross stays(p, rng, b, h, mine + 16 * s, first_key);
#pragma unroll
                    for (int i = 0; i < kTile / 2; ++i)
                        g[s][i / 4][i % 4] = stays(i / 4, i % 4 / 2, i % 2) ? g[s][i / 4][i % 4] * p.drop.rule.keep : 0;
                }
            }
        }
#pragma unroll
        for (int i = 0; i < kSlabs * kTile / 2; ++i) {
            float& gradient = g[i / 32][i / 4 % 8][i % 4];
            gradient = x[i / 32][i / 4 % 8][i % 4] * fmaf(gradient, p.scale, -mean[i / 32 * 2 + i % 4 / 2]);
        }
        if (single) {  // nothing comes of a key that is not seen, whatever it holds
#pragma unroll
            for (int i = 0; i < kSlabs * kTile / 2; ++i)
                if (x[i / 32][i / 4 % 8][i % 4] == 0.0f) g[i / 32][i / 4 % 8][i % 4] = 0.0f;
        }
        add_weighted<T, kWidth, kTile>(out, g, stage);
    };

    for (int stage = 0; now < end; stage ^= 1) {
        const int then = next(now + 1);
        if (then < end) fetch_keys(then, stage ^ 1);
        use(now, stages + stage * kStage);
        wait_for_fetches<0>();
        __syncthreads();
        now = then;
    }
#pragma unroll
    for (int r = 0; r < 2 * kSlabs; ++r)
        if (const int q = mine + 8 * r + row; q < p.queries)
            store_row<T, kWidth>(gq_out.at(b, h) + q * gq_out.row, out[r / 2], r % 2, 1.0f, p.width);
}

}  // namespace

void find_query_gradient(const AttentionSpec& s, const AttentionTensors& t, const Problem& problem,
                         const RowNumbers* rows, int padded) {
    with_kind(s, t.q.dtype, [&](auto element, auto width, auto general) {
        using T = decltype(element);
        constexpr int kWidth = decltype(width)::value;
        constexpr bool kGeneral = decltype(general)::value;
        constexpr int kSlabs = kQuerySlabs<kWidth, kGeneral>, kRows = kWarps * 16 * kSlabs;
        const auto kernel = query_gradient<T, kWidth, kGeneral>;
        const std::size_t shared = with_shared(kernel, kQueryBytes<kWidth, kSlabs>);
        const Launch stream("attention_backward");
        kernel<<<unsigned(s.batch * s.heads * divide_up(s.queries, kRows)), kBlockSize, shared, stream>>>(
            problem, Operand<const T>(t.q), Operand<const T>(t.k), Operand<const T>(t.v), Operand<const T>(t.gy), rows,
            padded, Operand<T>(t.gq));
    });
}

}  // namespace invar::cuda::flash
