#include "invar/kernels/pointwise.h"
#include "invar/ops/norm.h"

#include "invar/core/error.h"
#include "invar/ops/apply.h"
#include "invar/ops/checkpoint.h"
#include "invar/ops/shape_tools.h"

namespace invar::ops {

namespace {

Tensor rows_of(const Tensor& x, std::int64_t columns) {
    return dense(x).window(0, {columns > 0 ? x.numel() / columns : 0, columns});
}

// The gradients of gamma and beta as a kernel writes them, f32 (f64), then in the parameter's own dtype.
struct AffineGradients {
    Tensor gamma, beta;
    AffineGradients(const Context& ctx, const Shape& shape, const Tensor& like) {
        const Dtype dtype = sum_dtype(like.dtype());
        if (ctx.needs(1)) gamma = Tensor::empty(shape, dtype, like.device());
        if (ctx.needs(2)) beta = Tensor::empty(shape, dtype, like.device());
    }
};

// running = (1 - momentum) * running + momentum * factor * batch, in place.
void move_towards(const Tensor& running, const Tensor& batch, double momentum, double factor) {
    if (!running) return;
    Kernels& kernels = kernels_for(running.device());
    Tensor part = Tensor::empty_like(running);
    kernels.unary(UnaryOp::Affine, batch.view(), part.view(), {momentum * factor, 0});
    kernels.unary(UnaryOp::Affine, running.view(), running.view(), {1 - momentum, 0});
    kernels.add_into(part.view(), running.view());
    running.bump_version();
}

struct BatchNorm {
    static constexpr const char* kName = "batch_norm";
    static constexpr const char* kDoc = "normalised over all but the last dimension";
    static constexpr CastClass kCast = CastClass::keep;
    Tensor running_mean, running_var;
    bool training;
    double momentum, eps;

    Tensor forward(Context& ctx, const Tensors& in) {
        const std::int64_t channels = in[0].size(-1);
        const Tensor x = rows_of(in[0], channels);
        const Tensor gamma = in[1] ? dense(in[1]) : in[1], beta = in[2] ? dense(in[2]) : in[2];
        Kernels& kernels = kernels_for(x.device());
        const Dtype dtype = sum_dtype(x.dtype());
        Tensor mean = Tensor::empty({channels}, dtype, x.device()), rstd = Tensor::empty_like(mean);
        Tensor variance = rstd;            // the reciprocal root is taken in place
        if (training && x.size(0) == 0) {  // as PyTorch: no values, no statistics, and the running ones stand still
            kernels.fill(mean.view(), 0);
            kernels.fill(variance.view(), 1);
        } else if (training) {
            kernels.batch_norm_stats(x.view(), mean.view(), variance.view());
            if (!recomputing()) {
                const double count = double(x.size(0));
                move_towards(running_mean, mean, momentum, 1);
                move_towards(running_var, variance, momentum, count / (count - 1));
            }
        } else {
            kernels.copy(running_mean.view(), mean.view());
            kernels.copy(running_var.view(), variance.view());
        }
        kernels.unary(UnaryOp::Affine, variance.view(), rstd.view(), {1, eps});
        kernels.unary(UnaryOp::Rsqrt, rstd.view(), rstd.view(), {});
        Tensor y = Tensor::empty(in[0].shape(), x.dtype(), x.device());
        kernels.batch_norm(x.view(), mean.view(), rstd.view(), view_of(gamma), view_of(beta),
                           rows_of(y, channels).view());
        for (const Tensor& kept : {x, mean, rstd, gamma}) ctx.save(kept);
        running_mean = running_var = {};
        return y;
    }
    Tensors backward(Context& ctx, const Tensor& g) {
        const Tensor x = ctx.saved(0), mean = ctx.saved(1), rstd = ctx.saved(2), gamma = ctx.saved(3);
        AffineGradients affine(ctx, mean.shape(), x);
        Tensor gx;
        if (ctx.needs(0)) gx = Tensor::empty(g.shape(), x.dtype(), x.device());
        kernels_for(g.device())
            .batch_norm_backward(rows_of(g, x.size(1)).view(), x.view(), mean.view(), rstd.view(), view_of(gamma),
                                 gx ? rows_of(gx, x.size(1)).view() : View{}, view_of(affine.gamma),
                                 view_of(affine.beta), training);
        return {gx, affine.gamma, affine.beta};
    }
};

struct LayerNorm {
    static constexpr const char* kName = "layer_norm";
    static constexpr const char* kDoc = "normalised over the last dimensions";
    static constexpr CastClass kCast = CastClass::fp32;
    Shape normalized;
    double eps;

