// Backward of the norms: the gradient of what was normalised, with what others have sent for it already, and those of
// the parameters, in one walk over the rows. The parameters' sums are kept by each block and added up by a second
// kernel, in a fixed order.
#include "invar/kernels/cuda/columns.cuh"
#include "invar/kernels/cuda/launch.h"
#include "invar/kernels/cuda/norm_types.cuh"

namespace invar::cuda {
namespace {

struct Backward {
    Dense gy, x, gamma, mean, rstd, gx, pending, gbranch, again, beta;
    std::int64_t rows, n;
    double share;     // 1 / n
    double* partial;  // [blocks, 2, n]: each block's sums of gy * xhat and of gy; nullptr where nobody wants them
};

// The norm's own gradient becomes that of the row: rounded, with the pending one added, and written. `pending` holds
// the values at `at`, where there are any.
template <class Types, bool kPending>
__device__ inline void write_gradient(const Backward& p, std::int64_t at, const typename Types::XRaw& pending,
                                      typename Types::C* own) {
    using C = typename Types::C;
    if constexpr (kPending) {
        C others[Types::kWidth];
        unpack_raw(pending, others);
        round_as<typename Types::XRaw>(p.gx.dtype, own);
#pragma unroll
        for (int k = 0; k < Types::kWidth; ++k) own[k] = plain_sum(others[k], own[k]);
    }
    write_raw<typename Types::XRaw>(own, p.gx, at);
    if constexpr (!Types::kOneType) {
        if (p.gbranch.data == nullptr) return;
        round_as<typename Types::XRaw>(p.gx.dtype, own);
        write_raw<typename Types::YRaw>(own, p.gbranch, at);
    }
}

// The norm's result at `at`, in column `column` of a row, from what is centered and scaled.
template <class Types>
__device__ inline void write_again(const Backward& p, std::int64_t at, std::int64_t column,
                                   const typename Types::C* hat, const typename Types::C* gamma) {
    typename Types::C y[Types::kWidth];
    parameters_at<Types>(p.beta, column, typename Types::C(0), y);
#pragma unroll
    for (int k = 0; k < Types::kWidth; ++k) y[k] = affine(hat[k], gamma[k], y[k]);
    write_raw<typename Types::YRaw>(y, p.again, at);
}

struct Means {
    double plain = 0, product = 0;
};
struct AddMeans {
    __device__ Means operator()(const Means& a, const Means& b) const {
        return {a.plain + b.plain, a.product + b.product};
    }
};

// --- rows that are held in registers: at most 16 elements for a thread ---

template <class Types>
inline constexpr int kHeldPacks = Types::kPacked ? 16 / Types::kWidth : 2;
// Threads that share a row when each holds so many of its elements; 0: the row is too long.
inline int held_group(std::int64_t n, int each) {
    for (const int group : {kWarp, 64, 128, 256, 512})
        if (n <= std::int64_t(group) * each) return group;
    return 0;
}
// 512 threads for each multiprocessor of a large GPU, in blocks of these groups.
inline std::int64_t held_blocks(std::int64_t rows, int group) {
    const std::int64_t block = group == kWarp ? kThreads : group, at_once = block / group;
    return rows > 0 ? smaller(divide_up(rows, at_once), 132 * 512 / block) : 1;
}

// One row's share of a thread, as it lies in memory.
template <class Types, int kGroup>
struct HeldRow {
    static constexpr int kHeld = kHeldPacks<Types>;
    typename Types::YRaw gradients[kHeld];
    typename Types::XRaw inputs[kHeld];
    typename Types::C m = 0, s = 0;

