#include "invar/ops/norm.h"

#include "invar/kernels/pointwise.h"
#include "invar/ops/cast.h"
#include "invar/ops/checkpoint.h"
#include "invar/ops/norm_tools.h"
#include "invar/ops/sync_batch_norm.h"

namespace invar::ops {

namespace {

// Of x and, where there is one, a residual, of x's dtype.
struct BatchNorm {
    static constexpr const char* kName = "batch_norm";
    static constexpr const char* kDoc = "normalised over all but the last dimension";
    static constexpr CastClass kCast = CastClass::keep;
    Tensor running_mean, running_var;
    bool training;
    double momentum, eps;
    bool relu, has_residual = false;
    BatchOfRanks together = {};

    // The running statistics as the kernel reads them.
    void read_running(const Tensor& mean, const Tensor& rstd) const {
        Kernels& kernels = kernels_for(mean.device());
        kernels.copy(running_mean.view(), mean.view());
        kernels.copy(running_var.view(), rstd.view());
        kernels.unary(UnaryOp::Affine, rstd.view(), rstd.view(), {1, eps});
        kernels.unary(UnaryOp::Rsqrt, rstd.view(), rstd.view(), {});
    }
    void take_statistics(const Tensor& x, const Tensor& mean, const Tensor& rstd) {
        Kernels& kernels = kernels_for(x.device());
        if (together) {
            BatchOfRanks::Running running{{}, {}, momentum};
            if (!recomputing()) running.mean = running_mean, running.var = running_var;
            return together.take_statistics(x, mean, rstd, eps, running);
        }
        if (x.size(0) == 0) {  // as PyTorch: no values, no statistics, and the running ones stand still
            kernels.fill(mean.view(), 0);
            kernels.fill(rstd.view(), 1);
            return;
        }
        const bool moves = !recomputing();
        const auto moved = [&](const Tensor& running) { return moves ? view_of(running) : View{}; };
        kernels.batch_norm_stats({.x = x.view(),
                                  .mean = mean.view(),
                                  .rstd = rstd.view(),
                                  .running_mean = moved(running_mean),
                                  .running_var = moved(running_var),
                                  .eps = eps,
                                  .momentum = momentum});
        for (const Tensor& running : {running_mean, running_var})
            if (moves && running) running.bump_version();
    }

    Tensor forward(Context& ctx, const Tensors& in) {
        const std::int64_t channels = in[0].size(-1);
        const Tensor x = rows_of(in[0], channels), residual = in[3] ? rows_of(in[3], channels) : in[3];
        const Tensor gamma = in[1] ? dense(in[1]) : in[1], beta = in[2] ? dense(in[2]) : in[2];
        Tensor mean = Tensor::empty({channels}, sum_dtype(x.dtype()), x.device()), rstd = Tensor::empty_like(mean);
        if (training)
            take_statistics(x, mean, rstd);
        else
            read_running(mean, rstd);
        Tensor y = Tensor::empty(in[0].shape(), x.dtype(), x.device());
        kernels_for(x.device())
            .batch_norm({.x = x.view(),
                         .mean = mean.view(),
                         .rstd = rstd.view(),
                         .gamma = view_of(gamma),
                         .beta = view_of(beta),
                         .residual = view_of(residual),
                         .y = rows_of(y, channels).view(),
                         .relu = relu});
        for (const Tensor& kept : {x, mean, rstd, gamma}) ctx.save(kept);
        if (relu) ctx.save(in[3] ? rows_of(y, channels) : beta);
        has_residual = bool(in[3]);
        running_mean = running_var = {};
        return y;
    }
    Tensors backward(Context& ctx, const Tensor& g) {
        const Tensor x = ctx.saved(0), mean = ctx.saved(1), rstd = ctx.saved(2), gamma = ctx.saved(3);
        const Tensor y = relu && has_residual ? ctx.saved(4) : Tensor{};
        const Tensor beta = relu && !has_residual ? ctx.saved(4) : Tensor{};
        AffineGradients affine(ctx, mean.shape(), x);
        if (together) {  // gradients of x on all ranks need them
            if (!affine.gamma) affine.gamma = Tensor::empty_like(mean);
            if (!affine.beta) affine.beta = Tensor::empty_like(mean);
        }
        Tensor gx, gresidual = g;
        if (ctx.needs(0)) gx = Tensor::empty(g.shape(), x.dtype(), x.device());
        if (y) gresidual = Tensor::empty(g.shape(), x.dtype(), x.device());
        const auto rows = [&](const Tensor& t) { return t ? rows_of(t, x.size(1)).view() : View{}; };
        const Tensor gy = dense(g);
        kernels_for(g.device())
            .batch_norm_backward({.gy = rows(gy),
                                  .x = x.view(),
                                  .mean = mean.view(),
                                  .rstd = rstd.view(),
                                  .gamma = view_of(gamma),
                                  .beta = view_of(beta),
                                  .y = view_of(y),
                                  .gresidual = y ? rows(gresidual) : View{},
                                  .gx = rows(gx),
                                  .ggamma = view_of(affine.gamma),
                                  .gbeta = view_of(affine.beta),
                                  .batch_statistics = training && !together,
                                  .relu = relu});
        if (together) gx = together.input_gradient(gx, x, mean, rstd, gamma, affine.gamma, affine.beta);
        return {gx, ctx.needs(1) ? affine.gamma : Tensor{}, ctx.needs(2) ? affine.beta : Tensor{},
                ctx.needs(3) ? gresidual : Tensor{}};
    }
};

// A layer norm over the pixels and channels of each group, brought together by a permuted copy.
struct GroupNorm {
    static constexpr const char* kName = "group_norm";
    static constexpr const char* kDoc = "normalised over groups of channels; statistics in FP32";
    static constexpr CastClass kCast = CastClass::wide_inside;
    int groups;
    double eps;
    Dtype from = Dtype::f32;

