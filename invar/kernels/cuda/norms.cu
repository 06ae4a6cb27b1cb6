// Layer normalisation of [rows, columns]. The mean is subtracted before anything is squared, so that a large mean costs
// no digits; sums of many values are taken in double.
#include "invar/kernels/cuda/columns.cuh"
#include "invar/kernels/cuda/launch.h"

namespace invar::cuda {
namespace {

std::int64_t columns_of(const View& x) {
    return x.size[x.rank - 1];
}
std::int64_t rows_of(const View& x) {
    return columns_of(x) > 0 ? x.numel() / columns_of(x) : 0;
}

struct LayerForward {
    Dense gamma, beta, y, mean, rstd;
    std::int64_t rows, n;
    double eps;
    double share;  // 1 / n: a division in double costs each thread as much as a pack
};

template <class Source, int kGroup>
__global__ __launch_bounds__(kBlock<kGroup>) void layer_forward(const Source x, const LayerForward p) {
    using C = typename Source::C;
    constexpr int kWidth = Source::kWidth;
    const std::int64_t r = first_row<kGroup>(), n = p.n;
    if (r >= p.rows) return;
    const Row<Source, kGroup> row(x, r * n, n);
    double sum = 0;
    row.each([&](std::int64_t, C* v) { sum += small_sum<kWidth>(v); });
    const double center = reduce<kGroup>(sum, Add{}) * p.share;
    const C m = C(center);
    sum = 0;
    row.each([&](std::int64_t, C* v) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k) v[k] = (v[k] - m) * (v[k] - m);
        sum += small_sum<kWidth>(v);
    });
    const double inverse = rsqrt(variance_in<C>(reduce<kGroup>(sum, Add{}) * p.share) + p.eps);
    const C s = C(inverse);
    row.each([&](std::int64_t i, C* v) {
        C a[kWidth], b[kWidth];
        parameters_or<Source>(p.gamma, i, C(1), a);
        parameters_or<Source>(p.beta, i, C(0), b);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) v[k] = (v[k] - m) * s * a[k] + b[k];
        Source::store(v, p.y, r * n + i);
    });
    if (threadIdx.x % kGroup != 0) return;
    if (p.mean.data != nullptr) p.mean.put<double>(r, center);
    if (p.rstd.data != nullptr) p.rstd.put<double>(r, inverse);
}

struct LayerBackward {
    Dense gamma, mean, rstd, gx;
    std::int64_t rows, n;
    double share;     // 1 / n
    double* partial;  // [blocks, 2, n]: each block's sums of gy * xhat and of gy
};

// What a row of `gx` needs from the whole row: the means of gy * gamma and of gy * gamma * xhat.
template <int kGroup, int kHeld, class Source>
__device__ inline void backward_row(const Row<Source, kGroup, kHeld>& gradients,
                                    const Row<Source, kGroup, kHeld>& inputs, const LayerBackward& p, std::int64_t r) {
    using C = typename Source::C;
    constexpr int kWidth = Source::kWidth;
    const C m = p.mean.get<C>(r), s = p.rstd.get<C>(r);
    double plain = 0, product = 0;
    gradients.each_with(inputs, [&](std::int64_t i, C* g, C* v) {
        C a[kWidth];
        parameters_or<Source>(p.gamma, i, C(1), a);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) {
            g[k] *= a[k];
            v[k] = g[k] * ((v[k] - m) * s);
        }
        plain += small_sum<kWidth>(g);
        product += small_sum<kWidth>(v);
    });
    const C level = C(reduce<kGroup>(plain, Add{}) * p.share), tilt = C(reduce<kGroup>(product, Add{}) * p.share);
    gradients.each_with(inputs, [&](std::int64_t i, C* g, const C* v) {
        C a[kWidth];
        parameters_or<Source>(p.gamma, i, C(1), a);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) g[k] = s * (g[k] * a[k] - level - (v[k] - m) * s * tilt);
        Source::store(g, p.gx, r * p.n + i);
    });
}

template <class Source, int kGroup>
__global__ __launch_bounds__(kBlock<kGroup>) void layer_backward_rows(const Source gy, const Source x,
                                                                      const LayerBackward p) {
    const std::int64_t r = first_row<kGroup>();
    if (r >= p.rows) return;
    const Row<Source, kGroup> gradients(gy, r * p.n, p.n), inputs(x, r * p.n, p.n);
    backward_row(gradients, inputs, p, r);
}

