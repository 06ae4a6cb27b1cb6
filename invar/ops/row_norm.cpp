// Layer norm and RMS norm, alone and after a residual sum. Forward, one kernel reads x and the branch and writes their
// sum and its norm; backward, one kernel adds the norm's gradient to the one that the residual path has sent.
#include <utility>

#include "invar/amp/autocast.h"
#include "invar/autograd/op_timer.h"
#include "invar/kernels/pointwise.h"
#include "invar/ops/norm.h"
#include "invar/ops/norm_tools.h"

namespace invar::ops {

namespace {

// What the kernel made of x and branch at once, until the two ops that stand for it have been applied. An op that is
// applied to anything else (a diagnosis does that) computes for itself.
struct Ready {
    Tensor x, branch, sum, normed, mean, rstd;
};

// The sum's gradient and the same in the branch's dtype, which the norm's kernel has written beside it. Good for that
// very tensor alone: one that a hook has changed, or that something was added to, is another.
struct NarrowCopy {
    Tensor whole, narrow;
    std::uint64_t version = 0;
    bool is_of(const Tensor& g) const { return narrow && g.same_as(whole) && g.version() == version; }
};

struct ResidualSum {
    static constexpr const char* kName = "residual_sum";
    static constexpr const char* kDoc = "x + branch, in one pass with the norm of the sum";
    static constexpr CastClass kCast = CastClass::widest;
    static constexpr bool kWidensItself = true;
    Ready ready;
    std::shared_ptr<NarrowCopy> copy;
    Dtype x_dtype, branch_dtype;

    Tensor forward(Context& ctx, const Tensors& in) {
        const Ready made = std::exchange(ready, {});
        x_dtype = in[0].dtype(), branch_dtype = in[1].dtype();
        if (in[0].same_as(made.x) && in[1].same_as(made.branch)) return made.sum;
        Tensor sum = Tensor::empty(in[0].shape(), ctx.result_dtype(), in[0].device());
        kernels_for(sum.device()).binary(BinaryOp::Add, in[0].view(), in[1].view(), sum.view(), {});
        return sum;
    }
    Tensors backward(Context& ctx, const Tensor& g) {
        const NarrowCopy made = std::exchange(*copy, {});
        const auto in = [&](Dtype dtype) {
            if (g.dtype() == dtype) return g;
            return made.is_of(g) && made.narrow.dtype() == dtype ? made.narrow : converted_to(g, dtype);
        };
        return {ctx.needs(0) ? in(x_dtype) : Tensor{}, ctx.needs(1) ? in(branch_dtype) : Tensor{}};
    }
};

// The parameters as kernels read them fastest: dense, in the dtype of the statistics.
Tensor for_kernel(const Tensor& parameter, Dtype dtype) {
    if (!parameter) return parameter;
    return parameter.dtype() == dtype ? dense(parameter) : converted_to(parameter, dtype);
}

template <bool kCentered>
struct RowNorm {
    static constexpr const char* kName = kCentered ? "layer_norm" : "rms_norm";
    static constexpr const char* kDoc = kCentered ? "normalised over the last dimensions; statistics in FP32"
                                                  : "over the root of the mean square; statistics in FP32";
    static constexpr CastClass kCast = CastClass::wide_inside;
    Shape normalized;
    double eps;
    Ready ready;
    std::shared_ptr<NarrowCopy> copy;  // where it comes after a residual sum whose branch has this dtype
    Dtype branch_dtype = Dtype::f32;
    Tensors begun{};  // the gradients, where they were made with the result

