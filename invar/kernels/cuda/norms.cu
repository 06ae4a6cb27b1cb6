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
};

template <class Source, int kGroup>
__global__ __launch_bounds__(kThreads) void layer_forward(const Source x, const LayerForward p) {
    using C = typename Source::C;
    constexpr int kWidth = Source::kWidth;
    const std::int64_t r = first_row<kGroup>(), n = p.n;
    if (r >= p.rows) return;
    const Row<Source, kGroup> row(x, r * n, n);
    double sum = 0;
    row.each([&](std::int64_t, C* v) { sum += small_sum<kWidth>(v); });
    const double center = reduce<kGroup>(sum, Add{}) / double(n);
    const C m = C(center);
    sum = 0;
    row.each([&](std::int64_t, C* v) {
#pragma unroll
        for (int k = 0; k < kWidth; ++k) v[k] = (v[k] - m) * (v[k] - m);
        sum += small_sum<kWidth>(v);
    });
    const double inverse = 1.0 / sqrt(reduce<kGroup>(sum, Add{}) / double(n) + p.eps);
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
    const C level = C(reduce<kGroup>(plain, Add{}) / double(p.n)),
            tilt = C(reduce<kGroup>(product, Add{}) / double(p.n));
    gradients.each_with(inputs, [&](std::int64_t i, C* g, const C* v) {
        C a[kWidth];
        parameters_or<Source>(p.gamma, i, C(1), a);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) g[k] = s * (g[k] * a[k] - level - (v[k] - m) * s * tilt);
        Source::store(g, p.gx, r * p.n + i);
    });
}

template <class Source, int kGroup>
__global__ __launch_bounds__(kThreads) void layer_backward_rows(const Source gy, const Source x,
                                                                const LayerBackward p) {
    const std::int64_t r = first_row<kGroup>();
    if (r >= p.rows) return;
    const Row<Source, kGroup> gradients(gy, r * p.n, p.n), inputs(x, r * p.n, p.n);
    backward_row(gradients, inputs, p, r);
}

// gx and the parameters' gradients in one walk over gy and x: a thread keeps the sums of its columns while its block
// goes from row to row. Rows must fit in what is held.
inline constexpr int kFusedHeld = 2;
inline constexpr std::int64_t kFusedBlocks = 264;

template <class Source, int kGroup>
__global__ __launch_bounds__(kThreads, 2) void layer_backward_fused(const Source gy, const Source x,
                                                                    const LayerBackward p) {
    using C = typename Source::C;
    constexpr int kWidth = Source::kWidth, kHeld = kFusedHeld;
    using Held = Row<Source, kGroup, kHeld>;
    C sums[2][kHeld][kWidth] = {};
    const std::int64_t step = std::int64_t(gridDim.x) * kRowsABlock<kGroup>;
    std::int64_t r = first_row<kGroup>();
    // The next row is on its way while this one is worked on.
    Held next_gradients(gy, r * p.n, r < p.rows ? p.n : 0), next_inputs(x, r * p.n, r < p.rows ? p.n : 0);
    for (; r < p.rows; r += step) {
        const Held gradients = next_gradients, inputs = next_inputs;
        const std::int64_t next = r + step;
        next_gradients = Held(gy, next * p.n, next < p.rows ? p.n : 0);
        next_inputs = Held(x, next * p.n, next < p.rows ? p.n : 0);
        const C m = p.mean.get<C>(r), s = p.rstd.get<C>(r);
#pragma unroll
        for (int h = 0; h < kHeld; ++h) {
            if (Held::place(h) >= p.n) break;
            C g[kWidth], v[kWidth];
            Source::unpack(gradients.held[h], g);
            Source::unpack(inputs.held[h], v);
#pragma unroll
            for (int k = 0; k < kWidth; ++k) {
                sums[0][h][k] += g[k] * ((v[k] - m) * s);
                sums[1][h][k] += g[k];
            }
        }
        if (p.gx.data != nullptr) backward_row(gradients, inputs, p, r);
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

void layer_norm(const View& x, const View& gamma, const View& beta, const View& y, const View& mean, const View& rstd,
                double eps, cudaStream_t stream) {
    const LayerForward p{gamma, beta, y, mean, rstd, rows_of(x), columns_of(x), eps};
    if (p.rows == 0) return;
    with_source(p.n, {&x, &y}, {&gamma, &beta}, [&](auto tag) {
        using Source = typename decltype(tag)::type;
        with_group<Source>(p.n, [&](auto group) {
            constexpr int kGroup = decltype(group)::value;
            layer_forward<Source, kGroup><<<grid_for(p.rows, kRowsABlock<kGroup>), kThreads, 0, stream>>>(Source(x), p);
        });
    });
}

std::size_t layer_norm_backward_scratch_bytes(const View& x) {
    const std::int64_t rows = rows_of(x), n = columns_of(x);
    if (n == 0) return 0;
    const std::size_t fused = std::size_t(kFusedBlocks * 2 * n) * sizeof(double);
    const std::size_t plain = ColumnPlan::scratch_bytes(1, rows, n, 2);
    return fused > plain ? fused : plain;
}

void layer_norm_backward(const View& gy, const View& x, const View& gamma, const View& mean, const View& rstd,
                         const View& gx, const View& ggamma, const View& gbeta, void* scratch, cudaStream_t stream) {
    const LayerBackward p{gamma, mean, rstd, gx, rows_of(x), columns_of(x), static_cast<double*>(scratch)};
    const PutParameters put{ggamma, gbeta};
    const bool parameters = ggamma || gbeta;
    if (p.n == 0) return;
    with_source(p.n, {&x, &gy, &gx}, {&gamma}, [&](auto tag) {
        using Source = typename decltype(tag)::type;
        const Source gradients(gy), inputs(x);
        const std::int64_t held = kFusedHeld * Source::kWidth;
        if (parameters && p.n <= kThreads * held) {
            const auto run = [&](auto group) {
                constexpr int kGroup = decltype(group)::value;
                const std::int64_t blocks = p.rows > 0 ? grid_for(p.rows, kRowsABlock<kGroup>, kFusedBlocks) : 1;
                layer_backward_fused<Source, kGroup><<<unsigned(blocks), kThreads, 0, stream>>>(gradients, inputs, p);
                ColumnPlan plan(1, blocks, p.n, 1);
                plan.chunks = blocks;
                add_chunks<2><<<grid_for(p.n, kWarp), kThreads, 0, stream>>>(put, plan, p.partial);
            };
            if (p.n <= kWarp * held)
                run(std::integral_constant<int, kWarp>{});
            else
                run(std::integral_constant<int, kThreads>{});
            return;
        }
        if (parameters)
            launch_columns(ParameterTerms<Source>{gradients, inputs, mean, rstd, p.n}, put, 1, p.rows, p.n, scratch,
                           stream);
        if (!gx || p.rows == 0) return;
        with_group<Source>(p.n, [&](auto group) {
            constexpr int kGroup = decltype(group)::value;
            layer_backward_rows<Source, kGroup>
                <<<grid_for(p.rows, kRowsABlock<kGroup>), kThreads, 0, stream>>>(gradients, inputs, p);
        });
    });
}

}  // namespace invar::cuda