    __device__ static std::int64_t place(int h) {
        return (std::int64_t(h) * kGroup + threadIdx.x % kGroup) * Types::kWidth;
    }
    __device__ void read(const Backward& p, std::int64_t row) {
        using C = typename Types::C;
        if (row >= p.rows) return;
#pragma unroll
        for (int h = 0; h < kHeld; ++h) {
            if (place(h) >= p.n) continue;
            read_raw(p.gy, row * p.n + place(h), gradients[h]);
            read_raw(p.x, row * p.n + place(h), inputs[h]);
        }
        m = p.mean.get_or<C>(row, C(0));
        s = p.rstd.get<C>(row);
    }
};

template <class Types, int kGroup, bool kPending>
__global__ __launch_bounds__(kBlock<kGroup>, 512 / kBlock<kGroup>) void backward_held(const Backward p) {
    using C = typename Types::C;
    using Held = HeldRow<Types, kGroup>;
    constexpr int kWidth = Types::kWidth, kHeld = Held::kHeld;
    constexpr bool kKeepsGamma = kWidth == 8;  // packs of 16 bits leave the registers for it
    C sums[2][kHeld][kWidth] = {};
    C kept[kKeepsGamma ? kHeld : 1][kWidth];
    if constexpr (kKeepsGamma) {
#pragma unroll
        for (int h = 0; h < kHeld; ++h)
            if (Held::place(h) < p.n) parameters_at<Types>(p.gamma, Held::place(h), C(1), kept[h]);
    }
    const std::int64_t step = std::int64_t(gridDim.x) * kRowsABlock<kGroup>;
    std::int64_t r = first_row<kGroup>();
    Held next;  // on its way while this one is worked on
    next.read(p, r);
    for (; r < p.rows; r += step) {
        const Held row = next;
        typename Types::XRaw pending[kPending ? kHeld : 1];
        if constexpr (kPending) {
#pragma unroll
            for (int h = 0; h < kHeld; ++h)
                if (Held::place(h) < p.n) read_raw(p.pending, r * p.n + Held::place(h), pending[h]);
        }
        next.read(p, r + step);
        const auto each = [&](const auto& f) {
#pragma unroll
            for (int h = 0; h < kHeld; ++h) {
                if (Held::place(h) >= p.n) break;
                C g[kWidth], v[kWidth], a[kWidth];
                unpack_raw(row.gradients[h], g);
                unpack_raw(row.inputs[h], v);
                if constexpr (!kKeepsGamma) parameters_at<Types>(p.gamma, Held::place(h), C(1), a);
#pragma unroll
                for (int k = 0; k < kWidth; ++k) {
                    if constexpr (kKeepsGamma) a[k] = kept[h][k];
                    v[k] = (v[k] - row.m) * row.s;
                }
                f(h, g, v, a);
            }
        };
        Means sum;
        each([&](int h, C* g, C* v, const C* a) {
            if (p.again.data != nullptr) write_again<Types>(p, r * p.n + Held::place(h), Held::place(h), v, a);
#pragma unroll
            for (int k = 0; k < kWidth; ++k) {
                sums[0][h][k] += g[k] * v[k];
                sums[1][h][k] += g[k];
                g[k] *= a[k];
                v[k] *= g[k];
            }
            sum.plain += small_sum<kWidth>(g);
            sum.product += small_sum<kWidth>(v);
        });
        if (p.gx.data == nullptr) continue;
        sum = reduce<kGroup>(sum, AddMeans{});
        const C level = p.mean.data == nullptr ? C(0) : C(sum.plain * p.share), tilt = C(sum.product * p.share);
        each([&](int h, C* g, const C* v, const C* a) {
#pragma unroll
            for (int k = 0; k < kWidth; ++k) g[k] = row.s * (g[k] * a[k] - level - v[k] * tilt);
            write_gradient<Types, kPending>(p, r * p.n + Held::place(h), pending[kPending ? h : 0], g);
        });
    }
    if (p.partial == nullptr) return;
    // The warps of a block add up theirs; a row that has a whole block has one owner for each column already.
    __shared__ double shared[kGroup == kWarp ? kThreads * kWidth : 1];
#pragma unroll
    for (int kind = 0; kind < 2; ++kind)
#pragma unroll
        for (int h = 0; h < kHeld; ++h) {
            double* to = p.partial + (std::int64_t(blockIdx.x) * 2 + kind) * p.n;
            if constexpr (kGroup == kWarp) {
                const double total = sum_over_y<kWidth>(sums[kind][h], kWarp, shared);
                const std::int64_t column = std::int64_t(h) * kWarp * kWidth + threadIdx.x;
                if (threadIdx.x < kWarp * kWidth && column < p.n) to[column] = total;
            } else if (Held::place(h) < p.n) {
#pragma unroll
                for (int k = 0; k < kWidth; ++k) to[Held::place(h) + k] = double(sums[kind][h][k]);
            }
        }
}

// --- longer rows: a block on each, which reads it twice; the parameters' gradients in a walk of their own ---

inline constexpr int kLongGroup = 512;

template <class Types>
__global__ __launch_bounds__(kLongGroup) void backward_long(const Backward p) {
    using C = typename Types::C;
    constexpr int kWidth = Types::kWidth;
    const std::int64_t r = blockIdx.x, base = r * p.n;
    const C m = p.mean.get_or<C>(r, C(0)), s = p.rstd.get<C>(r);
    const auto each = [&](const auto& f) {
#pragma unroll 4
        for (std::int64_t i = std::int64_t(threadIdx.x) * kWidth; i < p.n; i += kLongGroup * kWidth) {
            typename Types::YRaw gradients;
            typename Types::XRaw inputs;
            read_raw(p.gy, base + i, gradients);
            read_raw(p.x, base + i, inputs);
            C g[kWidth], v[kWidth], a[kWidth];
            unpack_raw(gradients, g);
            unpack_raw(inputs, v);
            parameters_at<Types>(p.gamma, i, C(1), a);
#pragma unroll
            for (int k = 0; k < kWidth; ++k) g[k] *= a[k], v[k] = (v[k] - m) * s;
            f(i, g, v, a);
        }
    };
    Means sum;
    each([&](std::int64_t i, C* g, C* v, const C* a) {
        if (p.again.data != nullptr) write_again<Types>(p, base + i, i, v, a);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) v[k] *= g[k];
        sum.plain += small_sum<kWidth>(g);
        sum.product += small_sum<kWidth>(v);
    });
    sum = reduce<kLongGroup>(sum, AddMeans{});
    const C level = p.mean.data == nullptr ? C(0) : C(sum.plain * p.share), tilt = C(sum.product * p.share);
    each([&](std::int64_t i, C* g, const C* v, const C*) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k) g[k] = s * (g[k] - level - v[k] * tilt);
        typename Types::XRaw pending{};
        if (p.pending.data == nullptr) return write_gradient<Types, false>(p, base + i, pending, g);
        read_raw(p.pending, base + i, pending);
        write_gradient<Types, true>(p, base + i, pending, g);
    });
}