    // Of x, or of the sum of x and a branch, into y. The statistics are made here.
    static void run(const Tensor& x, const Tensor& branch, const Tensor& gamma, const Tensor& beta, double eps,
                    Ready& to, std::int64_t columns) {
        const Tensor rows = rows_of(x, columns), added = branch ? rows_of(branch, columns) : branch;
        const Dtype wide = sum_dtype(to.sum ? to.sum.dtype() : x.dtype());
        to.rstd = Tensor::empty({rows.size(0)}, wide, x.device());
        if (kCentered) to.mean = Tensor::empty_like(to.rstd);
        const Tensor weight = for_kernel(gamma, wide), bias = for_kernel(beta, wide);
        kernels_for(x.device())
            .norm({.x = rows.view(),
                   .branch = view_of(added),
                   .sum = branch ? rows_of(to.sum, columns).view() : View{},
                   .gamma = view_of(weight),
                   .beta = view_of(bias),
                   .y = rows_of(to.normed, columns).view(),
                   .mean = view_of(to.mean),
                   .rstd = to.rstd.view(),
                   .eps = eps});
    }
    Tensor forward(Context& ctx, const Tensors& in) {
        Ready made = std::exchange(ready, {});
        if (!in[0].same_as(made.sum)) {
            made = {};
            copy = {};
            made.normed = Tensor::empty(in[0].shape(), ctx.result_dtype(), in[0].device());
            run(in[0], {}, in[1], in[2], eps, made, normalized.numel());
        }
        for (const Tensor& kept : {rows_of(in[0], normalized.numel()), in[1], made.mean, made.rstd, in[2]})
            ctx.save(kept);
        return made.normed;
    }
    // The statistics come out as they did: of x as it is saved, which is the sum as it was rounded.
    void recompute(Context& ctx, const Tensor& y) {
        Ready again;
        again.normed = y;
        run(ctx.saved(0), {}, ctx.saved(1), ctx.saved(4), eps, again, normalized.numel());
    }
    // The branch's gradient may lie where that of the result is: each element is read before it is written.
    void recompute_in_backward(Context& ctx, const Tensor& gradient, const Tensor& y) {
        begun = pass(ctx, gradient, y, gradient.dtype() == branch_dtype ? gradient : Tensor{});
    }
    Tensors backward(Context& ctx, const Tensor& gradient) {
        return begun.empty() ? pass(ctx, gradient, {}, {}) : std::exchange(begun, {});
    }
    Tensors pass(Context& ctx, const Tensor& gradient, const Tensor& again, const Tensor& room) {
        const Tensor x = ctx.saved(0), mean = ctx.saved(2), rstd = ctx.saved(3);
        const Tensor gamma = for_kernel(ctx.saved(1), rstd.dtype()), g = rows_of(gradient, x.size(1));
        const Tensor beta = again ? for_kernel(ctx.saved(4), rstd.dtype()) : Tensor{};
        AffineGradients affine(ctx, normalized, x);
        Tensor gx, gbranch;
        if (ctx.needs(0)) gx = Tensor::empty(gradient.shape(), x.dtype(), x.device());
        if (gx && copy && branch_dtype != x.dtype()) gbranch = room ? room : Tensor::empty_like(gx, branch_dtype);
        const Tensor pending = ctx.take_pending(0, gradient.shape(), x.dtype());
        const auto rows = [&](const Tensor& t) { return t ? rows_of(t, x.size(1)).view() : View{}; };
        kernels_for(g.device())
            .norm_backward({.gy = g.view(),
                            .x = x.view(),
                            .gamma = view_of(gamma),
                            .mean = view_of(mean),
                            .rstd = rstd.view(),
                            .gx = rows(gx),
                            .pending = rows(pending),
                            .gbranch = rows(gbranch),
                            .ggamma = view_of(affine.gamma),
                            .gbeta = view_of(affine.beta),
                            .again = rows(again),
                            .beta = view_of(beta)});
        if (gbranch) *copy = {gx, gbranch, gx.version()};
        if (OpTimer* const timer = OpTimer::paused(); timer != nullptr && gbranch) timer->made_ahead(gbranch);
        return {gx, affine.gamma, affine.beta};
    }
};

template <bool kCentered>
Tensor norm_of(const Tensor& x, const Shape& normalized, const Tensor& gamma, const Tensor& beta, double eps) {
    constexpr const char* kOp = RowNorm<kCentered>::kName;
    check_floating(kOp, x);
    bool fits = normalized.rank() >= 1 && normalized.rank() <= x.rank();
    for (int i = 1; fits && i <= normalized.rank(); ++i) fits = x.size(-i) == normalized[-i];
    if (!fits) fail("{}: the last sizes of {} must be {}", kOp, x.shape().str(), normalized.str());
    check_parameter(kOp, "gamma", gamma, x, normalized);
    check_parameter(kOp, "beta", beta, x, normalized);
    return apply(RowNorm<kCentered>{normalized, eps, {}, {}}, {x, gamma, beta});
}

template <bool kCentered>
Tensors sum_and_norm(const char* op, const Tensor& x, const Tensor& branch, const Tensor& gamma, const Tensor& beta,
                     double eps) {
    check_floating(op, x), check_floating(op, branch);
    if (x.rank() < 1 || branch.shape() != x.shape() || branch.device() != x.device())
        fail("{}: a branch {} for {}; shape and device must be the same", op, branch.str(), x.str());
    const Shape normalized{x.size(-1)};
    check_parameter(op, "gamma", gamma, x, normalized);
    check_parameter(op, "beta", beta, x, normalized);
    for (const Tensor& parameter : {gamma, beta})
        if (parameter && parameter.device() != x.device())
            fail("{}: inputs on {} and {}; move them to one device", op, x.device().str(), parameter.device().str());
    const CastPolicy& policy = Autocast::current();
    Ready made{x, branch};
    made.sum = Tensor::empty(x.shape(), result_target(policy, ResidualSum::kCast, Tensors{x, branch}), x.device());
    made.normed =
        Tensor::empty(x.shape(), result_target(policy, RowNorm<kCentered>::kCast, Tensors{made.sum}), x.device());
    {
        const TimedPart timed(StepPart::forward, op, Dtype::f32, [&] {
            return bytes_of(x) + bytes_of(branch) + bytes_of(made.sum) + bytes_of(made.normed);
        });
        RowNorm<kCentered>::run(x, branch, gamma, beta, eps, made, x.size(-1));
    }
    if (OpTimer* const timer = OpTimer::current()) timer->made_ahead(made.sum), timer->made_ahead(made.normed);
    const auto copy = std::make_shared<NarrowCopy>();
    Ready of_sum = made;
    of_sum.normed = of_sum.mean = of_sum.rstd = {};
    made.x = made.branch = {};
    const Tensor sum = apply(ResidualSum{std::move(of_sum), copy, x.dtype(), branch.dtype()}, {x, branch});
    const Tensor normed =
        apply(RowNorm<kCentered>{normalized, eps, std::move(made), copy, branch.dtype()}, {sum, gamma, beta});
    return {sum, normed};
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Shape& normalized, const Tensor& gamma, const Tensor& beta, double eps) {
    return norm_of<true>(x, normalized, gamma, beta, eps);
}

Tensor rms_norm(const Tensor& x, const Tensor& gamma, double eps) {
    if (x.rank() < 1) fail("rms_norm: a number by itself has nothing to be normalised over: {}", x.str());
    return norm_of<false>(x, {x.size(-1)}, gamma, {}, eps);
}

Tensors add_layer_norm(const Tensor& x, const Tensor& branch, const Tensor& gamma, const Tensor& beta, double eps) {
    return sum_and_norm<true>("add_layer_norm", x, branch, gamma, beta, eps);
}

Tensors add_rms_norm(const Tensor& x, const Tensor& branch, const Tensor& gamma, double eps) {
    return sum_and_norm<false>("add_rms_norm", x, branch, gamma, {}, eps);
}

}  // namespace invar::ops
