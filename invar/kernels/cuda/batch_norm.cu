// Batch normalisation of [rows, columns]: statistics down the columns, then one pass in which each thread keeps its
// columns' constants in registers and walks down the rows.
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

// --- statistics ---

// Deviations from the mean of the first few rows: near enough to the mean that squares do not cancel.
template <class Source>
struct Deviations {
    using C = typename Source::C;
    using Raw = typename Source::Raw;
    static constexpr int kWidth = Source::kWidth, kKinds = 2;
    static constexpr bool kShifted = true;
    struct Local {
        C center[kWidth];
    };
    Source x;
    std::int64_t columns;
    double* shift;
    __device__ void prepare(std::int64_t, Local&) const {}
    __device__ void read(std::int64_t row, std::int64_t column, Raw& raw) const { x.read(row * columns + column, raw); }
    __device__ void first(const Raw& raw, C* values) const { Source::unpack(raw, values); }
    __device__ void add(const Raw& raw, const Local& local, C (*sums)[kWidth]) const {
        C v[kWidth];
        Source::unpack(raw, v);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) {
            const C d = v[k] - local.center[k];
            sums[0][k] += d;
            sums[1][k] += d * d;
        }
    }
};

struct PutStatistics {
    Dense mean, variance;
    const double* shift;
    std::int64_t rows;
    __device__ void operator()(std::int64_t, std::int64_t column, const double* sums) const {
        const double d = sums[0] / double(rows), square = sums[1] / double(rows) - d * d;
        if (mean.data != nullptr) mean.put<double>(column, shift[column] + d);
        if (variance.data == nullptr) return;
        const double clipped = square < 0 ? 0.0 : square;
        variance.put<double>(column,
                             variance.dtype == Dtype::f64 ? variance_in<double>(clipped) : variance_in<float>(clipped));
    }
};

// --- gradients of the parameters, and what gx takes from the whole batch ---

template <class Source>
struct GradientTerms {
    using C = typename Source::C;
    static constexpr int kWidth = Source::kWidth, kKinds = 2;
    static constexpr bool kShifted = false;
    struct Raw {
        typename Source::Raw g, v;
    };
    struct Local {
        C center[kWidth];
    };
    Source gy, x;
    Dense mean;
    std::int64_t columns;
    __device__ void prepare(std::int64_t column, Local& local) const { Source::parameters(mean, column, local.center); }
    __device__ void read(std::int64_t row, std::int64_t column, Raw& raw) const {
        gy.read(row * columns + column, raw.g);
        x.read(row * columns + column, raw.v);
    }
    __device__ void add(const Raw& raw, const Local& local, C (*sums)[kWidth]) const {
        C g[kWidth], v[kWidth];
        Source::unpack(raw.g, g);
        Source::unpack(raw.v, v);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) {
            sums[0][k] += g[k];
            sums[1][k] += g[k] * (v[k] - local.center[k]);
        }
    }
};

struct PutGradients {
    Dense ggamma, gbeta, gamma, rstd;
    double* pull;  // gx += (x - mean) * pull + constant
    double* constant;
    std::int64_t rows;
    __device__ void operator()(std::int64_t, std::int64_t column, const double* sums) const {
        const double inverse = rstd.get<double>(column), weight = gamma.get_or<double>(column, 1.0);
        if (ggamma.data != nullptr) ggamma.put<double>(column, sums[1] * inverse);
        if (gbeta.data != nullptr) gbeta.put<double>(column, sums[0]);
        pull[column] = rows > 0 ? -weight * inverse * inverse * inverse * sums[1] / double(rows) : 0.0;
        constant[column] = rows > 0 ? -weight * inverse * sums[0] / double(rows) : 0.0;
    }
};

// --- one pass over the rows ---

