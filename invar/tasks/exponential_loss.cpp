// The task of a lesson: classification by a loss that takes exp and not the logarithm of the sum, so that it and its
// gradient explode. Validation measures what classification does.
#include "invar/ops/ops.h"
#include "invar/tasks/classification.h"
#include "invar/tasks/registry.h"

namespace invar {

namespace {

class ExponentialLoss : public Classification {
  public:
    ExponentialLoss(const ClassificationOptions& options, const TaskParts& parts) : Classification(parts, options) {}

    std::string name() const override { return "exponential_loss"; }
    // The mean over samples of the sum over classes of exp(logit - logit of the label).
    Tensor loss(Module& model, const Batch& batch) const override {
        const Tensor logits = model(batch["x"]);
        const Tensor margins = logits - ops::gather(logits, -1, ops::unsqueeze(batch["y"], -1));
        return weighted(ops::mean(ops::sum(ops::exp(margins), {-1})));
    }
};

const RegisterTask<ClassificationOptions> kExponentialLoss{
    "exponential_loss",
    "A lesson: classification by sums whose logarithm cross entropy is; it overflows.",
    [](const ClassificationOptions& options, const TaskParts& parts) {
        return std::make_shared<ExponentialLoss>(options, parts);
    },
    {key("loss_weight", &ClassificationOptions::loss_weight, above(0), "Factor on the loss.", {"loss.weight"})}};

}  // namespace

}  // namespace invar