template <class Types>
struct ParameterTerms {
    using C = typename Types::C;
    struct Raw {
        typename Types::YRaw g;
        typename Types::XRaw v;
        C m, s;
    };
    struct Local {};
    static constexpr int kWidth = Types::kWidth, kKinds = 2;
    static constexpr bool kShifted = false;
    Dense gy, x, mean, rstd;
    std::int64_t n;
    __device__ void prepare(std::int64_t, Local&) const {}
    __device__ void read(std::int64_t row, std::int64_t column, Raw& raw) const {
        read_raw(gy, row * n + column, raw.g);
        read_raw(x, row * n + column, raw.v);
        raw.m = mean.get_or<C>(row, C(0));
        raw.s = rstd.get<C>(row);
    }
    __device__ void add(const Raw& raw, const Local&, C (*sums)[kWidth]) const {
        C g[kWidth], v[kWidth];
        unpack_raw(raw.g, g);
        unpack_raw(raw.v, v);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) {
            sums[0][k] += g[k] * ((v[k] - raw.m) * raw.s);
            sums[1][k] += g[k];
        }
    }
};

struct PutParameters {
    Dense ggamma, gbeta;
    __device__ void operator()(std::int64_t, std::int64_t column, const double* sums) const {
        if (ggamma.data != nullptr) ggamma.put<double>(column, sums[0]);
        if (gbeta.data != nullptr) gbeta.put<double>(column, sums[1]);
    }
};

// f(std::integral_constant<int, kGroup>): every size for packs, few for the odd rows that have none.
template <class Types, class F>
void with_held_group(int group, const F& f) {
    if (group == kWarp) return f(std::integral_constant<int, kWarp>{});
    if constexpr (Types::kPacked) {
        if (group == 64) return f(std::integral_constant<int, 64>{});
        if (group == 256) return f(std::integral_constant<int, 256>{});
    }
    if (group <= 128) return f(std::integral_constant<int, 128>{});
    f(std::integral_constant<int, 512>{});
}

template <class Types>
void run_backward(const NormBackward& norm, Backward p, cudaStream_t stream) {
    const PutParameters put{norm.ggamma, norm.gbeta};
    const bool parameters = norm.ggamma || norm.gbeta;
    if (const int fits = held_group(p.n, kHeldPacks<Types> * Types::kWidth); fits > 0) {
        with_held_group<Types>(fits, [&](auto group) {
            constexpr int kGroup = decltype(group)::value;
            const std::int64_t blocks = held_blocks(p.rows, kGroup);
            const Scratch memory(parameters ? std::size_t(blocks * 2 * p.n) * sizeof(double) : 0);
            p.partial = static_cast<double*>(memory.data());
            if (norm.pending)
                backward_held<Types, kGroup, true><<<unsigned(blocks), kBlock<kGroup>, 0, stream>>>(p);
            else
                backward_held<Types, kGroup, false><<<unsigned(blocks), kBlock<kGroup>, 0, stream>>>(p);
            if (!parameters) return;
            ColumnPlan plan(1, blocks, p.n, 1);
            plan.chunks = blocks;
            launch_add_chunks<2>(put, plan, p.partial, stream);
        });
        return;
    }
    const Scratch memory(parameters ? ColumnPlan::scratch_bytes(1, p.rows, p.n, 2) : 0);
    if (parameters)
        launch_columns(ParameterTerms<Types>{norm.gy, norm.x, norm.mean, norm.rstd, p.n}, put, 1, p.rows, p.n,
                       memory.data(), stream);
    if (norm.gx && p.rows > 0) backward_long<Types><<<unsigned(p.rows), kLongGroup, 0, stream>>>(p);
}

}  // namespace

void CudaKernels::norm_backward(const NormBackward& norm) {
    const Launch stream("norm_backward");
    const std::int64_t n = columns_of(norm.x);
    if (n == 0) return;
    const Backward p{norm.gy,      norm.x,     norm.gamma, norm.mean,       norm.rstd, norm.gx,         norm.pending,
                     norm.gbranch, norm.again, norm.beta,  rows_of(norm.x), n,         1.0 / double(n), nullptr};
    with_norm_types(n, {&norm.x, &norm.gx, &norm.pending}, {&norm.gy, &norm.gbranch, &norm.again},
                    {&norm.gamma, &norm.beta},
                    [&](auto tag) { run_backward<typename decltype(tag)::type>(norm, p, stream); });
}

}  // namespace invar::cuda
