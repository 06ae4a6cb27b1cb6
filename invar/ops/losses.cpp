#include "invar/ops/losses.h"

#include "invar/core/error.h"
#include "invar/ops/apply.h"
#include "invar/ops/indexing.h"
#include "invar/ops/pointwise.h"
#include "invar/ops/reduce.h"
#include "invar/ops/shape_tools.h"

namespace invar::ops {

namespace {

// What the class losses share: how a loss a row becomes the result, and back. All of it stays on the device; how many
// rows count is not read by the host.
struct RowLoss {
    ClassLossOptions options;
    Shape rows;  // the targets' shape

    // True where the target counts, false where it is ignored.
    Tensor counted(const Tensor& target) const {
        const Tensor difference = converted_to(target, Dtype::f64);
        kernels_for(target.device())
            .unary(UnaryOp::Affine, difference.view(), difference.view(), {1, -double(options.ignore_index)});
        return converted_to(difference, Dtype::boolean);
    }
    // x where the row counts, else 0, whatever x is there.
    static Tensor only(const Tensor& counted, const Tensor& x) {
        Tensor result = Tensor::empty_like(x);
        const Tensor zero = expanded(filled({}, x.dtype(), x.device(), 0), x.shape());
        kernels_for(x.device()).where(counted.view(), x.view(), zero.view(), result.view());
        return result;
    }
    static Tensor total(const Tensor& x) {
        Tensor result = Tensor::empty({}, x.dtype(), x.device());
        kernels_for(x.device()).sum({1, x.numel(), 1}, x.view(), result.view(), 1.0, false);
        return result;
    }
    // Saves, as the first tensor, what the mean divides by.
    Tensor reduce(Context& ctx, const Tensor& losses, const Tensor& target) const {
        if (options.reduction != Reduction::mean) {
            ctx.save({});
            return options.reduction == Reduction::none ? losses : total(losses);
        }
        Tensor result = Tensor::empty({}, losses.dtype(), losses.device()), count = Tensor::empty_like(result);
        kernels_for(losses.device())
            .mean_loss(losses.view(), target.view(), options.ignore_index, result.view(), count.view());
        ctx.save(count);
        return result;
    }
    // The gradient of each row's loss.
    Tensor spread(Context& ctx, const Tensor& g) const {
        if (options.reduction == Reduction::none) return dense(g);
        Tensor each = Tensor::empty(rows, g.dtype(), g.device());
        Kernels& kernels = kernels_for(g.device());
        const Tensor count = ctx.saved(0);
        if (count)
            kernels.binary(BinaryOp::Div, expanded(g, rows).view(), expanded(count, rows).view(), each.view(), {});
        else
            kernels.copy(expanded(g, rows).view(), each.view());
        return each;
    }
};

struct CrossEntropy {
    static constexpr const char* kName = "cross_entropy";
    static constexpr const char* kDoc = "negative log-likelihood of softmax(logits)";
    static constexpr CastClass kCast = CastClass::fp32;
    static constexpr bool kWidensItself = true;  // losses are FP32 whatever the logits are
    RowLoss loss;

    CrossEntropySpec spec(const Tensor& logits) const {
        return {loss.rows.numel(), logits.size(-1), loss.options.ignore_index, loss.options.label_smoothing};
    }
    Tensor forward(Context& ctx, const Tensors& in) {
        const Tensor logits = dense(in[0]), target = dense(in[1]);
        Tensor losses = Tensor::empty(target.shape(), sum_dtype(logits.dtype()), logits.device());
        Tensor kept = Tensor::empty({2, losses.numel()}, losses.dtype(), logits.device());
        kernels_for(logits.device())
            .cross_entropy(spec(logits), logits.view(), target.view(), losses.view(), kept.view());
        Tensor result = loss.reduce(ctx, losses, target);
        for (const Tensor& saved : {logits, target, kept}) ctx.save(saved);
        return result;
    }
    Tensors backward(Context& ctx, const Tensor& g) {
        const Tensor count = ctx.saved(0), logits = ctx.saved(1), target = ctx.saved(2), kept = ctx.saved(3);
        Tensor gx = Tensor::empty_like(logits);
        kernels_for(g.device())
            .cross_entropy_backward(spec(logits), logits.view(), target.view(), kept.view(), dense(g).view(),
                                    count ? count.view() : View{}, gx.view());
        return {gx, Tensor{}};
    }
};

struct Nll {
    static constexpr const char* kName = "nll_loss";
    static constexpr const char* kDoc = "negative log-likelihood of log-probabilities";
    static constexpr CastClass kCast = CastClass::fp32;
    RowLoss loss;
    Shape from;

