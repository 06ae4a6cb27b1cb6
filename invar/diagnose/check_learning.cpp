// Whether a model can learn a handful of samples by heart: one that cannot will learn nothing from many.
#include <cmath>
#include <deque>
#include <numeric>

#include "invar/core/error.h"
#include "invar/diagnose/check_parts.h"
#include "invar/diagnose/replay.h"
#include "invar/kernels/devices.h"
#include "invar/ops/to.h"
#include "invar/train/step.h"

namespace invar {

namespace {

constexpr std::int64_t kSamples = 8;
constexpr int kStepsEach = 200;
constexpr double kRates[] = {1e-3, 1e-2, 1e-1};   // of Adam; each begins with fresh weights
constexpr double kLearned = 0.9, kNothing = 0.1;  // of the first loss, by which it has fallen
constexpr std::size_t kMeanOver = 5;              // steps: dropout makes single losses noisy

double fallen(const LearningCheck& result) {
    return result.first == 0 ? 1.0 : (result.first - result.last) / std::fabs(result.first);
}

}  // namespace

LearningCheck check_learning(const Task& task, const Config& config, double seconds) {
    const TimeLimit limit(seconds);
    const Device device = resolve_device(config.trainer.device);
    const std::shared_ptr<const Dataset> data = task.data(Split::train);
    const Batch batch =
        data->read(spread_samples(*data, kSamples)).map([&](const Tensor& tensor) { return ops::to(tensor, device); });
    const LossFunction loss = [&](Module& model, const Batch& b) {
        Tensor value = task.loss(model, b);
        check(
            value.requires_grad(),
            "the loss of {} samples, {:.4g}, does not depend on any weight that learns, or is cut off from them: there "
            "is nothing to learn",
            b.size, value.numel() == 1 ? value.item() : 0.0);
        return value;
    };
    LearningCheck result;
    result.samples = batch.size;
    int steps = 0;
    bool pulled = false;  // by a gradient that is not zero, some parameter at some step
    for (const double rate : kRates) {
        const std::unique_ptr<Module> model = make_initial_model(task, config);
        const WithoutOverrides plain(*model);
        model->to(device);
        model->train();
        Optimizer optimizer(*model, {.kind = OptimizerSpec::Kind::adam, .lr = rate});
        ScalerOptions unscaled;
        unscaled.spec.enabled = false;
        GradScaler scaler(unscaled, device);
        std::deque<double> latest;
        for (int step = 0; step < kStepsEach && !limit.over(); ++step) {
            const double now = training_step(loss, *model, optimizer, scaler, kFullPrecision, {}, {&batch, 1}).item();
            if (steps++ == 0) result.first = result.last = now;
            pulled = pulled || optimizer.state().max_abs > 0;
            latest.push_back(now);
            if (latest.size() > kMeanOver) latest.pop_front();
            const double mean = std::accumulate(latest.begin(), latest.end(), 0.0) / double(latest.size());
            if (latest.size() < kMeanOver || !(mean < result.last)) continue;
            result.last = mean;
            if (fallen(result) >= kLearned) break;
        }
        if (fallen(result) >= kLearned) break;
    }
    result.steps = steps;
    const double share = fallen(result);
    result.mark = share >= kLearned ? Mark::pass : share >= kNothing ? Mark::warn : Mark::fail;
    if (result.first == 0) {
        result.mark = Mark::warn;
        result.text = fmt::format("the loss of {} samples is 0 before anything is learned", result.samples);
        return result;
    }
    if (!pulled) {
        result.text = fmt::format(
            "the loss of {} samples is {:.4g}, and its gradient 0 in every parameter: it is constant around the first "
            "weights, and no optimizer can move them",
            result.samples, result.first);
        return result;
    }
    result.text = fmt::format("{} samples{}: the loss fell from {:.4g} to {:.4g} in {} steps of Adam", result.samples,
                              result.mark == Mark::pass   ? " are learned by heart"
                              : result.mark == Mark::warn ? " are learned in part only"
                                                          : " cannot be learned by heart, though there is a gradient",
                              result.first, result.last, steps);
    return result;
}

}  // namespace invar
