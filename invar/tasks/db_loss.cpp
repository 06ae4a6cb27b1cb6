#include "invar/tasks/db_loss.h"

#include "invar/amp/autocast.h"
#include "invar/autograd/node.h"
#include "invar/core/error.h"
#include "invar/ops/ops.h"

namespace invar {

namespace {

constexpr double kEps = 1e-6;  // of the authors' code: keeps quotients finite without a text

// FP32, or f64 where it is that.
Tensor wide(const Tensor& x) {
    return x.dtype() == Dtype::f64 ? x : ops::cast(x, Dtype::f32);
}

// How much each of the losses counts, where the `count` largest ones of the negatives do. Losses that are not a
// negative's are 0.
Tensor negative_weights(const Tensor& losses, const Tensor& negative, const Tensor& count) {
    const NoGrad no_grad;
    const Dtype dtype = losses.dtype();
    const Tensor last = ops::maximum(count - ops::ones_like(count), ops::zeros_like(count));
    const Tensor bound = ops::gather(ops::sort(losses, 0, true).values, 0, last);
    const Tensor above = ops::logical_and(negative, losses > bound), at = ops::logical_and(negative, losses == bound);
    const Tensor left = ops::cast(count - ops::sum(above), dtype), equal = ops::cast(ops::sum(at), dtype);
    return ops::cast(above, dtype) + ops::cast(at, dtype) * (left / ops::maximum(equal, ops::ones_like(equal)));
}

void check_map(const char* name, const Tensor& map, const Tensor& logits) {
    check(map.shape() == logits.shape(), "the loss of DBNet takes maps of one shape; {} is {}, and the logits are {}",
          name, map.shape().str(), logits.shape().str());
}

}  // namespace

Tensor hard_negative_bce(const Tensor& logits, const Tensor& target, const Tensor& mask, std::int64_t negatives) {
    const Autocast pin(Autocast::fp32());
    const auto flat = [](const Tensor& x) { return ops::reshape(x, {-1}); };
    const Tensor t = flat(wide(target)), inside = flat(mask) > 0.5;
    const Tensor positive = ops::logical_and(inside, t > 0.5), negative = ops::logical_and(inside, t <= 0.5);
    const Tensor losses = ops::bce_with_logits(flat(wide(logits)), t, ops::Reduction::none);

    // Counts are whole numbers on the device, so that a step can be recorded.
    const Tensor positives = ops::reshape(ops::sum(positive), {1}), there = ops::reshape(ops::sum(negative), {1});
    const Tensor count = ops::minimum(there, positives * ops::full_like(positives, double(negatives)));
    const Tensor of_negatives = losses.detach() * ops::cast(negative, losses.dtype());
    const Tensor weights = ops::cast(positive, losses.dtype()) + negative_weights(of_negatives, negative, count);
    const Tensor counted = ops::cast(positives + count, losses.dtype()) + kEps;
    return ops::sum(losses * weights) / ops::squeeze(counted, 0);
}

Tensor dice_loss(const Tensor& probabilities, const Tensor& target, const Tensor& mask) {
    const Autocast pin(Autocast::fp32());
    const Tensor p = wide(probabilities) * mask;
    return 1.0 - 2.0 * ops::sum(p * target) / (ops::sum(p) + ops::sum(target * mask) + kEps);
}

Tensor masked_l1(const Tensor& prediction, const Tensor& target, const Tensor& mask) {
    const Autocast pin(Autocast::fp32());
    const Tensor distances = ops::l1_loss(wide(prediction), target, ops::Reduction::none) * mask;
    const Tensor area = ops::sum(wide(mask));
    return ops::sum(distances) / ops::maximum(area, ops::full_like(area, kEps));
}

DbLoss db_loss(const Tensor& probability, const Tensor& threshold, const Batch& batch, const DbLossOptions& options) {
    const Autocast pin(Autocast::fp32());
    const Tensor &shrink = batch["shrink"], &mask = batch["shrink_mask"];
    for (const char* name : {"shrink", "shrink_mask", "threshold", "threshold_mask"})
        check_map(name, batch[name], probability);
    check_map("the threshold map", threshold, probability);

    const Tensor p = ops::sigmoid(wide(probability)), t = ops::sigmoid(wide(threshold));
    DbLoss loss;
    loss.probability = hard_negative_bce(probability, shrink, mask, options.negatives);
    loss.binary = dice_loss(ops::sigmoid((p - t) * options.k), shrink, mask);
    loss.threshold = masked_l1(t, batch["threshold"], batch["threshold_mask"]);
    loss.total =
        loss.probability * options.probability + loss.binary * options.binary + loss.threshold * options.threshold;
    return loss;
}

}  // namespace invar