    Tensor forward(Context& ctx, const Tensors& in) {
        const Tensor x = dense(in[0]), target = dense(in[1]);
        Kernels& kernels = kernels_for(x.device());
        const Tensor counted = loss.counted(target), index = RowLoss::only(counted, target);  // ignored: class 0
        Tensor picked = Tensor::empty_like(target, x.dtype()),
               losses = Tensor::empty_like(target, sum_dtype(x.dtype()));
        kernels.gather(span_of(from, -1), 1, x.view(), index.view(), picked.view());
        kernels.unary(UnaryOp::Neg, picked.view(), losses.view(), {});
        Tensor result = loss.reduce(ctx, RowLoss::only(counted, losses), target);
        ctx.save(counted), ctx.save(index);
        return result;
    }
    Tensors backward(Context& ctx, const Tensor& g) {
        const Tensor counted = ctx.saved(1), index = ctx.saved(2);
        const Tensor each = loss.spread(ctx, g), part = Tensor::empty_like(each);
        Kernels& kernels = kernels_for(g.device());
        kernels.unary(UnaryOp::Neg, RowLoss::only(counted, each).view(), part.view(), {});
        Tensor gx = filled(from, part.dtype(), g.device(), 0);
        kernels.scatter_add(span_of(from, -1), 1, part.view(), index.view(), gx.view());
        return {gx, Tensor{}};
    }
};

RowLoss class_loss(const char* op, const Tensor& x, const Tensor& target, const ClassLossOptions& options) {
    if (x.rank() < 1 || !is_floating(x.dtype())) fail("{}: needs floating [..., classes], not {}", op, x.str());
    Shape rows = x.shape();
    rows.erase(-1);
    if (target.shape() != rows)
        fail("{}: target {} for an input {}; it must be {}", op, target.shape().str(), x.shape().str(), rows.str());
    if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1))
        fail<UsageError>("{}: label smoothing must lie in [0, 1], not {}", op, options.label_smoothing);
    check_indices(op, target, x.size(-1), options.ignore_index);
    return {options, rows};
}

void check_same(const char* op, const Tensor& prediction, const Tensor& target) {
    if (!is_floating(prediction.dtype())) fail("{}: needs a floating prediction, not {}", op, prediction.str());
    if (prediction.shape() != target.shape())
        fail("{}: prediction {} against target {}; the shapes must be the same", op, prediction.shape().str(),
             target.shape().str());
}

Tensor reduced(const Tensor& losses, Reduction reduction) {
    if (reduction == Reduction::none) return losses;
    return reduction == Reduction::mean ? mean(losses) : sum(losses);
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& target, const ClassLossOptions& options) {
    return apply(CrossEntropy{class_loss(CrossEntropy::kName, logits, target, options)}, {logits, target});
}

Tensor nll_loss(const Tensor& log_probabilities, const Tensor& target, const ClassLossOptions& options) {
    if (options.label_smoothing != 0) fail<UsageError>("nll_loss: label smoothing belongs to cross_entropy");
    const RowLoss loss = class_loss(Nll::kName, log_probabilities, target, options);
    return apply(Nll{loss, log_probabilities.shape()}, {log_probabilities, target});
}

Tensor mse_loss(const Tensor& prediction, const Tensor& target, Reduction reduction) {
    check_same("mse_loss", prediction, target);
    return reduced(squared_error(prediction, target), reduction);
}

Tensor l1_loss(const Tensor& prediction, const Tensor& target, Reduction reduction) {
    check_same("l1_loss", prediction, target);
    return reduced(absolute_error(prediction, target), reduction);
}

Tensor smooth_l1_loss(const Tensor& prediction, const Tensor& target, double beta, Reduction reduction) {
    check_same("smooth_l1_loss", prediction, target);
    if (!(beta >= 0)) fail<UsageError>("smooth_l1_loss: beta must be at least 0, not {}", beta);
    const Tensor errors = beta == 0 ? absolute_error(prediction, target) : smooth_l1_error(prediction, target, beta);
    return reduced(errors, reduction);
}

Tensor bce_with_logits(const Tensor& logits, const Tensor& target, Reduction reduction) {
    check_same("bce_with_logits", logits, target);
    return reduced(bce_with_logits_error(logits, target), reduction);
}

Tensor bce(const Tensor& probabilities, const Tensor& target, Reduction reduction) {
    check_same("bce", probabilities, target);
    return reduced(bce_error(probabilities, target), reduction);
}

}  // namespace invar::ops
