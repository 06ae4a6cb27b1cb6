// The gradients of attention's keys and values in 16 bits: a block takes a tile of keys and goes over tiles of queries,
// of all heads that share it, so that one block sums all there is. Scores are made keys down and queries across: what
// comes out of one product is then the left side of the next.
#include "invar/kernels/cuda/attention.cuh"
#include "invar/kernels/cuda/launch.h"

namespace invar::cuda {
namespace flash {
namespace {

// Rows of queries for each head, up to whole tiles; those behind the last have no weights.
template <class T>
__global__ __launch_bounds__(kThreads) void row_numbers(const Problem p, const Operand<const T> y_in,
                                                        const Operand<const T> gy_in, const float* const kept,
                                                        const std::int64_t kept_half, const int padded,
                                                        const std::int64_t count, RowNumbers* const rows) {
    constexpr int kAcross = 16;  // threads on a row, eight values each
    const std::int64_t at = global_thread() / kAcross;
    const int lane = int(threadIdx.x) % kAcross;
    const int head = int(at / padded), q = int(at - std::int64_t(head) * padded), b = head / p.heads;
    const bool there = at < count && q < p.queries;
    float sum = 0.0f;
    if (there && lane * 8 < p.width) {
        Pack<T, 8> y, gy;
        y.read(y_in.at(b, head - b * p.heads) + q * y_in.row + lane * 8);
        gy.read(gy_in.at(b, head - b * p.heads) + q * gy_in.row + lane * 8);
        float left[8], right[8];
        y.unpack(left), gy.unpack(right);
#pragma unroll
        for (int i = 0; i < 8; ++i) sum += left[i] * right[i];
    }
#pragma unroll
    for (int mask = kAcross / 2; mask > 0; mask /= 2) sum += __shfl_xor_sync(kAll, sum, mask);
    if (lane != 0 || at >= count) return;
    RowNumbers numbers{INFINITY, 0.0f};  // of a query that sees no key
    if (there) {
        const float* const place = kept + std::int64_t(head) * p.queries + q;
        const float largest = place[0] * kLog2E, powers = place[kept_half];
        // cuDNN keeps the logarithm of the sum of exponentials in place of the largest score, and no sum.
        if (!(powers < 0.0f)) numbers = {powers == 0.0f ? largest : largest + log2f(powers), sum * p.scale};
    }
    rows[at] = numbers;
}

// Rows of 16 keys that a warp works on, and the queries that it looks at together: what fits in registers.
template <int kWidth, bool kGeneral>
inline constexpr int kKeySlabs = kWidth == 64 && !kGeneral ? 2 : 1;

template <int kWidth, int kSlabs>
inline constexpr std::size_t kKeyBytes = std::size_t(2 * kWarps * 16 * kSlabs + 4 * kTile) * kWidth * 2 +
                                         2 * kTile * sizeof(RowNumbers);

template <class T, int kWidth, bool kGeneral>
__global__ __launch_bounds__(kBlockSize, 2) void key_gradients(const Problem p, const Operand<const T> q_in,
                                                               const Operand<const T> k_in, const Operand<const T> v_in,
                                                               const Operand<const T> gy_in,
                                                               const RowNumbers* const rows, const int padded,
                                                               const Operand<T> gk_out, const Operand<T> gv_out) {
    constexpr int kSlabs = kKeySlabs<kWidth, kGeneral>, kMine = 16 * kSlabs, kRows = kWarps * kMine;
    constexpr int kColumns = kTile / kSlabs, kStage = 2 * kTile * kWidth;
    static_assert(!kGeneral || kSlabs == 1, "a rule is looked up for a tile of keys, and single keys for 64 queries");
    extern __shared__ __align__(128) std::uint16_t memory[];
    std::uint16_t* const stages = memory + 2 * kRows * kWidth;
    auto* const numbers = reinterpret_cast<RowNumbers*>(stages + 2 * kStage);  // [2][kTile]
    const int lane = int(threadIdx.x) % kWarp, warp = int(threadIdx.x) / kWarp, row = lane / 4, quarter = lane % 4;
    const int blocks = (p.keys + kRows - 1) / kRows, head = int(blockIdx.x) / blocks;
    const int b = head / p.kv_heads, shared_head = head - b * p.kv_heads;
    const int first = (int(blockIdx.x) - head * blocks) * kRows, tile = first / kTile, mine = first + warp * kMine;

    // Steps: the tiles of queries of each head, one head after the other.
    const int tiles = (p.queries + kTile - 1) / kTile, end = p.group * tiles, skipped = p.causal ? tile : 0;
    const auto documents_of = [&](int query_tile) {
        return p.query_documents(b, query_tile * kTile, query_tile * kTile + kTile);
    };
    const auto next = [&](int step) {
        while (step < end) {
            const int at = step % tiles;
            if (at < skipped) {
                step += skipped - at;
                continue;
            }
            if constexpr (kGeneral) {
                const int2 range = documents_of(at);
                if (!p.touch(b, tile, range.x, range.y)) {
                    ++step;
                    continue;
                }
            }
            return step;
        }
        return end;
    };
    const auto fetch_queries = [&](int step, int stage) {
        const int h = shared_head * p.group + step / tiles, from = step % tiles * kTile;
        std::uint16_t* const to = stages + stage * kStage;
        fetch_tile<kWidth, kTile>(to, q_in.at(b, h), q_in.row, from, p.queries, p.width);
        fetch_tile<kWidth, kTile>(to + kTile * kWidth, gy_in.at(b, h), gy_in.row, from, p.queries, p.width);
        if (warp == 0)
            fetch(numbers + stage * kTile + 2 * lane, rows + (std::int64_t(b) * p.heads + h) * padded + from + 2 * lane,
                  true);
        close_fetches();
    };

    int now = next(0);
    fetch_tile<kWidth, kRows>(memory, k_in.at(b, shared_head), k_in.row, first, p.keys, p.width);
    fetch_tile<kWidth, kRows>(memory + kRows * kWidth, v_in.at(b, shared_head), v_in.row, first, p.keys, p.width);
    if (now < end)
        fetch_queries(now, 0);
    else
        close_fetches();
    AttentionRule::Key key[2] = {};
    RngState rng{};
    if constexpr (kGeneral) {
        rng = p.drop.sequence();
#pragma unroll
        for (int half = 0; half < 2; ++half)
            if (const int k = mine + 8 * half + row; k < p.keys) key[half] = p.rule.key(b, k);
    }
    wait_for_fetches<0>();
    __syncthreads();

    const LeftRows<kWidth, kSlabs, false> k_left(memory, warp * kMine), v_left(memory + kRows * kWidth, warp * kMine);
    Sums<kSlabs, kWidth> gk = {}, gv = {};
    // The queries of a tile from `part` on.
    const auto use = [&](int step, int part, const std::uint16_t* stage, const RowNumbers* of_queries) {
        const int query_tile = step % tiles, first_query = query_tile * kTile + part;
        if (p.causal && mine > first_query + kColumns - 1) return;
        Sums<kSlabs, kColumns> x, g;  // keys down, queries across
        products<T, kColumns>(x, k_left, stage, part);
        products<T, kColumns>(g, v_left, stage + kTile * kWidth, part);
        bool single = first_query + kColumns > p.queries || (p.causal && mine + kMine - 1 > first_query);
        std::uint32_t stays = 0;  // of two queries and sixteen keys for each lane
        int h = 0;
        if constexpr (kGeneral) {
            const int2 range = documents_of(query_tile);
            single = single || p.rule.bias != nullptr || !p.all_see(b, tile, range.x, range.y);
            h = shared_head * p.group + step / tiles;
            if (p.drop.on) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const int q = first_query + row * 8 + quarter * 2 + i % 2;
                    stays |= kept_eight(p.drop.rule, rng, p.rule.place(b, h, q, mine + i / 2 * 8)) << (8 * i);
                }
            }
        }
        const auto weigh = [&](auto by_rule) {
#pragma unroll
            for (int n = 0; n < kColumns / 8; ++n) {
                const int column = n * 8 + quarter * 2;
                const float4 two = *reinterpret_cast<const float4*>(of_queries + part + column);
                const float base[2] = {two.x, two.z}, mean[2] = {two.y, two.w};
                [[maybe_unused]] std::uint32_t kept = 0;
                if constexpr (kGeneral)
                    if (p.drop.on) kept = __shfl_sync(kAll, stays, n * 4 + quarter) >> row;
#pragma unroll
                for (int i = 0; i < 4 * kSlabs; ++i) {
                    const int half = i / 2, second = i % 2;  // halves of 16 keys, counted on over the slabs
                    float &weight = x[i / 4][n][i % 4], &gradient = g[i / 4][n][i % 4];
                    float from = base[second];
                    bool sees = true, stay = true;
                    if constexpr (decltype(by_rule)::value) {
                        const int k = mine + 8 * half + row, q = first_query + column + second;
                        sees = q < p.queries && !(p.causal && k > q);
                        if constexpr (kGeneral) {
                            sees = k < p.keys && q < p.queries && p.rule.sees(q, p.rule.document(b, q), k, key[half]);
                            if (sees && p.rule.bias != nullptr) from -= p.rule.added<float>(b, h, q, k) * kLog2E;
                        }
                    }
                    weight = brief_exp2(fmaf(weight, p.scale2, -from));
                    if constexpr (kGeneral) {
                        if (p.drop.on) {
                            stay = kept >> (8 * (second + 2 * half)) & 1u;
                            gradient = stay ? gradient * p.drop.rule.keep : 0.0f;
                        }
                    }
                    // Nothing comes of a key that is not seen, whatever it holds.
                    gradient = sees ? weight * fmaf(gradient, p.scale, -mean[second]) : 0.0f;
                    if (!sees || !stay) weight = 0.0f;
                }
            }
        };
        if (single)
            weigh(std::true_type{});
        else
            weigh(std::false_type{});
        add_weighted<T, kWidth, kColumns>(gv, x, stage + kTile * kWidth, part);
        add_weighted<T, kWidth, kColumns>(gk, g, stage, part);
    };

