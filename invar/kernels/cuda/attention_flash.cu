// Attention in 16 bits in one pass: a block takes some queries and goes over tiles of keys and values, with the largest
// score and the sum of powers of each row as they stand so far. For what cuDNN's engines do not serve.
#include <climits>

#include "invar/kernels/cuda/attention.cuh"
#include "invar/kernels/cuda/launch.h"

namespace invar::cuda {
namespace flash {
namespace {

// Rows of 16 queries that a warp works on: what is read of keys and values serves all of them, as long as they fit in
// registers.
template <int kWidth, bool kGeneral>
inline constexpr int kForwardSlabs = kWidth == 128 && kGeneral ? 1 : 2;

template <int kWidth, int kSlabs>
inline constexpr std::size_t kForwardBytes = std::size_t(kWarps * 16 * kSlabs + 4 * kTile) * kWidth * 2;

template <class T, int kWidth, bool kGeneral>
__global__ __launch_bounds__(kBlockSize, 2) void attend(const Problem p, const Operand<const T> q_in,
                                                        const Operand<const T> k_in, const Operand<const T> v_in,
                                                        const Operand<T> y_out, float* const kept,
                                                        const std::int64_t kept_half) {
    constexpr int kSlabs = kForwardSlabs<kWidth, kGeneral>, kMine = 16 * kSlabs, kRows = kWarps * kMine;
    constexpr int kStage = 2 * kTile * kWidth;
    extern __shared__ __align__(128) std::uint16_t memory[];
    std::uint16_t* const stages = memory + kRows * kWidth;
    const int lane = int(threadIdx.x) % kWarp, warp = int(threadIdx.x) / kWarp, row = lane / 4, quarter = lane % 4;
    // The last queries of a head first: under causality they take the longest.
    const int blocks = (p.queries + kRows - 1) / kRows, head = int(blockIdx.x) / blocks;
    const int first = (blocks - 1 - (int(blockIdx.x) - head * blocks)) * kRows;
    const int b = head / p.heads, h = head - b * p.heads;
    const T *const k_head = k_in.at(b, h / p.group), *const v_head = v_in.at(b, h / p.group);
    const int keys = p.causal ? min(p.keys, first + kRows) : p.keys, end = (keys + kTile - 1) / kTile;
    const int mine = first + warp * kMine;  // this warp's first query

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
    if (now < end)
        fetch_keys(now, 0);
    else
        close_fetches();
    int documents[kSlabs][2] = {};  // of this lane's queries
    RngState rng{};
    if constexpr (kGeneral) {
        rng = p.drop.sequence();
#pragma unroll
        for (int i = 0; i < 2 * kSlabs; ++i)
            if (const int q = mine + 8 * i + row; q < p.queries) documents[i / 2][i % 2] = p.rule.document(b, q);
    }
    wait_for_fetches<0>();
    __syncthreads();

    const LeftRows<kWidth, kSlabs, kWidth == 64> left(memory, warp * kMine);
    const float factor = kGeneral ? 1.0f : p.scale2;  // from scores as they are kept to powers of two
    Sums<kSlabs, kWidth> out = {};
    float top[kSlabs][2], sum[kSlabs][2] = {};
    bool saw[kSlabs][2] = {};
#pragma unroll
    for (int i = 0; i < 2 * kSlabs; ++i) top[i / 2][i % 2] = -INFINITY;

    const auto use = [&](int tile, const std::uint16_t* stage) {
        const int first_key = tile * kTile;
        if (p.causal && first_key > mine + kMine - 1) return;  // none of this warp's queries sees any of them
        Sums<kSlabs, kTile> x;
        products<T, kTile>(x, left, stage);
        bool single = first_key + kTile > p.keys || (p.causal && first_key + kTile - 1 > mine);
        if constexpr (kGeneral) {
            single = single || p.rule.bias != nullptr || !p.all_see(b, tile, seen_documents.x, seen_documents.y);
#pragma unroll
            for (int i = 0; i < kSlabs * kTile / 2; ++i) x[i / 32][i / 4 % 8][i % 4] *= p.scale2;
        }
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
                    float& score = x[r / 2][n][r % 2 * 2 + second];
                    bool sees = there && !(p.causal && k > q);
                    if constexpr (kGeneral) {
                        sees = there && q < p.queries && p.rule.sees(q, documents[r / 2][r % 2], k, key);
                        saw[r / 2][r % 2] = saw[r / 2][r % 2] || sees;
                        if (sees && p.rule.bias != nullptr) score += p.rule.added<float>(b, h, q, k) * kLog2E;
                    }
                    if (!sees) score = -INFINITY;
                }
            }
        } else if constexpr (kGeneral) {
#pragma unroll
            for (int i = 0; i < 2 * kSlabs; ++i) saw[i / 2][i % 2] = true;
        }