    std::int64_t batch(const Tensor& x) const { return x.size(0); }
    std::int64_t width(const Tensor& x) const { return x.size(-1) / groups; }
    std::int64_t pixels(const Tensor& x) const { return x.numel() / std::max<std::int64_t>(x.size(0) * x.size(-1), 1); }

    // [n, ..., c] dense, seen as [n, groups, pixels, c / groups].
    Tensor grouped_view(const Tensor& x) const {
        const std::int64_t p = pixels(x), w = width(x), c = x.size(-1);
        return x.as_strided(0, {batch(x), groups, p, w}, {p * c, w, c, 1});
    }
    // A row for each sample and group, widened on the way.
    Tensor gathered(const Tensor& x) const {
        const Tensor view = grouped_view(dense(x)).detach(), copy = Tensor::empty_like(view, sum_dtype(x.dtype()));
        kernels_for(x.device()).copy(view.view(), copy.view());
        return copy.window(0, {batch(x) * groups, pixels(x) * width(x)});
    }
    Tensor scattered(const Tensor& rows, const Tensor& like, Dtype dtype) const {
        Tensor y = Tensor::empty(like.shape(), dtype, rows.device());
        const Tensor blocks = rows.window(0, {batch(like), groups, pixels(like), width(like)});
        kernels_for(y.device()).copy(blocks.view(), grouped_view(y).view());
        return y;
    }

