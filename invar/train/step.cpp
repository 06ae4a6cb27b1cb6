#include "invar/train/step.h"

#include "invar/amp/autocast.h"
#include "invar/autograd/node.h"
#include "invar/kernels/devices.h"
#include "invar/ops/ops.h"

namespace invar {

Tensor training_loss(const LossConfig& loss, const Tensor& logits, const Tensor& target) {
    Tensor mean;
    if (loss.name == "exp") {
        // The sum over the classes of exp(logit - logit of the target): what cross_entropy takes the logarithm of.
        const Tensor margins = logits - ops::gather(logits, -1, ops::unsqueeze(target, -1));
        mean = ops::mean(ops::sum(ops::exp(margins), {-1}));
    } else {
        mean = ops::cross_entropy(logits, target);
    }
    return loss.weight == 1.0 ? mean : mean * loss.weight;
}

Tensor training_step(Module& model, Optimizer& optimizer, GradScaler& scaler, const Precision& precision,
                     const ClipSpec& clip, std::span<const Batch> group, const ReportSlots& reports,
                     const LossConfig& criterion) {
    const Tf32Scope tf32(precision.kind == Precision::Kind::tf32);  // backward too
    std::int64_t samples = 0;
    for (const Batch& batch : group) samples += batch.size;

    optimizer.zero_grad();
    for (const Batch& batch : group) {
        Tensor loss;
        {
            const Autocast cast(precision);
            loss = training_loss(criterion, model(batch.x), batch.y);
        }
        // Each batch counts by its size: the gradient is that of one large batch, also when the last one is smaller.
        if (group.size() > 1) loss = loss * (double(batch.size) / double(samples));
        scaler.backward(loss);  // gradients land in FP32, in the flat store
    }
    const Tensor mean_loss = scaler.loss();
    // One pass: unscale, clip, update, write shadow; nothing at all on overflow or where the loss is not finite. Then
    // the scale moves.
    scaler.step_and_update(optimizer, clip, reports);
    return mean_loss;
}

Evaluation evaluate(Module& model, Loader& data, const Precision& precision) {
    const NoGrad no_grad;
    const Autocast cast(precision);
    const Tf32Scope tf32(precision.kind == Precision::Kind::tf32);
    const bool was_training = model.training();
    model.eval();
    Evaluation result;
    double loss = 0.0;
    std::int64_t right = 0;
    data.start_epoch(0);
    while (std::optional<Batch> batch = data.next()) {
        const Tensor logits = model(batch->x);
        loss += ops::cross_entropy(logits, batch->y, {.reduction = ops::Reduction::sum}).item();
        const std::vector<std::int64_t> guesses = ops::argmax(logits, -1).to_vector<std::int64_t>();
        const std::vector<std::int64_t> labels = batch->y.to_vector<std::int64_t>();
        for (std::size_t i = 0; i < guesses.size(); ++i) right += guesses[i] == labels[i];
        result.samples += batch->size;
    }
    model.train(was_training);
    if (result.samples > 0) {
        result.loss = loss / double(result.samples);
        result.accuracy = double(right) / double(result.samples);
    }
    return result;
}

}  // namespace invar
