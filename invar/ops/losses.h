// Losses, computed in FP32. Classes are the last dimension of logits [..., classes]; class targets are i64 [...].
#pragma once

#include "invar/core/tensor.h"

namespace invar::ops {

enum class Reduction { mean, sum, none };

struct ClassLossOptions {
    Reduction reduction = Reduction::mean;
    // Rows with this target count neither in the loss nor in the mean; their gradient is 0, also where no row is left
    // and the mean is NaN.
    std::int64_t ignore_index = -100;
    double label_smoothing = 0;  // cross_entropy only
    // How much each class counts, [classes], where there is one: a row's loss is multiplied by that of its target, and
    // the mean divided by their sum. It gets no gradient.
    Tensor weight = {};
};

// The target is a class for each row, or, as a floating tensor of the logits' shape, a probability for each class. Of
// probabilities no row is ignored, each class's term is multiplied by its weight, and the mean is that over the rows;
// gradients flow to them too.
Tensor cross_entropy(const Tensor& logits, const Tensor& target, const ClassLossOptions& options = {});
Tensor nll_loss(const Tensor& log_probabilities, const Tensor& target, const ClassLossOptions& options = {});

Tensor mse_loss(const Tensor& prediction, const Tensor& target, Reduction reduction = Reduction::mean);
Tensor l1_loss(const Tensor& prediction, const Tensor& target, Reduction reduction = Reduction::mean);
// Quadratic within beta of the target, linear beyond.
Tensor smooth_l1_loss(const Tensor& prediction, const Tensor& target, double beta = 1,
                      Reduction reduction = Reduction::mean);
// `pos_weight`, where it is there, is how much the positive part of each loss counts, broadcast to the logits (one for
// each class, say). It gets no gradient.
Tensor bce_with_logits(const Tensor& logits, const Tensor& target, Reduction reduction = Reduction::mean,
                       const Tensor& pos_weight = {});
// On probabilities; refused under autocast, where bce_with_logits is safe. A prediction outside [0, 1] gives NaN, loss
// and gradient, on every device: PyTorch refuses it, but only on the CPU, where looking at the values costs no wait.
Tensor bce(const Tensor& probabilities, const Tensor& target, Reduction reduction = Reduction::mean);

}  // namespace invar::ops