        float shrink[kSlabs][2];
        bool moved = false;
#pragma unroll
        for (int s = 0; s < kSlabs; ++s)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                // Where there is NaN it is not the largest, but the sum becomes NaN.
                const float before = top[s][half];
                float largest = before;
#pragma unroll
                for (int n = 0; n < kTile / 8; ++n)
                    largest = fmaxf(largest, fmaxf(x[s][n][2 * half], x[s][n][2 * half + 1]));
                largest = fmaxf(largest, __shfl_xor_sync(kAll, largest, 1));
                largest = fmaxf(largest, __shfl_xor_sync(kAll, largest, 2));
                top[s][half] = largest;
                const float from = largest == -INFINITY ? 0.0f : largest * factor;
                shrink[s][half] = brief_exp2(before * factor - from);
                moved = moved || shrink[s][half] != 1.0f;
                float total = 0.0f;
#pragma unroll
                for (int n = 0; n < kTile / 8; ++n)
#pragma unroll
                    for (int second = 0; second < 2; ++second) {
                        float& power = x[s][n][2 * half + second];
                        power = brief_exp2(fmaf(power, factor, -from));
                        total += power;
                    }
                sum[s][half] = sum[s][half] * shrink[s][half] + total;
            }
        if (__any_sync(kAll, moved)) {
#pragma unroll
            for (int s = 0; s < kSlabs; ++s)
#pragma unroll
                for (int n = 0; n < kWidth / 8; ++n)
#pragma unroll
                    for (int i = 0; i < 4; ++i) out[s][n][i] *= shrink[s][i / 2];
        }
        if constexpr (kGeneral) {
            if (p.drop.on) {  // what stays is scaled at the end
#pragma unroll
                for (int s = 0; s < kSlabs; ++s) {
                    const KeptAcross stays(p, rng, b, h, mine + 16 * s, first_key);
#pragma unroll
                    for (int i = 0; i < kTile / 2; ++i)
                        if (!stays(i / 4, i % 4 / 2, i % 2)) x[s][i / 4][i % 4] = 0.0f;
                }
            }
        }
        add_weighted<T, kWidth, kTile>(out, x, stage + kTile * kWidth);
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
    for (int s = 0; s < kSlabs; ++s)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float total = sum[s][half];
            total += __shfl_xor_sync(kAll, total, 1);
            total += __shfl_xor_sync(kAll, total, 2);
            bool blind = false;
            if constexpr (kGeneral) {
                int any = saw[s][half];
                any |= __shfl_xor_sync(kAll, any, 1);
                any |= __shfl_xor_sync(kAll, any, 2);
                blind = p.rule.may_blind() && any == 0;
            }
            // Scores that are all -inf are no reason to give zeros.
            if (total == 0.0f) total = __int_as_float(0x7fffffff);
            const int q = mine + 16 * s + 8 * half + row;
            if (q >= p.queries) continue;
            if (quarter == 0) {
                float* const place = kept + std::int64_t(head) * p.queries + q;
                const float largest = kGeneral ? top[s][half] * 0.693147181f : top[s][half] * p.scale;
                place[0] = blind ? 0.0f : largest, place[kept_half] = blind ? -1.0f : total;
            }
            if (blind) {
#pragma unroll
                for (int n = 0; n < kWidth / 8; ++n) out[s][n][2 * half] = out[s][n][2 * half + 1] = 0.0f;
            }
            const float keep = kGeneral && p.drop.on ? p.drop.rule.keep : 1.0f;
            store_row<T, kWidth>(y_out.at(b, h) + q * y_out.row, out[s], half, blind ? 0.0f : keep / total, p.width);
        }
}

