#include "invar/train/step.h"

#include "invar/autograd/op_timer.h"
#include "invar/core/error.h"
#include "invar/ops/ops.h"
#include "invar/ops/sync_batch_norm.h"
#include "invar/train/review.h"

namespace invar {

void forward_backward(const LossFunction& loss_of, Module& model, const Precision& precision,
                      std::span<const Batch> group, const std::function<void(const Tensor& loss)>& backward) {
    const Tf32Scope tf32(precision.kind == Precision::Kind::tf32);  // backward too
    const double samples = double(whole_samples_of(group));
    for (const Batch& batch : group) {
        const SampleWindow drawn_for(batch.part.first, batch.size, batch.whole());
        const ops::SyncBatchNorm::Spare spare(batch.part.spare);
        Tensor loss;
        {
            const Autocast cast(precision);
            const ModuleScope scope("loss");
            loss = loss_of(model, batch);
        }
        check(loss.numel() == 1, "the loss of a batch must be one number, and is of shape {}", loss.shape().str());
        if (group.size() > 1 || batch.part.of > 0) {
            const ModuleScope scope("loss scale");
            loss = loss * batch.share_of(samples);
        }
        backward(loss);
    }
}

Tensor training_step(const LossFunction& loss, Module& model, Optimizer& optimizer, GradScaler& scaler,
                     const Precision& precision, const ClipSpec& clip, std::span<const Batch> group,
                     const ReportSlots& reports, WeightAverage* average) {
    optimizer.zero_grad();
    std::size_t left = group.size();
    forward_backward(loss, model, precision, group, [&](const Tensor& scalar) {
        const GradientExchange::Backward sent_when_ready(optimizer.exchange(), --left == 0);
        scaler.backward(scalar);  // gradients land in FP32, in the flat store
    });
    const Tensor mean_loss = scaler.loss();
    // One pass: unscale, clip, update, write shadow; nothing at all on overflow or where the loss is not finite. Then
    // the scale moves.
    scaler.step_and_update(optimizer, clip, reports);
    if (average != nullptr) {
        const TimedPart timed(StepPart::update, "average_weights", Dtype::f32, [] { return 0.0; });
        average->update(optimizer);
    }
    return optimizer.exchange() != nullptr ? optimizer.agreed_loss() : mean_loss;
}

std::function<Tensor(std::span<const Batch>)> step_function(Setup& setup, const ReportSlots& reports) {
    return [&setup, reports](std::span<const Batch> group) {
        const ops::SyncBatchNorm together(setup.sync_batchnorm ? setup.ranks : nullptr);
        return training_step(setup.loss, *setup.model, *setup.optimizer, *setup.scaler, setup.precision, setup.clip,
                             group, reports, setup.average.get());
    };
}

double Evaluation::at(std::string_view name) const {
    for (const Measured& measured : metrics)
        if (measured.metric.name == name) return measured.value;
    fail("the task has no metric '{}'", name);
}

Evaluation evaluate(const Task& task, Module& model, Loader& data, const Precision& precision) {
    const EvaluationScope scope(model, precision);
    MetricSums sums(task.metrics());
    Evaluation result;
    data.start_epoch(0);
    while (const std::optional<Batch> batch = data.next()) {
        if (batch->part.spare) continue;
        sums.add(task.measure(model, *batch));
        result.samples += batch->size;
    }
    sums.add_others(world());
    double samples = double(result.samples);
    world().sum(std::span(&samples, 1));
    result.samples = std::int64_t(samples);
    result.metrics = sums.values();
    return result;
}

}  // namespace invar
