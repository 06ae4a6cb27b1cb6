// Batch normalisation of [rows, columns]. Statistics are taken in float and added up in double; the mean is
// subtracted before anything is squared, so that a large mean costs no digits.
#include <cmath>

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

template <class C>
void batch_stats(const View& x, const View& mean, const View& variance) {
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
    std::vector<double> means(start.size()), variances(start.size());
    for (std::size_t i = 0; i < means.size(); ++i) {
        const double d = sums[i] / double(rows), square = sums[std::size_t(columns) + i] / double(rows) - d * d;
        means[i] = double(shift[i]) + d;
        variances[i] = variance_in<C>(square < 0 ? 0 : square);
    }
    store_vector(means, mean);
    store_vector(variances, variance);
}

template <class C>
void batch_forward(const View& x, const View& mean, const View& rstd, const View& gamma, const View& beta,
                   const View& y) {
    const std::int64_t columns = columns_of(x);
    const auto center = load_vector<C>(mean), bias = load_or<C>(beta, columns, 0);
    auto scale = load_or<C>(gamma, columns, 1);
    const auto inverse = load_vector<C>(rstd);
    for (std::size_t i = 0; i < scale.size(); ++i) scale[i] *= inverse[i];
    for_all_pieces(rows_of(x), columns, [&](std::int64_t at, std::int64_t column, std::int64_t count, std::int64_t w) {
        C buffer[kBlock];
        const C* v = read(x, at, count * w, buffer);
        void* to = byte_at(y.data, y.dtype, at);
        C* out = target(to, y.dtype, 1, buffer);
        const C *m = center.data() + column, *a = scale.data() + column, *b = bias.data() + column;
        for (std::int64_t r = 0; r < count; ++r)
            for (std::int64_t i = 0; i < w; ++i) out[r * w + i] = (v[r * w + i] - m[i]) * a[i] + b[i];
        store(out, to, y.dtype, 1, count * w);
    });
}

template <class C>
void batch_backward(const View& gy, const View& x, const View& mean, const View& rstd, const View& gamma,
                    const View& gx, const View& ggamma, const View& gbeta, bool batch_statistics) {
    const std::int64_t columns = columns_of(x), rows = rows_of(x), width = std::min(kBlock, columns);
    if (columns == 0) return;
    const auto center = load_vector<C>(mean), inverse = load_vector<C>(rstd), weight = load_or<C>(gamma, columns, 1);
    std::vector<double> sums(std::size_t(2 * columns));  // of gy, and of gy times the deviation
    if (batch_statistics || ggamma || gbeta) {
        sums = column_sums<C>(1, rows, columns, width, 2,
                              [&](std::int64_t, std::int64_t row, std::int64_t end, std::int64_t column, std::int64_t w,
                                  C* __restrict sum) {
                                  C first[kBlock], second[kBlock];
                                  C* __restrict products = sum + w;
                                  const C* __restrict m = center.data() + column;
                                  const std::int64_t together = w == columns ? kBlock / w : 1;
                                  for (; row < end; row += together) {
                                      const std::int64_t count = std::min(together, end - row);
                                      const C* g = read(gy, row * columns + column, count * w, first);
                                      const C* v = read(x, row * columns + column, count * w, second);
                                      for (std::int64_t r = 0; r < count; ++r)
                                          for (std::int64_t i = 0; i < w; ++i) {
                                              sum[i] += g[r * w + i];
                                              products[i] += g[r * w + i] * (v[r * w + i] - m[i]);
                                          }
                                  }
                              });
    }
    // gx = gy * a + (x - mean) * b + c, column by column.
    std::vector<double> gammas(std::size_t(columns), 0.0), betas(std::size_t(columns), 0.0);
    std::vector<C> slope(std::size_t(columns), C(0)), pull(slope), constant(slope);
    for (std::size_t i = 0; i < slope.size(); ++i) {
        const double inv = double(inverse[i]), product = sums[std::size_t(columns) + i];
        gammas[i] = product * inv;
        betas[i] = sums[i];
        slope[i] = C(double(weight[i]) * inv);
        if (!batch_statistics || rows == 0) continue;
        pull[i] = C(-double(weight[i]) * inv * inv * inv * product / double(rows));
        constant[i] = C(-double(weight[i]) * inv * sums[i] / double(rows));
    }
    store_vector(gammas, ggamma);
    store_vector(betas, gbeta);
    if (!gx) return;
    for_all_pieces(rows, columns, [&](std::int64_t at, std::int64_t column, std::int64_t count, std::int64_t w) {
        C first[kBlock], second[kBlock];
        const C *g = read(gy, at, count * w, first), *a = slope.data() + column;
        void* to = byte_at(gx.data, gx.dtype, at);
        C* out = target(to, gx.dtype, 1, first);
        if (batch_statistics) {
            const C *v = read(x, at, count * w, second), *m = center.data() + column;
            const C *b = pull.data() + column, *c = constant.data() + column;
            for (std::int64_t r = 0; r < count; ++r)
                for (std::int64_t i = 0; i < w; ++i) {
                    const std::int64_t k = r * w + i;
                    out[k] = g[k] * a[i] + ((v[k] - m[i]) * b[i] + c[i]);
                }
        } else {
            for (std::int64_t r = 0; r < count; ++r)
                for (std::int64_t i = 0; i < w; ++i) out[r * w + i] = g[r * w + i] * a[i];
        }
        store(out, to, gx.dtype, 1, count * w);
    });
}

}  // namespace

void CpuKernels::batch_norm_stats(const View& x, const View& mean, const View& variance) {
    compute_as(x.dtype, [&](auto tag) { batch_stats<typename decltype(tag)::type>(x, mean, variance); });
}

void CpuKernels::batch_norm(const View& x, const View& mean, const View& rstd, const View& gamma, const View& beta,
                            const View& y) {
    compute_as(x.dtype, [&](auto tag) { batch_forward<typename decltype(tag)::type>(x, mean, rstd, gamma, beta, y); });
}

void CpuKernels::batch_norm_backward(const View& gy, const View& x, const View& mean, const View& rstd,
                                     const View& gamma, const View& gx, const View& ggamma, const View& gbeta,
                                     bool batch_statistics) {
    compute_as(x.dtype, [&](auto tag) {
        batch_backward<typename decltype(tag)::type>(gy, x, mean, rstd, gamma, gx, ggamma, gbeta, batch_statistics);
    });
}

}  // namespace invar::INVAR_ISA