    for (int stage = 0; now < end; stage ^= 1) {
        const int then = next(now + 1);
        if (then < end) fetch_queries(then, stage ^ 1);
#pragma unroll 1
        for (int part = 0; part < kTile; part += kColumns)
            use(now, part, stages + stage * kStage, numbers + stage * kTile);
        wait_for_fetches<0>();
        __syncthreads();
        now = then;
    }
    const float keep = kGeneral && p.drop.on ? p.drop.rule.keep : 1.0f;
#pragma unroll
    for (int half = 0; half < 2 * kSlabs; ++half) {
        const int k = mine + 8 * half + row;
        if (k >= p.keys) continue;
        store_row<T, kWidth>(gk_out.at(b, shared_head) + k * gk_out.row, gk[half / 2], half % 2, 1.0f, p.width);
        store_row<T, kWidth>(gv_out.at(b, shared_head) + k * gv_out.row, gv[half / 2], half % 2, keep, p.width);
    }
}

}  // namespace
}  // namespace flash

bool flash_attention_backward(const AttentionSpec& s, const AttentionTensors& t) {
    using namespace flash;
    if (!serves(s, t)) return false;
    Problem problem(s);
    const Scratch documents(document_bytes(s));
    find_documents(s, problem, documents.data());
    const int padded = int(divide_up(s.queries, kTile) * kTile);
    const std::int64_t count = s.batch * s.heads * padded;
    const Scratch numbers(std::size_t(count) * sizeof(RowNumbers));
    auto* const rows = static_cast<RowNumbers*>(numbers.data());
    with_kind(s, t.q.dtype, [&](auto element, auto width, auto general) {
        using T = decltype(element);
        constexpr int kWidth = decltype(width)::value;
        const Launch stream("attention_backward");
        row_numbers<T><<<unsigned(divide_up(count, kThreads / 16)), kThreads, 0, stream>>>(
            problem, Operand<const T>(t.y), Operand<const T>(t.gy), t.kept.as<float>(), s.batch * s.heads * s.queries,
            padded, count, rows);
        constexpr int kSlabs = kKeySlabs<kWidth, decltype(general)::value>, kRows = kWarps * 16 * kSlabs;
        const auto kernel = key_gradients<T, kWidth, decltype(general)::value>;
        const std::size_t shared = with_shared(kernel, kKeyBytes<kWidth, kSlabs>);
        kernel<<<unsigned(s.batch * s.kv_heads * divide_up(s.keys, kRows)), kBlockSize, shared, stream>>>(
            problem, Operand<const T>(t.q), Operand<const T>(t.k), Operand<const T>(t.v), Operand<const T>(t.gy), rows,
            padded, Operand<T>(t.gk), Operand<T>(t.gv));
    });
    find_query_gradient(s, t, problem, rows, padded);
    return true;
}

}  // namespace invar::cuda
