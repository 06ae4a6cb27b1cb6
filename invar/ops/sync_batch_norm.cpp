#include "invar/ops/sync_batch_norm.h"

#include <cmath>
#include <utility>

#include "invar/core/error.h"
#include "invar/kernels/kernels.h"

namespace invar::ops {

namespace {

thread_local Communicator* synchronised = nullptr;
thread_local bool spare_here = false;

void write(const std::vector<double>& values, const Tensor& to) {
    const Tensor host = Tensor::from(values, to.shape(), to.dtype());
    kernels_for(to.device()).upload(to.raw(), host.raw(), host.bytes());
}

// The running statistics move towards those of a batch, but not towards what is not finite.
void move_towards(const Tensor& running, const std::vector<double>& batch, double momentum) {
    if (!running) return;
    std::vector<double> values = running.to_vector<double>();
    for (std::size_t i = 0; i < values.size(); ++i)
        if (std::isfinite(batch[i])) values[i] = (1 - momentum) * values[i] + momentum * batch[i];
    write(values, running);
    running.bump_version();
}

}  // namespace

SyncBatchNorm::SyncBatchNorm(Communicator* ranks)
    : previous_(std::exchange(synchronised, ranks != nullptr && !ranks->alone() ? ranks : nullptr)) {}
SyncBatchNorm::~SyncBatchNorm() {
    synchronised = previous_;
}
Communicator* SyncBatchNorm::ranks() {
    return synchronised;
}

SyncBatchNorm::Spare::Spare(bool spare) : previous_(std::exchange(spare_here, spare)) {}
SyncBatchNorm::Spare::~Spare() {
    spare_here = previous_;
}
bool SyncBatchNorm::Spare::here() {
    return spare_here;
}

void BatchOfRanks::take_statistics(const Tensor& x, const Tensor& mean, const Tensor& rstd, double eps,
                                   const Running& running) {
    const std::size_t channels = std::size_t(x.size(1));
    const double own = spare ? 0.0 : double(x.size(0));
    // What a rank tells: its rows, their means, and their variances.
    std::vector<double> mine(1 + 2 * channels, 0.0), all(mine.size() * std::size_t(ranks->size()));
    mine[0] = own;
    if (own > 0) {
        kernels_for(x.device())
            .batch_norm_stats({.x = x.view(),
                               .mean = mean.view(),
                               .rstd = rstd.view(),
                               .running_mean = {},
                               .running_var = {},
                               .eps = eps,
                               .momentum = 0});
        const std::vector<double> means = mean.to_vector<double>(), inverses = rstd.to_vector<double>();
        for (std::size_t i = 0; i < channels; ++i) {
            mine[1 + i] = means[i];
            const double variance = 1 / (inverses[i] * inverses[i]) - eps;
            mine[1 + channels + i] = variance < 0 ? 0 : variance;
        }
    }
    ranks->all_gather(mine.data(), all.data(), mine.size() * sizeof(double));

    rows = 0;
    for (std::size_t at = 0; at < all.size(); at += mine.size()) rows += all[at];
    check(rows != 1,
          "batch_norm: one value a channel on all ranks together has no variance to train with; use a "
          "larger batch");
    std::vector<double> means(channels, 0.0), variances(channels, 0.0), inverses(channels, 1.0);
    const auto each = [&](const auto& add) {
        for (std::size_t at = 0; at < all.size(); at += mine.size())
            for (std::size_t i = 0; all[at] > 0 && i < channels; ++i)
                add(i, all[at] / rows, all[at + 1 + i], all[at + 1 + channels + i]);
    };
    each([&](std::size_t i, double share, double m, double) { means[i] += share * m; });
    each([&](std::size_t i, double share, double m, double v) {
        variances[i] += share * (v + (m - means[i]) * (m - means[i]));
    });
    if (rows > 0)
        for (std::size_t i = 0; i < channels; ++i) inverses[i] = 1 / std::sqrt(variances[i] + eps);
    write(means, mean);
    write(inverses, rstd);
    if (rows == 0) return;  // no values, no statistics, and the running ones stand still
    move_towards(running.mean, means, running.momentum);
    for (double& variance : variances) variance *= rows / (rows - 1);
    move_towards(running.var, variances, running.momentum);
}

Tensor BatchOfRanks::input_gradient(const Tensor& gx, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                                    const Tensor& gamma, const Tensor& ggamma, const Tensor& gbeta) const {
    const std::size_t channels = std::size_t(x.size(1));
    std::vector<double> sums = gbeta.to_vector<double>();
    for (const double value : ggamma.to_vector<double>()) sums.push_back(value);
    if (spare) std::fill(sums.begin(), sums.end(), 0.0);
    ranks->sum(sums);
    if (spare || rows == 0 || !gx) return gx;  // no sample of this rank had a part in the statistics
    const std::vector<double> inverses = rstd.to_vector<double>();
    const std::vector<double> weights = gamma ? gamma.to_vector<double>() : std::vector<double>(channels, 1.0);
    std::vector<double> pull(channels), constant(channels);
    for (std::size_t i = 0; i < channels; ++i) {
        pull[i] = -weights[i] * inverses[i] * inverses[i] * sums[channels + i] / rows;
        constant[i] = -weights[i] * inverses[i] * sums[i] / rows;
    }
    const Tensor b = Tensor::empty_like(rstd), c = Tensor::empty_like(rstd), all = Tensor::empty_like(gx);
    write(pull, b);
    write(constant, c);
    // (x - mean) * b + c + gx is what the forward kernel computes.
    const Shape as_rows = x.shape();
    kernels_for(x.device())
        .batch_norm({.x = x.view(),
                     .mean = mean.view(),
                     .rstd = b.view(),
                     .gamma = {},
                     .beta = c.view(),
                     .residual = gx.window(0, as_rows).view(),
                     .y = all.window(0, as_rows).view()});
    return all;
}

}  // namespace invar::ops
