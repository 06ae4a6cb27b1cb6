// Batch normalisation of [rows, columns], with the residual sum and the ReLU behind it. Statistics are taken in float
// and added up in double; the mean is subtracted before anything is squared, so that a large mean costs no digits.
#include <cmath>

#include "invar/kernels/batch_merge.h"
#include "invar/kernels/cpu/simd/cpu_kernels.h"
#include "invar/kernels/cpu/simd/loops.h"

namespace invar::INVAR_ISA {
namespace {

void store_vector(const std::vector<double>& values, const View& view) {
    if (view) store(values.data(), view.data, view.dtype, 1, std::int64_t(values.size()));
}

// --- batch norm: statistics down the columns, then one pass over blocks of whole rows ---

// f(at, column, count, width) for pieces of at most kBlock elements: `count` rows of `width` columns, dense, from
// element `at`.
template <class F>
void for_pieces(std::int64_t row, std::int64_t end, std::int64_t columns, const F& f) {
    const std::int64_t width = std::min(kBlock, columns), together = columns <= kBlock ? kBlock / columns : 1;
    for (; row < end; row += together)
        for (std::int64_t column = 0; column < columns; column += width)
            f(row * columns + column, column, std::min(together, end - row), std::min(width, columns - column));
}

// The same over all rows, in parallel.
template <class F>
void for_all_pieces(std::int64_t rows, std::int64_t columns, const F& f) {
    if (rows * columns == 0) return;
    const std::int64_t rows_each = divide_up(16 * kBlock, columns);
    parallel_for(divide_up(rows, rows_each), rows * columns, [&](std::int64_t item) {
        for_pieces(item * rows_each, std::min(rows, (item + 1) * rows_each), columns, f);
    });
}

template <class C>
const C* read(const View& x, std::int64_t at, std::int64_t n, C* buffer) {
    return load(byte_at(x.data, x.dtype, at), x.dtype, 1, n, buffer);
}

// The running statistics move towards those of a batch.
void move_towards(const View& running, const std::vector<double>& batch, double momentum) {
    if (!running) return;
    auto values = load_vector<double>(running);
    for (std::size_t i = 0; i < values.size(); ++i)
        if (std::isfinite(batch[i])) values[i] = (1 - momentum) * values[i] + momentum * batch[i];
    store_vector(values, running);
}

template <class C>
void batch_stats(const BatchNormStats& p) {
    const View& x = p.x;
    const std::int64_t columns = columns_of(x), rows = rows_of(x), width = std::min(kBlock, columns);
    if (columns == 0) return;
    // Deviations are taken from the mean of the first few rows: near enough to the mean that squares do not cancel.
    const std::int64_t few = std::min<std::int64_t>(rows, 64);
    std::vector<double> start(std::size_t(columns), 0.0);
    C buffer[kBlock];
    for_pieces(0, few, columns, [&](std::int64_t at, std::int64_t column, std::int64_t count, std::int64_t w) {
        const C* v = read(x, at, count * w, buffer);
        for (std::int64_t i = 0; i < count * w; ++i) start[std::size_t(column + i % w)] += double(v[i]);
    });
    std::vector<C> shift(std::size_t(columns), C(0));
    for (std::size_t i = 0; i < shift.size(); ++i) shift[i] = C(start[i] / double(std::max<std::int64_t>(few, 1)));

    const auto sums = column_sums<C>(
        1, rows, columns, width, 2,
        [&](std::int64_t, std::int64_t row, std::int64_t end, std::int64_t column, std::int64_t w, C* __restrict sum) {
            C loaded[kBlock];
            C* __restrict squares = sum + w;
            const C* __restrict s = shift.data() + column;
            const std::int64_t together = w == columns ? kBlock / w : 1;
            for (; row < end; row += together) {
                const std::int64_t count = std::min(together, end - row);
                const C* v = read(x, row * columns + column, count * w, loaded);
                for (std::int64_t r = 0; r < count; ++r)
                    for (std::int64_t i = 0; i < w; ++i) {
                        const C d = v[r * w + i] - s[i];
                        sum[i] += d;
                        squares[i] += d * d;
                    }
            }
        });
    std::vector<double> means(start.size()), unbiased(start.size()), inverse(start.size());
    for (std::size_t i = 0; i < means.size(); ++i) {
        const double d = sums[i] / double(rows), square = sums[std::size_t(columns) + i] / double(rows) - d * d;
        const double variance = variance_in<C>(square < 0 ? 0 : square);
        means[i] = double(shift[i]) + d;
        inverse[i] = 1 / std::sqrt(variance + p.eps);
        unbiased[i] = variance * (double(rows) / double(rows - 1));
    }
    store_vector(means, p.mean);
    store_vector(inverse, p.rstd);
    move_towards(p.running_mean, means, p.momentum);
    move_towards(p.running_var, unbiased, p.momentum);
}

// Of each channel: (x - center) * scale + bias is the norm.
template <class C>
struct Affine {
    std::vector<C> center, scale, bias;
    Affine(const View& x, const View& mean, const View& rstd, const View& gamma, const View& beta)
        : center(load_vector<C>(mean)),
          scale(load_or<C>(gamma, columns_of(x), 1)),
          bias(load_or<C>(beta, columns_of(x), 0)) {
        const auto inverse = load_vector<C>(rstd);
        for (std::size_t i = 0; i < scale.size(); ++i) scale[i] *= inverse[i];
    }
    // f(k, i) for each element k of a piece, in column i of it.
    template <class F>
    static void each(std::int64_t count, std::int64_t w, const F& f) {
        for (std::int64_t r = 0; r < count; ++r)
            for (std::int64_t i = 0; i < w; ++i) f(r * w + i, i);
    }
    void normalise(const C* v, std::int64_t column, std::int64_t count, std::int64_t w, C* out) const {
        const C *m = center.data() + column, *a = scale.data() + column, *b = bias.data() + column;
        each(count, w, [=](std::int64_t k, std::int64_t i) { out[k] = (v[k] - m[i]) * a[i] + b[i]; });
    }
};

template <class C>
void batch_forward(const BatchNormForward& p) {
    const Affine<C> affine(p.x, p.mean, p.rstd, p.gamma, p.beta);
    const auto piece = [&](std::int64_t at, std::int64_t column, std::int64_t count, std::int64_t w) {
        C buffer[kBlock], added[kBlock];
        const C* v = read(p.x, at, count * w, buffer);
        void* to = byte_at(p.y.data, p.y.dtype, at);
        C* out = target(to, p.y.dtype, 1, buffer);
        affine.normalise(v, column, count, w, out);
        if (p.residual) {
            const C* r = read(p.residual, at, count * w, added);
            for (std::int64_t k = 0; k < count * w; ++k) out[k] += r[k];
        }
        if (p.relu)
            for (std::int64_t k = 0; k < count * w; ++k) out[k] = out[k] < C(0) ? C(0) : out[k];
        store(out, to, p.y.dtype, 1, count * w);
    };
    for_all_pieces(rows_of(p.x), columns_of(p.x), piece);
}

// The gradient of a piece behind the ReLU, which let through what is above 0, or NaN, in the result: as that was
// written, or as the norm is made anew from x. Returned is where the gradient is: `g` itself without a ReLU.
template <class C>
struct Masked {
    const BatchNormBackward& p;
    const Affine<C>& affine;
    const C* operator()(const C* g, const C* v, std::int64_t at, std::int64_t column, std::int64_t count,
                        std::int64_t w, C* room) const {
        if (!p.relu) return g;
        C made[kBlock];
        const C* y = made;
        if (p.y) {
            y = read(p.y, at, count * w, made);
        } else {
            C rounded[kBlock];
            affine.normalise(v, column, count, w, made);
            if (p.x.dtype != dtype_of<C>) {
                store(made, rounded, p.x.dtype, 1, count * w);
                load(rounded, p.x.dtype, 1, count * w, made);
            }
        }
        for (std::int64_t k = 0; k < count * w; ++k) room[k] = y[k] <= C(0) ? C(0) : g[k];
        return room;
    }
};

template <class C>
void batch_backward(const BatchNormBackward& p) {
    const std::int64_t columns = columns_of(p.x), rows = rows_of(p.x), width = std::min(kBlock, columns);
    if (columns == 0) return;
    const auto inverse = load_vector<C>(p.rstd), weight = load_or<C>(p.gamma, columns, 1);
    const Affine<C> affine(p.x, p.mean, p.rstd, p.gamma, p.beta);
    const Masked<C> masked{p, affine};
    std::vector<double> sums(std::size_t(2 * columns));  // of gy, and of gy times the deviation
    if (p.batch_statistics || p.ggamma || p.gbeta) {
        const auto add = [&](std::int64_t, std::int64_t row, std::int64_t end, std::int64_t column, std::int64_t w,
                             C* __restrict sum) {
            C first[kBlock], second[kBlock], room[kBlock];
            C* __restrict products = sum + w;
            const C* __restrict m = affine.center.data() + column;
            const std::int64_t together = w == columns ? kBlock / w : 1;
            for (; row < end; row += together) {
                const std::int64_t count = std::min(together, end - row), at = row * columns + column;
                const C* v = read(p.x, at, count * w, second);
                const C* g = masked(read(p.gy, at, count * w, first), v, at, column, count, w, room);
                Affine<C>::each(count, w, [=](std::int64_t k, std::int64_t i) {
                    sum[i] += g[k];
                    products[i] += g[k] * (v[k] - m[i]);
                });
            }
        };
        sums = column_sums<C>(1, rows, columns, width, 2, add);
    }
    // gx = gy * a + (x - mean) * b + c, column by column.
    std::vector<double> gammas(std::size_t(columns), 0.0), betas(std::size_t(columns), 0.0);
    std::vector<C> pull(std::size_t(columns), C(0)), constant(pull);
    for (std::size_t i = 0; i < pull.size(); ++i) {
        const double inv = double(inverse[i]), product = sums[std::size_t(columns) + i];
        gammas[i] = product * inv;
        betas[i] = sums[i];
        if (!p.batch_statistics || rows == 0) continue;
        pull[i] = C(-double(weight[i]) * inv * inv * inv * product / double(rows));
        constant[i] = C(-double(weight[i]) * inv * sums[i] / double(rows));
    }
    store_vector(gammas, p.ggamma);
    store_vector(betas, p.gbeta);
    if (!p.gx && !p.gresidual) return;
    for_all_pieces(rows, columns, [&](std::int64_t at, std::int64_t column, std::int64_t count, std::int64_t w) {
        C first[kBlock], second[kBlock], room[kBlock];
        const C* v = read(p.x, at, count * w, second);
        const C* g = masked(read(p.gy, at, count * w, first), v, at, column, count, w, room);
        if (p.gresidual) store(g, byte_at(p.gresidual.data, p.gresidual.dtype, at), p.gresidual.dtype, 1, count * w);
        if (!p.gx) return;
        void* to = byte_at(p.gx.data, p.gx.dtype, at);
        C* out = target(to, p.gx.dtype, 1, first);
        const C *a = affine.scale.data() + column, *m = affine.center.data() + column;
        const C *b = pull.data() + column, *c = constant.data() + column;
        if (p.batch_statistics)
            Affine<C>::each(count, w, [=](std::int64_t k, std::int64_t i) {
                out[k] = g[k] * a[i] + ((v[k] - m[i]) * b[i] + c[i]);
            });
        else
            Affine<C>::each(count, w, [=](std::int64_t k, std::int64_t i) { out[k] = g[k] * a[i]; });
        store(out, to, p.gx.dtype, 1, count * w);
    });
}

}  // namespace

void CpuKernels::batch_norm_stats(const BatchNormStats& norm) {
    compute_as(norm.x.dtype, [&](auto tag) { batch_stats<typename decltype(tag)::type>(norm); });
}

void CpuKernels::batch_norm_merge(const BatchNormMerge& norm) {
    const RankRows ranks(norm.parts);
    std::vector<double> means, inverses, unbiased;
    for (std::int64_t c = 0; c < ranks.channels; ++c) {
        const MergedChannel all(ranks, c, norm.eps);
        means.push_back(all.mean), inverses.push_back(all.rstd(norm.eps)), unbiased.push_back(all.unbiased());
    }
    store_vector(means, norm.mean);
    store_vector(inverses, norm.rstd);
    if (ranks.all() == 0) return;
    move_towards(norm.running_mean, means, norm.momentum);
    move_towards(norm.running_var, unbiased, norm.momentum);
}

void CpuKernels::batch_norm_pull(const BatchNormPull& norm) {
    const RankRows ranks(norm.parts);
    const auto inverses = load_vector<double>(norm.rstd), weights = load_or<double>(norm.gamma, ranks.channels, 1);
    std::vector<double> pull, constant;
    for (std::int64_t c = 0; c < ranks.channels; ++c) {
        const PulledChannel all(ranks, norm.sums.as<const double>(), c, inverses[std::size_t(c)],
                                weights[std::size_t(c)]);
        pull.push_back(all.pull), constant.push_back(all.constant);
    }
    store_vector(pull, norm.pull);
    store_vector(constant, norm.constant);
}

void CpuKernels::batch_norm(const BatchNormForward& norm) {
    compute_as(norm.x.dtype, [&](auto tag) { batch_forward<typename decltype(tag)::type>(norm); });
}

void CpuKernels::batch_norm_backward(const BatchNormBackward& norm) {
    compute_as(norm.x.dtype, [&](auto tag) { batch_backward<typename decltype(tag)::type>(norm); });
}

}  // namespace invar::INVAR_ISA