// gx and the parameters' gradients in one walk over gy and x: a thread keeps the sums of its columns while its block
// goes from row to row. Rows must fit in what is held.
template <class Source>
inline constexpr int kFusedHeld = Source::kWidth == 1 ? 2 : 16 / Source::kWidth;
// Threads that share a row when each holds so many of its elements; 0: the row is too long.
inline int fused_group(std::int64_t n, int each) {
    for (const int group : {kWarp, 64, 128, 256, 512})
        if (n <= std::int64_t(group) * each) return group;
    return 0;
}
// 512 threads for each multiprocessor of a large GPU, in blocks of these groups.
inline std::int64_t fused_blocks(std::int64_t rows, int group) {
    const std::int64_t block = group == kWarp ? kThreads : group, at_once = block / group;
    return rows > 0 ? smaller(divide_up(rows, at_once), 132 * 512 / block) : 1;
}

struct Means {
    double plain = 0, product = 0;
};
struct AddMeans {
    __device__ Means operator()(const Means& a, const Means& b) const {
        return {a.plain + b.plain, a.product + b.product};
    }
};

template <class Source, int kGroup>
__global__ __launch_bounds__(kBlock<kGroup>, 512 / kBlock<kGroup>) void layer_backward_fused(const Source gy,
                                                                                             const Source x,
                                                                                             const LayerBackward p) {
    using C = typename Source::C;
    constexpr int kWidth = Source::kWidth, kHeld = kFusedHeld<Source>;
    constexpr bool kKeepsGamma = kWidth == 8;  // packs of 16 bits leave the registers for it
    using Held = Row<Source, kGroup, kHeld>;
    C sums[2][kHeld][kWidth] = {};
    C kept[kKeepsGamma ? kHeld : 1][kWidth];
    if constexpr (kKeepsGamma) {
#pragma unroll
        for (int h = 0; h < kHeld; ++h)
            if (Held::place(h) < p.n) parameters_or<Source>(p.gamma, Held::place(h), C(1), kept[h]);
    }
    const std::int64_t step = std::int64_t(gridDim.x) * kRowsABlock<kGroup>;
    std::int64_t r = first_row<kGroup>();
    // The next row is on its way while this one is worked on.
    const auto length = [&](std::int64_t row) { return row < p.rows ? p.n : 0; };
    Held next_gradients(gy, r * p.n, length(r)), next_inputs(x, r * p.n, length(r));
    C next_m = r < p.rows ? p.mean.get<C>(r) : C(0), next_s = r < p.rows ? p.rstd.get<C>(r) : C(0);
    for (; r < p.rows; r += step) {
        const Held gradients = next_gradients, inputs = next_inputs;
        const C m = next_m, s = next_s;
        const std::int64_t next = r + step;
        next_gradients = Held(gy, next * p.n, length(next));
        next_inputs = Held(x, next * p.n, length(next));
        if (next < p.rows) next_m = p.mean.get<C>(next), next_s = p.rstd.get<C>(next);
        const auto each = [&](const auto& f) {
#pragma unroll
            for (int h = 0; h < kHeld; ++h) {
                if (Held::place(h) >= p.n) break;
                C g[kWidth], v[kWidth], a[kWidth];
                Source::unpack(gradients.held[h], g);
                Source::unpack(inputs.held[h], v);
                if constexpr (!kKeepsGamma) parameters_or<Source>(p.gamma, Held::place(h), C(1), a);
#pragma unroll
                for (int k = 0; k < kWidth; ++k) {
                    if constexpr (kKeepsGamma) a[k] = kept[h][k];
                    v[k] = (v[k] - m) * s;
                }
                f(h, g, v, a);
            }
        };
        Means sum;
        each([&](int h, C* g, C* v, const C* a) {
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
        const C level = C(sum.plain * p.share), tilt = C(sum.product * p.share);
        each([&](int h, C* g, const C* v, const C* a) {
#pragma unroll
            for (int k = 0; k < kWidth; ++k) g[k] = s * (g[k] * a[k] - level - v[k] * tilt);
            Source::store(g, p.gx, r * p.n + Held::place(h));
        });
    }
    // The warps of a block add up theirs; a row that has a whole block has one owner for each column already.
    __shared__ double shared[kGroup == kWarp ? kThreads * kWidth : 1];
#pragma unroll
    for (int kind = 0; kind < 2; ++kind)
#pragma unroll
        for (int h = 0; h < kHeld; ++h) {
            double* to = p.partial + (std::int64_t(blockIdx.x) * 2 + kind) * p.n;
            if constexpr (kGroup == kWarp) {
                sum_over_y<kWidth>(sums[kind][h], kWarp, shared);
                const std::int64_t column = std::int64_t(h) * kWarp * kWidth + threadIdx.x;
                if (threadIdx.x < kWarp * kWidth && column < p.n) to[column] = shared[threadIdx.x];
            } else if (Held::place(h) < p.n) {
#pragma unroll
                for (int k = 0; k < kWidth; ++k) to[Held::place(h) + k] = double(sums[kind][h][k]);
            }
        }
}

// The parameters' gradients alone, where rows are too long to be held.
template <class Source>
struct ParameterTerms {
    using C = typename Source::C;
    struct Raw {
        typename Source::Raw g, v;
        C m, s;
    };
    struct Local {};
    static constexpr int kWidth = Source::kWidth, kKinds = 2;
    static constexpr bool kShifted = false;
    Source gy, x;
    Dense mean, rstd;
    std::int64_t n;
    __device__ void prepare(std::int64_t, Local&) const {}
    __device__ void read(std::int64_t row, std::int64_t column, Raw& raw) const {
        gy.read(row * n + column, raw.g);
        x.read(row * n + column, raw.v);
        raw.m = mean.get<C>(row);
        raw.s = rstd.get<C>(row);
    }
    __device__ void add(const Raw& raw, const Local&, C (*sums)[kWidth]) const {
        C g[kWidth], v[kWidth];
        Source::unpack(raw.g, g);
        Source::unpack(raw.v, v);
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

}  // namespace

void CudaKernels::layer_norm(const View& x, const View& gamma, const View& beta, const View& y, const View& mean,
                             const View& rstd, double eps) {
    const Launch stream("layer_norm");
    const LayerForward p{gamma, beta, y, mean, rstd, rows_of(x), columns_of(x), eps, 1.0 / double(columns_of(x))};
    if (p.rows == 0) return;
    with_source(p.n, {&x, &y}, {&gamma, &beta}, [&](auto tag) {
        using Source = typename decltype(tag)::type;
        with_group<Source>(p.n, [&](auto group) {
            constexpr int kGroup = decltype(group)::value;
            layer_forward<Source, kGroup>
                <<<grid_for(p.rows, kRowsABlock<kGroup>), kBlock<kGroup>, 0, stream>>>(Source(x), p);
        });
    });
}

static std::size_t layer_norm_backward_scratch_bytes(const View& x) {
    const std::int64_t rows = rows_of(x), n = columns_of(x);
    if (n == 0) return 0;
    std::size_t most = ColumnPlan::scratch_bytes(1, rows, n, 2);
    for (const int each : {2, 16})
        if (const int group = fused_group(n, each); group > 0) {
            const std::size_t fused = std::size_t(fused_blocks(rows, group) * 2 * n) * sizeof(double);
            if (fused > most) most = fused;
        }
    return most;
}

void CudaKernels::layer_norm_backward(const View& gy, const View& x, const View& gamma, const View& mean,
                                      const View& rstd, const View& gx, const View& ggamma, const View& gbeta) {
    const Launch stream("layer_norm_backward");
    const Scratch memory(layer_norm_backward_scratch_bytes(x));
    void* const scratch = memory.data();
    const LayerBackward p{
        gamma, mean, rstd, gx, rows_of(x), columns_of(x), 1.0 / double(columns_of(x)), static_cast<double*>(scratch)};
    const PutParameters put{ggamma, gbeta};
    const bool parameters = ggamma || gbeta;
    if (p.n == 0) return;
    with_source(p.n, {&x, &gy, &gx}, {&gamma}, [&](auto tag) {
        using Source = typename decltype(tag)::type;
        const Source gradients(gy), inputs(x);
        const int fused = parameters ? fused_group(p.n, kFusedHeld<Source> * Source::kWidth) : 0;
        if (fused > 0) {
            const auto run = [&](auto group) {
                constexpr int kGroup = decltype(group)::value;
                const std::int64_t blocks = fused_blocks(p.rows, kGroup);
                layer_backward_fused<Source, kGroup>
                    <<<unsigned(blocks), kBlock<kGroup>, 0, stream>>>(gradients, inputs, p);
                ColumnPlan plan(1, blocks, p.n, 1);
                plan.chunks = blocks;
                launch_add_chunks<2>(put, plan, p.partial, stream);
            };
            switch (fused) {
                case kWarp:
                    return run(std::integral_constant<int, kWarp>{});
                case 64:
                    return run(std::integral_constant<int, 64>{});
                case 128:
                    return run(std::integral_constant<int, 128>{});
                case 256:
                    return run(std::integral_constant<int, 256>{});
                default:
                    return run(std::integral_constant<int, 512>{});
            }
        }
        if (parameters)
            launch_columns(ParameterTerms<Source>{gradients, inputs, mean, rstd, p.n}, put, 1, p.rows, p.n, scratch,
                           stream);
        if (!gx || p.rows == 0) return;
        with_group<Source>(p.n, [&](auto group) {
            constexpr int kGroup = decltype(group)::value;
            layer_backward_rows<Source, kGroup>
                <<<grid_for(p.rows, kRowsABlock<kGroup>), kBlock<kGroup>, 0, stream>>>(gradients, inputs, p);
        });
    });
}

}  // namespace invar::cuda