    Tensor forward(Context& ctx, const Tensors& in) {
        const Tensor x = rows_of(in[0], normalized.numel());
        const Tensor gamma = in[1] ? dense(in[1]) : in[1], beta = in[2] ? dense(in[2]) : in[2];
        Tensor y = Tensor::empty(in[0].shape(), x.dtype(), x.device());
        Tensor mean = Tensor::empty({x.size(0)}, sum_dtype(x.dtype()), x.device()), rstd = Tensor::empty_like(mean);
        kernels_for(x.device())
            .layer_norm(x.view(), view_of(gamma), view_of(beta), rows_of(y, x.size(1)).view(), mean.view(), rstd.view(),
                        eps);
        for (const Tensor& kept : {x, gamma, mean, rstd}) ctx.save(kept);
        return y;
    }
    Tensors backward(Context& ctx, const Tensor& g) {
        const Tensor x = ctx.saved(0), gamma = ctx.saved(1), mean = ctx.saved(2), rstd = ctx.saved(3);
        AffineGradients affine(ctx, normalized, x);
        Tensor gx;
        if (ctx.needs(0)) gx = Tensor::empty(g.shape(), x.dtype(), x.device());
        kernels_for(g.device())
            .layer_norm_backward(rows_of(g, x.size(1)).view(), x.view(), view_of(gamma), mean.view(), rstd.view(),
                                 gx ? rows_of(gx, x.size(1)).view() : View{}, view_of(affine.gamma),
                                 view_of(affine.beta));
        return {gx, affine.gamma, affine.beta};
    }
};

// A layer norm over the pixels and channels of each group, brought together by a permuted copy.
struct GroupNorm {
    static constexpr const char* kName = "group_norm";
    static constexpr const char* kDoc = "normalised over groups of channels";
    static constexpr CastClass kCast = CastClass::fp32;
    int groups;
    double eps;

    std::int64_t batch(const Tensor& x) const { return x.size(0); }
    std::int64_t width(const Tensor& x) const { return x.size(-1) / groups; }
    std::int64_t pixels(const Tensor& x) const { return x.numel() / std::max<std::int64_t>(x.size(0) * x.size(-1), 1); }

    // [n, ..., c] dense, seen as [n, groups, pixels, c / groups].
    Tensor grouped_view(const Tensor& x) const {
        const std::int64_t p = pixels(x), w = width(x), c = x.size(-1);
        return x.as_strided(0, {batch(x), groups, p, w}, {p * c, w, c, 1});
    }
    Tensor gathered(const Tensor& x) const {  // a row for each sample and group
        const Tensor copy = dense(grouped_view(dense(x)).detach());
        return copy.window(0, {batch(x) * groups, pixels(x) * width(x)});
    }
    Tensor scattered(const Tensor& rows, const Tensor& like) const {
        Tensor y = Tensor::empty(like.shape(), rows.dtype(), rows.device());
        const Tensor blocks = rows.window(0, {batch(like), groups, pixels(like), width(like)});
        kernels_for(y.device()).copy(blocks.view(), grouped_view(y).view());
        return y;
    }