// y = (x - mean) * (gamma * rstd) + beta
template <class Source>
struct Normalize {
    using C = typename Source::C;
    using Raw = typename Source::Raw;
    static constexpr int kWidth = Source::kWidth;
    struct Local {
        C m[kWidth], a[kWidth], b[kWidth];
    };
    Source x;
    Dense mean, rstd, gamma, beta, y;
    __device__ void prepare(std::int64_t column, Local& local) const {
        C inverse[kWidth];
        Source::parameters(rstd, column, inverse);
        Source::parameters(mean, column, local.m);
        parameters_or<Source>(gamma, column, C(1), local.a);
        parameters_or<Source>(beta, column, C(0), local.b);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) local.a[k] *= inverse[k];
    }
    __device__ void read(std::int64_t at, Raw& raw) const {
        x.read(at, raw);
    }
    __device__ void write(std::int64_t at, const Raw& raw, const Local& local) const {
        C v[kWidth];
        Source::unpack(raw, v);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) v[k] = (v[k] - local.m[k]) * local.a[k] + local.b[k];
        Source::store(v, y, at);
    }
};

// gx = gy * (gamma * rstd) (+ (x - mean) * pull + constant)
template <class Source, bool kBatch>
struct Propagate {
    using C = typename Source::C;
    static constexpr int kWidth = Source::kWidth;
    struct Raw {
        typename Source::Raw g, v;
    };
    struct Local {
        C a[kWidth], m[kWidth], b[kWidth], c[kWidth];
    };
    Source gy, x;
    Dense mean, rstd, gamma, gx;
    const double* pull;
    const double* constant;
    __device__ void prepare(std::int64_t column, Local& local) const {
        C inverse[kWidth];
        Source::parameters(rstd, column, inverse);
        parameters_or<Source>(gamma, column, C(1), local.a);
        if constexpr (kBatch) Source::parameters(mean, column, local.m);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) {
            local.a[k] *= inverse[k];
            if constexpr (kBatch) {
                local.b[k] = C(pull[column + k]);
                local.c[k] = C(constant[column + k]);
            }
        }
    }
    __device__ void read(std::int64_t at, Raw& raw) const {
        gy.read(at, raw.g);
        if constexpr (kBatch) x.read(at, raw.v);
    }
    __device__ void write(std::int64_t at, const Raw& raw, const Local& local) const {
        C g[kWidth];
        Source::unpack(raw.g, g);
        if constexpr (kBatch) {
            C v[kWidth];
            Source::unpack(raw.v, v);
#pragma unroll
            for (int k = 0; k < kWidth; ++k) g[k] = g[k] * local.a[k] + ((v[k] - local.m[k]) * local.b[k] + local.c[k]);
        } else {
#pragma unroll
            for (int k = 0; k < kWidth; ++k) g[k] *= local.a[k];
        }
        Source::store(g, gx, at);
    }
};

template <class Pass>
__global__ __launch_bounds__(kThreads) void walk_rows(const Pass pass, const ColumnPlan plan) {
    constexpr int kUnroll = 4;
    const int x = int(threadIdx.x) % plan.across, y = int(threadIdx.x) / plan.across, down = kThreads / plan.across;
    const Quotient q = divide(blockIdx.x, plan.column_blocks);
    const std::int64_t column = (q.rest * plan.across + x) * Pass::kWidth;
    if (column >= plan.columns) return;
    typename Pass::Local local;
    pass.prepare(column, local);
    const std::int64_t end = smaller(plan.rows, (q.whole + 1) * plan.rows_each);
    for (std::int64_t row = q.whole * plan.rows_each + y; row < end; row += kUnroll * down) {
        typename Pass::Raw raw[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u)
            if (row + u * down < end) pass.read((row + u * down) * plan.columns + column, raw[u]);
#pragma unroll
        for (int u = 0; u < kUnroll; ++u)
            if (row + u * down < end) pass.write((row + u * down) * plan.columns + column, raw[u], local);
    }
}

