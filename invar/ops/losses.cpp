#include "invar/ops/losses.h"

#include "invar/amp/autocast.h"
#include "invar/core/error.h"
#include "invar/ops/apply.h"
#include "invar/ops/cast.h"
#include "invar/ops/indexing.h"
#include "invar/ops/pointwise.h"
#include "invar/ops/reduce.h"
#include "invar/ops/shape.h"
#include "invar/ops/shape_tools.h"
#include "invar/ops/softmax.h"

namespace invar::ops {

namespace {

// What the class losses share: how a loss a row becomes the result, and back. All of it stays on the device; how many
// rows count is not read by the host.
struct RowLoss {
    ClassLossOptions options;
    Shape rows;  // the targets' shape

    // True where the target counts, false where it is ignored.
    Tensor counted(const Tensor& target) const {
        Tensor result = Tensor::empty_like(target, Dtype::boolean);
        kernels_for(target.device())
            .compare({CompareOp::ne, target.dtype(), 0, options.ignore_index}, target.view(), View{}, result.view());
        return result;
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
    // What each row's class weighs, 0 for those that are ignored; `index` has their class as 0.
    Tensor weights(const Tensor& counted, const Tensor& index, Dtype dtype) const {
        const Tensor given = dense(converted_to(options.weight, dtype));
        Tensor picked = Tensor::empty_like(index, dtype);
        kernels_for(index.device()).embedding(given.window(0, {given.numel(), 1}).view(), index.view(), picked.view());
        return only(counted, picked);
    }
    // Saves, as the first tensor, what the mean divides by: the weights, or how many rows count.
    Tensor reduce(Context& ctx, const Tensor& losses, const Tensor& target, const Tensor& weights = {}) const {
        if (options.reduction == Reduction::mean && weights) {
            const Tensor sum = total(losses), divisor = total(weights);
            Tensor result = Tensor::empty_like(sum);
            kernels_for(losses.device()).binary(BinaryOp::Div, sum.view(), divisor.view(), result.view(), {});
            ctx.save(divisor);
            return result;
        }
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
        losses = RowLoss::only(counted, losses);
        const Tensor weights = loss.options.weight ? loss.weights(counted, index, losses.dtype()) : Tensor{};
        if (weights) kernels.binary(BinaryOp::Mul, losses.view(), weights.view(), losses.view(), {});
        Tensor result = loss.reduce(ctx, losses, target, weights);
        ctx.save(counted), ctx.save(index), ctx.save(weights);
        return result;
    }
    Tensors backward(Context& ctx, const Tensor& g) {
        const Tensor counted = ctx.saved(1), index = ctx.saved(2), weights = ctx.saved(3);
        const Tensor each = loss.spread(ctx, g), part = Tensor::empty_like(each);
        Kernels& kernels = kernels_for(g.device());
        kernels.unary(UnaryOp::Neg, RowLoss::only(counted, each).view(), part.view(), {});
        if (weights) kernels.binary(BinaryOp::Mul, part.view(), weights.view(), part.view(), {});
        Tensor gx = filled(from, part.dtype(), g.device(), 0);
        kernels.scatter_add(span_of(from, -1), 1, part.view(), index.view(), gx.view());
        return {gx, Tensor{}};
    }
};

void check_smoothing(const char* op, const ClassLossOptions& options) {
    if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1))
        fail<UsageError>("{}: label smoothing must lie in [0, 1], not {}", op, options.label_smoothing);
}

void check_weight(const char* op, const Tensor& x, const ClassLossOptions& options) {
    const Tensor& weight = options.weight;
    if (weight && (weight.shape() != Shape{x.size(-1)} || !is_floating(weight.dtype())))
        fail("{}: weight {} for an input {}; it must be a floating [{}]", op, weight.str(), x.shape().str(),
             x.size(-1));
    if (weight && weight.device() != x.device())
        fail("{}: inputs on {} and {}; move them to one device", op, x.device().str(), weight.device().str());
}

RowLoss class_loss(const char* op, const Tensor& x, const Tensor& target, const ClassLossOptions& options) {
    if (x.rank() < 1 || !is_floating(x.dtype())) fail("{}: needs floating [..., classes], not {}", op, x.str());
    Shape rows = x.shape();
    rows.erase(-1);
    if (target.shape() != rows)
        fail("{}: target {} for an input {}; it must be {}", op, target.shape().str(), x.shape().str(), rows.str());
    check_smoothing(op, options);
    check_indices(op, target, x.size(-1), options.ignore_index);
    check_weight(op, x, options);
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

// --- cross-entropy with weights or probabilities, in steps that are ops of their own; in FP32 whatever comes in ---

Tensor weight_of(const ClassLossOptions& options, Dtype dtype) {
    return options.weight ? converted_to(options.weight, dtype) : Tensor{};
}

// (1 - s) times the loss of the target's class, plus s times the mean over all classes; each with its weight.
Tensor weighted_cross_entropy(const Tensor& logits, const Tensor& target, const ClassLossOptions& options) {
    const RowLoss loss = class_loss(CrossEntropy::kName, logits, target, options);
    const Dtype dtype = sum_dtype(logits.dtype());
    const Tensor counted = loss.counted(dense(target));
    // Ignored rows are never read: their gradient is 0 even where they hold infinities.
    const Tensor known = where(unsqueeze(counted, -1), cast(logits, dtype), 0.0);
    const Tensor log_probabilities = log_softmax(known, -1);
    const double smoothing = options.label_smoothing;
    const ClassLossOptions each{Reduction::none, options.ignore_index, 0, options.weight};
    Tensor losses = nll_loss(log_probabilities, target, each);
    if (smoothing != 0) {
        const Tensor all = sum(log_probabilities * weight_of(options, dtype), {-1});
        const double share = smoothing / double(logits.size(-1));
        losses = losses * (1 - smoothing) - where(counted, all, 0.0) * share;
    }
    if (options.reduction != Reduction::mean) return reduced(losses, options.reduction);
    return sum(losses) / RowLoss::total(loss.weights(counted, RowLoss::only(counted, dense(target)), dtype));
}

Tensor soft_cross_entropy(const Tensor& logits, const Tensor& target, const ClassLossOptions& options) {
    const char* const name = CrossEntropy::kName;
    check_smoothing(name, options);
    check_weight(name, logits, options);
    if (options.ignore_index >= 0)
        fail<UsageError>("{}: ignore_index {} for a target of probabilities, which names no classes", name,
                         options.ignore_index);
    const Dtype dtype = sum_dtype(logits.dtype());
    Tensor terms = log_softmax(cast(logits, dtype), -1);
    Tensor wanted = cast(target, dtype);
    if (options.label_smoothing != 0)
        wanted = affine(wanted, 1 - options.label_smoothing, options.label_smoothing / double(logits.size(-1)));
    if (options.weight) wanted = wanted * weight_of(options, dtype);
    return reduced(neg(sum(terms * wanted, {-1})), options.reduction);
}

// (1 - y) softplus(x) + w y softplus(-x), where no term takes digits from another; in FP32 whatever comes in.
Tensor weighted_bce(const Tensor& logits, const Tensor& target, Reduction reduction, const Tensor& pos_weight) {
    const Dtype from = promote(logits.dtype(), target.dtype()), dtype = sum_dtype(from);
    if (!is_floating(pos_weight.dtype()) ||
        broadcast(logits.shape(), pos_weight.shape(), "pos_weight") != logits.shape())
        fail("bce_with_logits: pos_weight {} for logits {}", pos_weight.str(), logits.str());
    const Tensor x = cast(logits, dtype), y = cast(target, dtype), weight = converted_to(pos_weight.detach(), dtype);
    const Tensor loss = reduced((1.0 - y) * softplus(x) + y * weight * softplus(-x), reduction);
    return Autocast::current().mode == CastPolicy::Mode::off ? cast(loss, from) : loss;
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& target, const ClassLossOptions& options) {
    if (is_floating(target.dtype()) && target.shape() == logits.shape() && logits.rank() > 0)
        return soft_cross_entropy(logits, target, options);
    if (options.weight) return weighted_cross_entropy(logits, target, options);
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

Tensor bce_with_logits(const Tensor& logits, const Tensor& target, Reduction reduction, const Tensor& pos_weight) {
    check_same("bce_with_logits", logits, target);
    if (pos_weight) return weighted_bce(logits, target, reduction, pos_weight);
    return reduced(bce_with_logits_error(logits, target), reduction);
}

Tensor bce(const Tensor& probabilities, const Tensor& target, Reduction reduction) {
    check_same("bce", probabilities, target);
    return reduced(bce_error(probabilities, target), reduction);
}

}  // namespace invar::ops