// A warp to a tile of positions.
__global__ __launch_bounds__(kThreads) void documents_of_tiles(const AttentionRule rule, const int key_tiles,
                                                               const int count, TileDocuments* found) {
    const int at = int(global_thread() / kWarp), lane = int(threadIdx.x) % kWarp;
    if (at >= count) return;
    const int b = at / key_tiles, first = (at - b * key_tiles) * kTile;
    TileDocuments d{INT_MAX, INT_MIN, INT_MAX, INT_MIN, true};
    for (int k = first + lane; k < first + kTile && k < rule.keys; k += kWarp) {
        const AttentionRule::Key key = rule.key(b, k);
        if (key.seen) d.low = min(d.low, key.document), d.high = max(d.high, key.document);
        d.query_low = min(d.query_low, key.document), d.query_high = max(d.query_high, key.document);
        d.all_seen = d.all_seen && key.seen;
    }
    d.low = __reduce_min_sync(kAll, d.low), d.high = __reduce_max_sync(kAll, d.high);
    d.query_low = __reduce_min_sync(kAll, d.query_low), d.query_high = __reduce_max_sync(kAll, d.query_high);
    d.all_seen = __all_sync(kAll, d.all_seen);
    if (lane == 0) found[at] = d;
}

}  // namespace

bool in_packs(const View& v) {
    if ((v.size[3] > 1 && v.stride[3] != 1) || !aligned(v.data)) return false;
    for (int d = 0; d < 3; ++d)
        if (v.size[d] > 1 && v.stride[d] % 8 != 0) return false;
    return true;
}

bool serves(const AttentionSpec& s, const AttentionTensors& t) {
    if (!is_sixteen_bit(t.q.dtype) || s.keys < 1 || s.width < 8 || s.width % 8 != 0 || s.width > 128 ||
        s.value_width != s.width)
        return false;
    for (const View* v : {&t.q, &t.k, &t.v, &t.y, &t.gy, &t.gq, &t.gk, &t.gv})
        if (*v && (!in_packs(*v) || v->dtype != t.q.dtype)) return false;
    if (s.bias && s.bias.dtype != Dtype::f32) return false;
    constexpr std::int64_t kMost = INT_MAX / 8;
    const std::int64_t tiles = divide_up(std::max(s.queries, s.keys), kTile);
    if (std::max(s.queries, s.keys) > kMost || s.batch * s.heads * tiles > kMost) return false;
    return shared_memory_limit() >= std::size_t(97) << 10;  // what the backward kernels take at the widest
}

std::size_t document_bytes(const AttentionSpec& s) {
    return s.seen || s.documents ? std::size_t(s.batch * divide_up(s.keys, kTile)) * sizeof(TileDocuments) : 0;
}

void find_documents(const AttentionSpec& s, Problem& problem, void* scratch) {
    if (scratch == nullptr) return;
    auto* const found = static_cast<TileDocuments*>(scratch);
    const int count = int(s.batch) * problem.key_tiles;
    const Launch stream("attention");
    documents_of_tiles<<<grid_for(count, kThreads / kWarp), kThreads, 0, stream>>>(problem.rule, problem.key_tiles,
                                                                                   count, found);
    problem.documents = found;
}

}  // namespace flash

bool flash_attention(const AttentionSpec& s, const AttentionTensors& t) {
    if (!flash::serves(s, t)) return false;
    flash::Problem problem(s);
    const Scratch documents(flash::document_bytes(s));
    flash::find_documents(s, problem, documents.data());
    flash::with_kind(s, t.q.dtype, [&](auto element, auto width, auto general) {
        using T = decltype(element);
        constexpr int kWidth = decltype(width)::value;
        constexpr bool kGeneral = decltype(general)::value;
        constexpr int kSlabs = flash::kForwardSlabs<kWidth, kGeneral>, kRows = flash::kWarps * 16 * kSlabs;
        const auto kernel = flash::attend<T, kWidth, kGeneral>;
        const std::size_t shared = flash::with_shared(kernel, flash::kForwardBytes<kWidth, kSlabs>);
        const std::int64_t rows = s.batch * s.heads * s.queries;
        const Launch stream("attention");
        kernel<<<unsigned(s.batch * s.heads * divide_up(s.queries, kRows)), flash::kBlockSize, shared, stream>>>(
            problem, flash::Operand<const T>(t.q), flash::Operand<const T>(t.k), flash::Operand<const T>(t.v),
            flash::Operand<T>(t.y), t.kept.as<float>(), rows);
    });
    return true;
}

}  // namespace invar::cuda