template <class Pass>
void launch_walk(const Pass& pass, std::int64_t rows, std::int64_t columns, cudaStream_t stream) {
    if (rows * columns == 0) return;
    ColumnPlan plan(1, rows, columns, Pass::kWidth);
    // No sums to bring together here: more and smaller chunks even out the end of the launch.
    const std::int64_t down = kThreads / plan.across, share = divide_up(rows * plan.column_blocks, 4224);
    plan.rows_each = divide_up(share > 4 * down ? share : 4 * down, down) * down;
    plan.chunks = divide_up(rows, plan.rows_each);
    walk_rows<<<unsigned(plan.chunks * plan.column_blocks), kThreads, 0, stream>>>(pass, plan);
}

}  // namespace

static std::size_t batch_norm_stats_scratch_bytes(const View& x) {
    const std::int64_t columns = columns_of(x);
    return columns == 0 ? 0
                        : std::size_t(columns) * sizeof(double) + ColumnPlan::scratch_bytes(1, rows_of(x), columns, 2);
}

void CudaKernels::batch_norm_stats(const View& x, const View& mean, const View& variance) {
    const Launch stream("batch_norm_stats");
    const Scratch memory(batch_norm_stats_scratch_bytes(x));
    void* const scratch = memory.data();
    const std::int64_t columns = columns_of(x), rows = rows_of(x);
    if (columns == 0) return;
    double* shift = static_cast<double*>(scratch);
    with_source(columns, {&x}, {}, [&](auto tag) {
        using Source = typename decltype(tag)::type;
        launch_columns(Deviations<Source>{Source(x), columns, shift}, PutStatistics{mean, variance, shift, rows}, 1,
                       rows, columns, shift + columns, stream);
    });
}

void CudaKernels::batch_norm(const View& x, const View& mean, const View& rstd, const View& gamma, const View& beta,
                             const View& y) {
    const Launch stream("batch_norm");
    with_source(columns_of(x), {&x, &y}, {&mean, &rstd, &gamma, &beta}, [&](auto tag) {
        using Source = typename decltype(tag)::type;
        launch_walk(Normalize<Source>{Source(x), mean, rstd, gamma, beta, y}, rows_of(x), columns_of(x), stream);
    });
}

static std::size_t batch_norm_backward_scratch_bytes(const View& x) {
    const std::int64_t columns = columns_of(x);
    return columns == 0
               ? 0
               : std::size_t(2 * columns) * sizeof(double) + ColumnPlan::scratch_bytes(1, rows_of(x), columns, 2);
}

void CudaKernels::batch_norm_backward(const View& gy, const View& x, const View& mean, const View& rstd,
                                      const View& gamma, const View& gx, const View& ggamma, const View& gbeta,
                                      bool batch_statistics) {
    const Launch stream("batch_norm_backward");
    const Scratch memory(batch_norm_backward_scratch_bytes(x));
    void* const scratch = memory.data();
    const std::int64_t columns = columns_of(x), rows = rows_of(x);
    if (columns == 0) return;
    double* pull = static_cast<double*>(scratch);
    double* constant = pull + columns;
    with_source(columns, {&x, &gy, &gx}, {&mean, &rstd, &gamma}, [&](auto tag) {
        using Source = typename decltype(tag)::type;
        const Source gradients(gy), inputs(x);
        if (batch_statistics || ggamma || gbeta)
            launch_columns(GradientTerms<Source>{gradients, inputs, mean, columns},
                           PutGradients{ggamma, gbeta, gamma, rstd, pull, constant, rows}, 1, rows, columns,
                           constant + columns, stream);
        if (!gx) return;
        if (batch_statistics)
            launch_walk(Propagate<Source, true>{gradients, inputs, mean, rstd, gamma, gx, pull, constant}, rows,
                        columns, stream);
        else
            launch_walk(Propagate<Source, false>{gradients, inputs, mean, rstd, gamma, gx, pull, constant}, rows,
                        columns, stream);
    });
}

}  // namespace invar::cuda
