// Batch normalisation of [rows, columns], with the residual sum and the ReLU behind it: statistics down the columns,
// then one pass in which each thread keeps its columns' constants in registers and walks down the rows.
#include "invar/kernels/batch_merge.h"
#include "invar/kernels/cuda/columns.cuh"
#include "invar/kernels/cuda/launch.h"
#include "invar/kernels/cuda/norm_types.cuh"

namespace invar::cuda {
namespace {

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

__device__ void move_towards(const Dense& running, std::int64_t column, double batch, double momentum) {
    if (running.data == nullptr || !isfinite(batch)) return;
    running.put<double>(column, (1 - momentum) * running.get<double>(column) + momentum * batch);
}

struct PutStatistics {
    Dense mean, rstd, running_mean, running_var;
    const double* shift;
    std::int64_t rows;
    double eps, momentum;
    __device__ void operator()(std::int64_t, std::int64_t column, const double* sums) const {
        const double d = sums[0] / double(rows), square = sums[1] / double(rows) - d * d;
        const double clipped = square < 0 ? 0.0 : square;
        const double variance = rstd.dtype == Dtype::f64 ? variance_in<double>(clipped) : variance_in<float>(clipped);
        mean.put<double>(column, shift[column] + d);
        rstd.put<double>(column, rsqrt(variance + eps));
        move_towards(running_mean, column, shift[column] + d, momentum);
        move_towards(running_var, column, variance * (double(rows) / double(rows - 1)), momentum);
    }
};

// --- statistics of several ranks ---

__global__ void merge_channels(const RankRows ranks, const Dense mean, const Dense rstd, const Dense running_mean,
                               const Dense running_var, const double eps, const double momentum) {
    const std::int64_t c = global_thread();
    if (c >= ranks.channels) return;
    const MergedChannel all(ranks, c, eps);
    mean.put<double>(c, all.mean);
    rstd.put<double>(c, all.rstd(eps));
    if (all.rows == 0) return;
    move_towards(running_mean, c, all.mean, momentum);
    move_towards(running_var, c, all.unbiased(), momentum);
}

__global__ void pull_channels(const RankRows ranks, const double* sums, const Dense rstd, const Dense gamma,
                              const Dense pull, const Dense constant) {
    const std::int64_t c = global_thread();
    if (c >= ranks.channels) return;
    const PulledChannel all(ranks, sums, c, rstd.get<double>(c), gamma.get_or<double>(c, 1.0));
    pull.put<double>(c, all.pull);
    constant.put<double>(c, all.constant);
}

// --- the ReLU ---

// How backward finds out where it let values through: not at all, by the norm made anew, or by the result.
enum class Mask { none, by_x, by_y };

// One rounding for product and sum: what backward makes anew is what forward compared with 0.
__device__ inline float normalized(float centered, float a, float b) {
    return __fmaf_rn(centered, a, b);
}
__device__ inline double normalized(double centered, double a, double b) {
    return __fma_rn(centered, a, b);
}

// A gradient passes where the result is above 0, or NaN.
template <int kWidth, class C>
__device__ inline void let_through(const C* y, C* g) {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) g[k] = y[k] <= C(0) ? C(0) : g[k];
}

// The constants of a thread's columns: (x - m) * a + b is what the ReLU reads.
template <class Source>
struct Affine {
    using C = typename Source::C;
    static constexpr int kWidth = Source::kWidth;
    C m[kWidth], a[kWidth], b[kWidth];
    __device__ void prepare(const Dense& mean, const Dense& rstd, const Dense& gamma, const Dense& beta,
                            std::int64_t column) {
        C inverse[kWidth];
        Source::parameters(rstd, column, inverse);
        Source::parameters(mean, column, m);
        parameters_or<Source>(gamma, column, C(1), a);
        parameters_or<Source>(beta, column, C(0), b);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) a[k] *= inverse[k];
    }
    // The gradient behind the ReLU, of inputs `v`; as rounded, a tiny result may be 0.
    __device__ void mask(const C* v, Dtype dtype, C* g) const {
        C y[kWidth];
#pragma unroll
        for (int k = 0; k < kWidth; ++k) y[k] = normalized(v[k] - m[k], a[k], b[k]);
        round_as<typename Source::Raw>(dtype, y);
        let_through<kWidth>(y, g);
    }
};

// --- gradients of the parameters, and what gx takes from the whole batch ---