    Tensor forward(Context& ctx, const Tensors& in) {
        const Tensor &x = in[0], &gamma = in[1], &beta = in[2];
        Kernels& kernels = kernels_for(x.device());
        const Tensor rows = gathered(x);
        Tensor mean = Tensor::empty({rows.size(0)}, sum_dtype(x.dtype()), x.device()), rstd = Tensor::empty_like(mean);
        // Between the steps values stay in FP32, so that the result is rounded once.
        Tensor hat = Tensor::empty_like(rows, mean.dtype());
        kernels.layer_norm(rows.view(), {}, {}, hat.view(), mean.view(), rstd.view(), eps);
        const Tensor y = scattered(hat, x);
        if (gamma) kernels.binary(BinaryOp::Mul, y.view(), expanded(gamma, y.shape()).view(), y.view(), {});
        if (beta) kernels.binary(BinaryOp::Add, y.view(), expanded(beta, y.shape()).view(), y.view(), {});
        for (const Tensor& kept : {rows, gamma, mean, rstd}) ctx.save(kept);
        return y.dtype() == x.dtype() ? y : converted_to(y, x.dtype());
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
            Tensor hat = Tensor::empty_like(rows, mean.dtype());
            const auto column = [&](const Tensor& t) {
                return expanded(t.window(0, {t.numel(), 1}), rows.shape()).view();
            };
            kernels.binary(BinaryOp::Sub, rows.view(), column(mean), hat.view(), {});
            kernels.binary(BinaryOp::Mul, hat.view(), column(rstd), hat.view(), {});
            Tensor product = scattered(hat, g);
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
            kernels.layer_norm_backward(gathered(scaled).view(), rows.view(), {}, mean.view(), rstd.view(),
                                        grows.view(), {}, {});
            gx = scattered(grows, g);
        }
        return {gx, affine.gamma, affine.beta};
    }
};

void check_floating(const char* op, const Tensor& x) {
    if (!is_floating(x.dtype())) fail("{}: needs a floating tensor, not {}", op, x.str());
}

void check_parameter(const char* op, const char* name, const Tensor& parameter, const Tensor& x, const Shape& shape) {
    if (parameter && parameter.shape() != shape)
        fail("{}: {} {} for an input {}; it must be {}", op, name, parameter.shape().str(), x.shape().str(),
             shape.str());
}

}  // namespace

Tensor batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Tensor& running_mean,
                  const Tensor& running_var, bool training, double momentum, double eps) {
    const char* op = BatchNorm::kName;
    check_floating(op, x);
    if (x.rank() < 2) fail("batch_norm: the input must be [..., channels], not {}", x.shape().str());
    const Shape channels{x.size(-1)};
    check_parameter(op, "gamma", gamma, x, channels);
    check_parameter(op, "beta", beta, x, channels);
    check_parameter(op, "running mean", running_mean, x, channels);
    check_parameter(op, "running variance", running_var, x, channels);
    if (x.size(-1) == 0) fail("batch_norm: the input {} has no channels", x.shape().str());
    if (training && x.numel() == x.size(-1))
        fail("batch_norm: one value a channel ({}) has no variance to train with; use a larger batch", x.shape().str());
    if (!training && (!running_mean || !running_var))
        fail("batch_norm: without training it needs the running mean and variance");
    return apply(BatchNorm{running_mean, running_var, training, momentum, eps}, {x, gamma, beta});
}

Tensor layer_norm(const Tensor& x, const Shape& normalized, const Tensor& gamma, const Tensor& beta, double eps) {
    const char* op = LayerNorm::kName;
    check_floating(op, x);
    bool fits = normalized.rank() >= 1 && normalized.rank() <= x.rank();
    for (int i = 1; fits && i <= normalized.rank(); ++i) fits = x.size(-i) == normalized[-i];
    if (!fits) fail("layer_norm: the last sizes of {} must be {}", x.shape().str(), normalized.str());
    check_parameter(op, "gamma", gamma, x, normalized);
    check_parameter(op, "beta", beta, x, normalized);
    return apply(LayerNorm{normalized, eps}, {x, gamma, beta});
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
