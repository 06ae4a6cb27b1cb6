#include "invar/ops/sync_batch_norm.h"

#include <utility>

#include "invar/core/error.h"
#include "invar/kernels/kernels.h"
#include "invar/ops/shape_tools.h"

namespace invar::ops {

namespace {

thread_local Communicator* synchronised = nullptr;
thread_local bool spare_here = false;

// Everybody's `mine`, a row for each rank. On devices that exchange by themselves nobody waits for it.
Tensor of_all(Communicator& ranks, const Tensor& mine) {
    Tensor all = Tensor::empty({ranks.size(), mine.numel()}, mine.dtype(), mine.device());
    ranks.wait(ranks.all_gather(mine, all));
    return all;
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
    Kernels& kernels = kernels_for(x.device());
    const std::int64_t channels = x.size(1), own = spare ? 0 : x.size(0);
    double rows = double(own);
    ranks->sum(std::span(&rows, 1));
    check(rows != 1,
          "batch_norm: one value a channel on all ranks together has no variance to train with; use a "
          "larger batch");
    const Tensor mine = Tensor::empty({1 + 2 * channels}, Dtype::f64, x.device());
    kernels.fill(mine.view(), 0);
    if (own > 0) {
        kernels.batch_norm_stats({.x = x.view(),
                                  .mean = mean.view(),
                                  .rstd = rstd.view(),
                                  .running_mean = {},
                                  .running_var = {},
                                  .eps = eps,
                                  .momentum = 0});
        kernels.fill(mine.window(0, {1}).view(), double(own));
        kernels.copy(mean.view(), mine.window(1, {channels}).view());
        kernels.copy(rstd.view(), mine.window(1 + channels, {channels}).view());
    }
    parts = of_all(*ranks, mine);
    kernels.batch_norm_merge({.parts = parts.view(),
                              .mean = mean.view(),
                              .rstd = rstd.view(),
                              .running_mean = view_of(running.mean),
                              .running_var = view_of(running.var),
                              .eps = eps,
                              .momentum = running.momentum});
    for (const Tensor& moved : {running.mean, running.var})
        if (moved) moved.bump_version();
}

Tensor BatchOfRanks::input_gradient(const Tensor& gx, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                                    const Tensor& gamma, const Tensor& ggamma, const Tensor& gbeta) const {
    Kernels& kernels = kernels_for(x.device());
    const std::int64_t channels = x.size(1);
    const Tensor mine = Tensor::empty({2 * channels}, Dtype::f64, x.device());
    kernels.fill(mine.view(), 0);
    if (!spare) {
        kernels.copy(gbeta.view(), mine.window(0, {channels}).view());
        kernels.copy(ggamma.view(), mine.window(channels, {channels}).view());
    }
    const Tensor sums = of_all(*ranks, mine);
    if (spare || !gx) return gx;  // no sample of this rank had a part in the statistics
    const Tensor pull = Tensor::empty_like(rstd), constant = Tensor::empty_like(rstd), all = Tensor::empty_like(gx);
    kernels.batch_norm_pull({.parts = parts.view(),
                             .sums = sums.view(),
                             .rstd = rstd.view(),
                             .gamma = view_of(gamma),
                             .pull = pull.view(),
                             .constant = constant.view()});
    // (x - mean) * pull + constant + gx is what the forward kernel computes.
    const Shape as_rows = x.shape();
    kernels.batch_norm({.x = x.view(),
                        .mean = mean.view(),
                        .rstd = pull.view(),
                        .gamma = {},
                        .beta = constant.view(),
                        .residual = gx.window(0, as_rows).view(),
                        .y = all.window(0, as_rows).view()});
    return all;
}

}  // namespace invar::ops