// A ReLU that is known by its result comes behind a residual sum: the gradient behind it is written on the way.
template <class Source, Mask kMask>
struct GradientTerms {
    using C = typename Source::C;
    static constexpr int kWidth = Source::kWidth, kKinds = 2;
    static constexpr bool kShifted = false;
    struct Two {
        typename Source::Raw g, v;
    };
    struct Three {
        typename Source::Raw g, v, y;
        std::int64_t at;
    };
    using Raw = std::conditional_t<kMask == Mask::by_y, Three, Two>;
    using Local = Affine<Source>;
    Source gy, x, y;
    Dense mean, rstd, gamma, beta, gresidual;
    Dtype dtype;
    std::int64_t columns;
    __device__ void prepare(std::int64_t column, Local& local) const {
        if constexpr (kMask == Mask::by_x)
            local.prepare(mean, rstd, gamma, beta, column);
        else
            Source::parameters(mean, column, local.m);
    }
    __device__ void read(std::int64_t row, std::int64_t column, Raw& raw) const {
        const std::int64_t at = row * columns + column;
        gy.read(at, raw.g);
        x.read(at, raw.v);
        if constexpr (kMask == Mask::by_y) {
            y.read(at, raw.y);
            raw.at = at;
        }
    }
    __device__ void add(const Raw& raw, const Local& local, C (*sums)[kWidth]) const {
        C g[kWidth], v[kWidth];
        Source::unpack(raw.g, g);
        Source::unpack(raw.v, v);
        if constexpr (kMask == Mask::by_x) local.mask(v, dtype, g);
        if constexpr (kMask == Mask::by_y) {
            C result[kWidth];
            Source::unpack(raw.y, result);
            let_through<kWidth>(result, g);
            Source::store(g, gresidual, raw.at);
        }
#pragma unroll
        for (int k = 0; k < kWidth; ++k) {
            sums[0][k] += g[k];
            sums[1][k] += g[k] * (v[k] - local.m[k]);
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

// y = relu((x - mean) * (gamma * rstd) + beta + residual)
template <class Source, bool kResidual>
struct Normalize {
    using C = typename Source::C;
    static constexpr int kWidth = Source::kWidth;
    struct One {
        typename Source::Raw v;
    };
    struct Two {
        typename Source::Raw v, r;
    };
    using Raw = std::conditional_t<kResidual, Two, One>;
    using Local = Affine<Source>;
    Source x, residual;
    Dense mean, rstd, gamma, beta, y;
    bool relu;
    __device__ void prepare(std::int64_t column, Local& local) const { local.prepare(mean, rstd, gamma, beta, column); }
    __device__ void read(std::int64_t at, Raw& raw) const {
        x.read(at, raw.v);
        if constexpr (kResidual) residual.read(at, raw.r);
    }
    __device__ void write(std::int64_t at, const Raw& raw, const Local& local) const {
        C v[kWidth];
        Source::unpack(raw.v, v);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) v[k] = normalized(v[k] - local.m[k], local.a[k], local.b[k]);
        if constexpr (kResidual) {
            C r[kWidth];
            Source::unpack(raw.r, r);
#pragma unroll
            for (int k = 0; k < kWidth; ++k) v[k] += r[k];
        }
        if (relu) {
#pragma unroll
            for (int k = 0; k < kWidth; ++k) v[k] = v[k] < C(0) ? C(0) : v[k];
        }
        Source::store(v, y, at);
    }
};

// gx = gy * (gamma * rstd) (+ (x - mean) * pull + constant), of the gradient behind the ReLU
template <class Source, bool kBatch, bool kMasked>
struct Propagate {
    using C = typename Source::C;
    static constexpr int kWidth = Source::kWidth;
    struct Raw {
        typename Source::Raw g, v;
    };
    struct Local {
        Affine<Source> affine;
        C b[kWidth], c[kWidth];
    };
    Source gy, x;
    Dense mean, rstd, gamma, beta, gx;
    const double* pull;
    const double* constant;
    __device__ void prepare(std::int64_t column, Local& local) const {
        local.affine.prepare(mean, rstd, gamma, beta, column);
        if constexpr (kBatch) {
#pragma unroll
            for (int k = 0; k < kWidth; ++k) {
                local.b[k] = C(pull[column + k]);
                local.c[k] = C(constant[column + k]);
            }
        }
    }
    __device__ void read(std::int64_t at, Raw& raw) const {
        gy.read(at, raw.g);
        if constexpr (kBatch || kMasked) x.read(at, raw.v);
    }
    __device__ void write(std::int64_t at, const Raw& raw, const Local& local) const {
        const Affine<Source>& p = local.affine;
        C g[kWidth], v[kWidth];
        Source::unpack(raw.g, g);
        if constexpr (kBatch || kMasked) Source::unpack(raw.v, v);
        if constexpr (kMasked) p.mask(v, gx.dtype, g);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) {
            g[k] *= p.a[k];
            if constexpr (kBatch) g[k] += (v[k] - p.m[k]) * local.b[k] + local.c[k];
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

void CudaKernels::batch_norm_stats(const BatchNormStats& norm) {
    const Launch stream("batch_norm_stats");
    const Scratch memory(batch_norm_stats_scratch_bytes(norm.x));
    const std::int64_t columns = columns_of(norm.x), rows = rows_of(norm.x);
    if (columns == 0) return;
    double* shift = static_cast<double*>(memory.data());
    const PutStatistics put{norm.mean, norm.rstd, norm.running_mean, norm.running_var,
                            shift,     rows,      norm.eps,          norm.momentum};
    with_source(columns, {&norm.x}, {}, [&](auto tag) {
        using Source = typename decltype(tag)::type;
        launch_columns(Deviations<Source>{Source(norm.x), columns, shift}, put, 1, rows, columns, shift + columns,
                       stream);
    });
}

void CudaKernels::batch_norm_merge(const BatchNormMerge& norm) {
    const Launch stream("batch_norm_merge");
    const RankRows ranks(norm.parts);
    merge_channels<<<grid_for(ranks.channels, kThreads), kThreads, 0, stream>>>(
        ranks, norm.mean, norm.rstd, norm.running_mean, norm.running_var, norm.eps, norm.momentum);
}

void CudaKernels::batch_norm_pull(const BatchNormPull& norm) {
    const Launch stream("batch_norm_pull");
    const RankRows ranks(norm.parts);
    pull_channels<<<grid_for(ranks.channels, kThreads), kThreads, 0, stream>>>(
        ranks, norm.sums.as<const double>(), norm.rstd, norm.gamma, norm.pull, norm.constant);
}

void CudaKernels::batch_norm(const BatchNormForward& norm) {
    const Launch stream("batch_norm");
    const std::int64_t columns = columns_of(norm.x);
    const auto run = [&](auto tag, auto with_residual) {
        using Source = typename decltype(tag)::type;
        constexpr bool kResidual = decltype(with_residual)::value;
        const Normalize<Source, kResidual> pass{Source(norm.x), Source(kResidual ? norm.residual : norm.x),
                                                norm.mean,      norm.rstd,
                                                norm.gamma,     norm.beta,
                                                norm.y,         norm.relu};
        launch_walk(pass, rows_of(norm.x), columns, stream);
    };
    with_source(columns, {&norm.x, &norm.y, &norm.residual}, {&norm.mean, &norm.rstd, &norm.gamma, &norm.beta},
                [&](auto tag) { norm.residual ? run(tag, std::true_type{}) : run(tag, std::false_type{}); });
}

static std::size_t batch_norm_backward_scratch_bytes(const View& x) {
    const std::int64_t columns = columns_of(x);
    return columns == 0
               ? 0
               : std::size_t(2 * columns) * sizeof(double) + ColumnPlan::scratch_bytes(1, rows_of(x), columns, 2);
}

void CudaKernels::batch_norm_backward(const BatchNormBackward& norm) {
    const Launch stream("batch_norm_backward");
    const Scratch memory(batch_norm_backward_scratch_bytes(norm.x));
    const std::int64_t columns = columns_of(norm.x), rows = rows_of(norm.x);
    if (columns == 0) return;
    double* pull = static_cast<double*>(memory.data());
    double* constant = pull + columns;
    const Mask mask = !norm.relu ? Mask::none : norm.y ? Mask::by_y : Mask::by_x;
    const PutGradients put{norm.ggamma, norm.gbeta, norm.gamma, norm.rstd, pull, constant, rows};
    with_source(columns, {&norm.x, &norm.gy, &norm.gx, &norm.y, &norm.gresidual},
                {&norm.mean, &norm.rstd, &norm.gamma, &norm.beta}, [&](auto tag) {
                    using Source = typename decltype(tag)::type;
                    const Source inputs(norm.x);
                    const auto sums = [&](auto kind) {
                        constexpr Mask kMask = decltype(kind)::value;
                        const GradientTerms<Source, kMask> terms{
                            Source(norm.gy), inputs,         Source(kMask == Mask::by_y ? norm.y : norm.x),
                            norm.mean,       norm.rstd,      norm.gamma,
                            norm.beta,       norm.gresidual, norm.x.dtype,
                            columns};
                        launch_columns(terms, put, 1, rows, columns, constant + columns, stream);
                    };
                    const auto propagate = [&](auto batch, auto masked) {
                        const Propagate<Source, decltype(batch)::value, decltype(masked)::value> pass{
                            Source(mask == Mask::by_y ? norm.gresidual : norm.gy),
                            inputs,
                            norm.mean,
                            norm.rstd,
                            norm.gamma,
                            norm.beta,
                            norm.gx,
                            pull,
                            constant};
                        launch_walk(pass, rows, columns, stream);
                    };
                    if (mask == Mask::by_y)
                        sums(std::integral_constant<Mask, Mask::by_y>{});
                    else if (norm.batch_statistics || norm.ggamma || norm.gbeta) {
                        if (mask == Mask::by_x)
                            sums(std::integral_constant<Mask, Mask::by_x>{});
                        else
                            sums(std::integral_constant<Mask, Mask::none>{});
                    }
                    if (!norm.gx) return;
                    const auto with_batch = [&](auto masked) {
                        norm.batch_statistics ? propagate(std::true_type{}, masked)
                                              : propagate(std::false_type{}, masked);
                    };
                    mask == Mask::by_x ? with_batch(std::true_type{}) : with_batch(std::false_type{});
                });
}

}  // namespace invar::cuda