    Tensor forward(Context& ctx, const Tensors& in) {
        const Tensor &x = in[0], &gamma = in[1], &beta = in[2];
        Kernels& kernels = kernels_for(x.device());
        const Tensor rows = gathered(x);
        from = x.dtype();
        Tensor mean = Tensor::empty({rows.size(0)}, rows.dtype(), x.device()), rstd = Tensor::empty_like(mean);
        // Between the steps values stay in FP32, so that the result is rounded once.
        Tensor hat = Tensor::empty_like(rows);
        kernels.norm({.x = rows.view(), .y = hat.view(), .mean = mean.view(), .rstd = rstd.view(), .eps = eps});
        const Tensor y = scattered(hat, x, hat.dtype());
        if (gamma) kernels.binary(BinaryOp::Mul, y.view(), expanded(gamma, y.shape()).view(), y.view(), {});
        if (beta) kernels.binary(BinaryOp::Add, y.view(), expanded(beta, y.shape()).view(), y.view(), {});
        for (const Tensor& kept : {rows, gamma, mean, rstd}) ctx.save(kept);
        return y.dtype() == ctx.result_dtype() ? y : converted_to(y, ctx.result_dtype());
    }
    Tensors backward(Context& ctx, const Tensor& gradient) {
        const Tensor rows = ctx.saved(0), gamma = ctx.saved(1), mean = ctx.saved(2), rstd = ctx.saved(3);
        const Tensor g = dense(gradient);
        Kernels& kernels = kernels_for(g.device());
        const std::int64_t channels = g.size(-1);
        AffineGradients affine(ctx, {channels}, g);
        const Span3 columns{1, g.numel() / std::max<std::int64_t>(channels, 1), channels};
        if (affine.beta) kernels.sum(columns, g.view(), affine.beta.view(), 1.0, false);
        if (affine.gamma) {  // the normalised values are made again from the statistics
            Tensor hat = Tensor::empty_like(rows);
            const auto column = [&](const Tensor& t) {
                return expanded(t.window(0, {t.numel(), 1}), rows.shape()).view();
            };
            kernels.binary(BinaryOp::Sub, rows.view(), column(mean), hat.view(), {});
            kernels.binary(BinaryOp::Mul, hat.view(), column(rstd), hat.view(), {});
            Tensor product = scattered(hat, g, hat.dtype());
            kernels.binary(BinaryOp::Mul, product.view(), g.view(), product.view(), {});
            kernels.sum(columns, product.view(), affine.gamma.view(), 1.0, false);
        }
        Tensor gx;
        if (ctx.needs(0)) {
            Tensor scaled = g;
            if (gamma) {
                scaled = Tensor::empty_like(g, mean.dtype());
                kernels.binary(BinaryOp::Mul, g.view(), expanded(gamma, g.shape()).view(), scaled.view(), {});
            }
            Tensor grows = Tensor::empty_like(rows);
            const Tensor incoming = gathered(scaled);
            kernels.norm_backward({.gy = incoming.view(),
                                   .x = rows.view(),
                                   .mean = mean.view(),
                                   .rstd = rstd.view(),
                                   .gx = grows.view()});
            gx = scattered(grows, g, from);
        }
        return {gx, affine.gamma, affine.beta};
    }
};

}  // namespace

Tensor batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& running_mean,
                  const Tensor& running_var, bool training, double momentum, double eps, const BatchNormEnd& end) {
    const char* op = BatchNorm::kName;
    check_floating(op, x);
    if (x.rank() < 2) fail("batch_norm: the input must be [..., channels], not {}", x.shape().str());
    const Shape channels{x.size(-1)};
    check_parameter(op, "gamma", gamma, x, channels);
    check_parameter(op, "beta", beta, x, channels);
    check_parameter(op, "running mean", running_mean, x, channels);
    check_parameter(op, "running variance", running_var, x, channels);
    if (x.size(-1) == 0) fail("batch_norm: the input {} has no channels", x.shape().str());
    const BatchOfRanks together = training ? BatchOfRanks::here() : BatchOfRanks{};
    if (training && !together && x.numel() == x.size(-1))
        fail(
            "batch_norm: one value a channel ({}) has no variance to train with; use a larger batch, leave out a small "
            "last one (data.drop_last=true), or on ranks take the statistics of all (trainer.sync_batchnorm=true)",
            x.shape().str());
    if (!training && (!running_mean || !running_var))
        fail("batch_norm: without training it needs the running mean and variance");
    if (end.residual && end.residual.shape() != x.shape())
        fail("batch_norm: a residual {} for an input {}; they must have one shape", end.residual.shape().str(),
             x.shape().str());
    if (end.activation != Activation::none && end.activation != Activation::relu)
        fail("batch_norm: of the activations only ReLU can be made in its pass");
    const Tensor residual = end.residual ? cast(end.residual, x.dtype()) : end.residual;
    return apply(BatchNorm{.running_mean = running_mean,
                           .running_var = running_var,
                           .training = training,
                           .momentum = momentum,
                           .eps = eps,
                           .relu = end.activation == Activation::relu,
                           .together = together},
                 {x, gamma, beta, residual});
}

Tensor group_norm(const Tensor& x, int groups, const Tensor& gamma, const Tensor& beta, double eps) {
    const char* op = GroupNorm::kName;
    check_floating(op, x);
    if (x.rank() < 2 || groups < 1 || x.size(-1) % groups != 0)
        fail("group_norm: the channels of {} do not divide into {} groups", x.shape().str(), groups);
    check_parameter(op, "gamma", gamma, x, {x.size(-1)});
    check_parameter(op, "beta", beta, x, {x.size(-1)});
    return apply(GroupNorm{groups, eps}, {x, gamma, beta});
}

}  // namespace invar::ops
