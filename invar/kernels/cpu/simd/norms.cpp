// Layer norm and RMS norm of [rows, columns], with the residual sum before them, a row at a time. Statistics are taken
// in float and added up in double; the mean is subtracted before anything is squared, so that a large mean costs no
// digits.
#include <cmath>

#include "invar/kernels/cpu/simd/cpu_kernels.h"
#include "invar/kernels/cpu/simd/loops.h"

namespace invar::INVAR_ISA {
namespace {

template <class C>
const C* read(const View& x, std::int64_t at, std::int64_t n, C* buffer) {
    return load(byte_at(x.data, x.dtype, at), x.dtype, 1, n, buffer);
}

// to[at ...] = f(i) for n elements; `buffer` holds them on their way where they are rounded.
template <class C, class F>
void write(const View& to, std::int64_t at, std::int64_t n, C* buffer, const F& f) {
    void* place = byte_at(to.data, to.dtype, at);
    C* __restrict out = target(place, to.dtype, 1, buffer);
    for (std::int64_t i = 0; i < n; ++i) out[i] = f(i);
    store(out, place, to.dtype, 1, n);
}

// The values as a tensor of this dtype would keep them; `room` is for n of them.
template <class C>
void round_as(Dtype dtype, C* values, std::int64_t n, C* room) {
    if (dtype == dtype_of<C>) return;
    store(values, room, dtype, 1, n);
    load(room, dtype, 1, n, values);
}

// What is normalised: the row itself, or its sum with the branch as that was rounded, so that backward, which reads the
// sum again, finds the same numbers.
template <class C>
const C* row_to_normalise(const NormForward& p, std::int64_t at, std::int64_t n, C* buffer) {
    const C* x = read(p.x, at, n, buffer);
    if (!p.branch) return x;
    const C* branch = read(p.branch, at, n, buffer + n);
    write(p.sum, at, n, buffer + 2 * n, [=](std::int64_t i) { return x[i] + branch[i]; });
    return read(p.sum, at, n, buffer);
}

template <class C>
void forward(const NormForward& p) {
    const std::int64_t n = columns_of(p.x), rows = rows_of(p.x);
    const auto weight = load_or<C>(p.gamma, n, 1), bias = load_or<C>(p.beta, n, 0);
    ThreadRows<C> scratch(3 * n);
    parallel_for(rows, rows * n, [&](std::int64_t row) {
        C* buffer = scratch.mine();
        const C* v = row_to_normalise(p, row * n, n, buffer);
        // In double: of a row far from zero the mean would lose the digits that its deviations are made of.
        const double center =
            p.mean ? lane_sum<double>(n, [v](std::int64_t i) { return double(v[i]); }) / double(n) : 0;
        const C m = C(center);
        const double spread = lane_sum<C>(n, [v, m](std::int64_t i) { return (v[i] - m) * (v[i] - m); }) / double(n);
        const double inverse = 1.0 / std::sqrt(variance_in<C>(spread) + p.eps);
        const C s = C(inverse), *a = weight.data(), *b = bias.data();
        write(p.y, row * n, n, buffer + n, [=](std::int64_t i) { return (v[i] - m) * s * a[i] + b[i]; });
        if (p.mean) store(&center, byte_at(p.mean.data, p.mean.dtype, row), p.mean.dtype, 1, 1);
        store(&inverse, byte_at(p.rstd.data, p.rstd.dtype, row), p.rstd.dtype, 1, 1);
    });
}

template <class C>
void backward(const NormBackward& p) {
    const std::int64_t n = columns_of(p.x), rows = rows_of(p.x);
    if (n == 0) return;
    const auto weight = load_or<C>(p.gamma, n, 1), bias = load_or<C>(p.beta, n, 0),
               center = load_or<C>(p.mean, rows, 0), inverse = load_vector<C>(p.rstd);
    const bool parameters = p.ggamma || p.gbeta;
    ThreadRows<C> scratch(4 * n);
    // gx and the columns' sums in one walk, while the rows are in the cache: sums of gy * xhat, then of gy.
    const auto sums = column_sums<C>(
        1, rows, n, n, 2,
        [&](std::int64_t, std::int64_t row, std::int64_t end, std::int64_t, std::int64_t, C* __restrict products) {
            C* buffer = scratch.mine();
            C* __restrict hat = buffer;
            C* __restrict plain = products + n;
            const C* __restrict a = weight.data();
            for (; row < end; ++row) {
                const std::int64_t at = row * n;
                const C m = center[std::size_t(row)], s = inverse[std::size_t(row)];
                const C* g = read(p.gy, at, n, buffer + n);
                const C* v = read(p.x, at, n, buffer + 2 * n);
                for (std::int64_t i = 0; i < n; ++i) hat[i] = (v[i] - m) * s;
                if (p.again) {  // contracted, or not, as forward's expression is
                    const C* b = bias.data();
                    write(p.again, at, n, buffer + 3 * n, [=](std::int64_t i) { return hat[i] * a[i] + b[i]; });
                }
                if (parameters)
                    for (std::int64_t i = 0; i < n; ++i) {
                        products[i] += g[i] * hat[i];
                        plain[i] += g[i];
                    }
                if (!p.gx) continue;
                C level = 0;
                if (p.mean) level = C(lane_sum<C>(n, [g, a](std::int64_t i) { return g[i] * a[i]; }) / double(n));
                const C tilt =
                    C(lane_sum<C>(n, [g, a, hat](std::int64_t i) { return g[i] * a[i] * hat[i]; }) / double(n));
                const auto slope = [=](std::int64_t i) { return s * (g[i] * a[i] - level - hat[i] * tilt); };
                C* own = buffer + 3 * n;
                if (p.pending) {  // two rounded gradients are added: the bits of a sum that is made by itself
                    for (std::int64_t i = 0; i < n; ++i) own[i] = slope(i);
                    round_as(p.gx.dtype, own, n, buffer + n);
                    const C* others = read(p.pending, at, n, buffer + 2 * n);
                    write(p.gx, at, n, buffer + n, [=](std::int64_t i) { return others[i] + own[i]; });
                } else {
                    write(p.gx, at, n, own, slope);
                }
                if (p.gbranch) {
                    const C* whole = read(p.gx, at, n, buffer + n);
                    write(p.gbranch, at, n, own, [=](std::int64_t i) { return whole[i]; });
                }
            }
        });
    if (p.ggamma) store(sums.data(), p.ggamma.data, p.ggamma.dtype, 1, n);
    if (p.gbeta) store(sums.data() + n, p.gbeta.data, p.gbeta.dtype, 1, n);
}

}  // namespace

void CpuKernels::norm(const NormForward& norm) {
    compute_as(norm.computes_for(), [&](auto tag) { forward<typename decltype(tag)::type>(norm); });
}

void CpuKernels::norm_backward(const NormBackward& norm) {
    compute_as(norm.x.dtype, [&](auto tag) { backward<typename decltype(tag)::type>(norm); });
}

}  // namespace invar::INVAR_ISA
