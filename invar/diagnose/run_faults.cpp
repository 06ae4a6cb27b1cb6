#include "invar/diagnose/run_faults.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "invar/core/error.h"
#include "invar/diagnose/check_parts.h"
#include "invar/ops/to.h"
#include "invar/train/review.h"

namespace invar {

namespace {

constexpr std::int64_t kSamplesRead = 20000;
constexpr double kSecondsOfReading = 2.0;
constexpr std::int64_t kSamples = 8;       // that losses are computed of
constexpr double kExact = 1e-3;            // two losses of the same samples in FP32
constexpr std::int64_t kMostFactor = 256;  // of whole numbers, that count as a factor of accumulation
constexpr double kHardlyARate = 0.01;      // of optimizer.lr
constexpr double kHardlyAStep = 1e-3;      // of the gradient, that clipping leaves

Concern concern_of(Concern::Kind kind, std::string text, std::string module = "") {
    Concern concern;
    concern.kind = kind;
    concern.module = std::move(module);
    concern.text = std::move(text);
    return concern;
}

// The loss of samples, without dropout and batch statistics.
class PlainLoss {
  public:
    PlainLoss(Setup& setup, const LossFunction& loss)
        : setup_(setup), loss_(loss), data_(setup.task->data(Split::train)), scope_(*setup.model, kFullPrecision) {}
    Batch read(std::span<const std::int64_t> samples) const {
        return data_->read(samples).map([&](const Tensor& tensor) { return ops::to(tensor, setup_.device); });
    }
    double trained(std::span<const std::int64_t> samples) const { return loss_(*setup_.model, read(samples)).item(); }
    double measured(std::span<const std::int64_t> samples) const {
        MetricSums sums(setup_.task->metrics());
        sums.add(setup_.task->measure(*setup_.model, read(samples)));
        return sums.values().front().value;
    }
    const Dataset& data() const { return *data_; }

  private:
    Setup& setup_;
    const LossFunction& loss_;
    std::shared_ptr<const Dataset> data_;
    EvaluationScope scope_;
};

bool near(double a, double b) {
    return std::fabs(a - b) <= kExact * std::fabs(b);
}

// What the mean over `parts` pieces is of the loss of all samples, or NaN where that says nothing.
double share_of_parts(const PlainLoss& loss, std::span<const std::int64_t> samples, std::size_t parts) {
    const double whole = loss.trained(samples);
    const std::size_t each = samples.size() / parts;
    double mean = 0.0;
    for (std::size_t i = 0; i < parts; ++i) mean += loss.trained(samples.subspan(i * each, each)) / double(parts);
    return whole != 0 ? mean / whole : std::nan("");
}

MaybeConcern sum_fault(const PlainLoss& loss) {
    const std::vector<std::int64_t> samples = spread_samples(loss.data(), kSamples);
    if (samples.size() < std::size_t(kSamples)) return {};
    if (!near(share_of_parts(loss, samples, 2), 0.5) || !near(share_of_parts(loss, samples, 4), 0.25)) return {};
    return concern_of(Concern::Kind::accumulation,
                      fmt::format("the loss of {} samples is twice the mean of its halves' and four times that of its "
                                  "quarters': it is a sum over samples, or divided by a fixed number; divide it by the "
                                  "number of samples in the batch",
                                  samples.size()),
                      "loss");
}

// The whole number that a ratio or its inverse is, over three sets of samples; 0 where it is none.
double factor_of_measured(const PlainLoss& loss) {
    constexpr std::int64_t kSets = 3;
    const std::vector<std::int64_t> samples = spread_samples(loss.data(), kSets * kSamples);
    if (std::int64_t(samples.size()) < kSets * kSamples) return 0;
    double first = 0.0;
    for (std::size_t set = 0; set < kSets; ++set) {
        const auto part = std::span(samples).subspan(set * kSamples, kSamples);
        const double ratio = loss.trained(part) / loss.measured(part);
        if (!std::isfinite(ratio) || ratio <= 0) return 0;
        if (set == 0) first = ratio;
        if (!near(ratio, first)) return 0;
    }
    const double times = std::round(std::max(first, 1 / first));
    if (times < 2 || times > double(kMostFactor) || !near(std::max(first, 1 / first), times)) return 0;
    return first > 1 ? times : 1 / times;
}

}  // namespace

MaybeConcern data_fault(const DataCheck& data) {
    for (const TensorSummary& t : data.tensors)
        if (t.not_finite > 0)
            return concern_of(Concern::Kind::data,
                              fmt::format("{} values of {} are NaN or infinite in the data to {}, the first in sample "
                                          "{}: mend or leave out those samples",
                                          t.not_finite, t.name, data.split == Split::train ? "train on" : "validate on",
                                          t.first_not_finite));
    if (data.split != Split::train || data.read < 2) return {};
    for (const TensorSummary& t : data.tensors) {
        if ((t.name != "y" && t.name != "x") || t.min != t.max) continue;
        const bool labels = t.name == "y";
        return concern_of(
            labels ? Concern::Kind::constant_labels : Concern::Kind::data,
            fmt::format("all {} of {} samples are {:g} ({}): there is nothing to learn; look at how they are read",
                        labels ? "labels" : "inputs", data.read, t.min, t.name));
    }
    return {};
}

MaybeConcern rate_fault(const Optimizer& optimizer, std::int64_t total_steps) {
    ScheduleSpec schedule = optimizer.schedule();
    schedule.factors = optimizer.curve().data();  // the host's own
    const std::int64_t from = optimizer.state().taken, steps = total_steps - from;
    if (steps <= 0) return {};
    double most = 0.0;
    for (std::int64_t i = from; i < total_steps; ++i) most = std::max(most, schedule.factor(i));
    double asked = 0.0;
    for (const ParameterGroup& group : optimizer.parameter_groups()) asked = std::max(asked, group.spec.lr);
    const std::string run = fmt::format("all {} steps of the run", steps);
    if (asked == 0)
        return concern_of(Concern::Kind::learning_rate,
                          fmt::format("the learning rate is 0 in {}: optimizer.lr is 0", run));
    if (most > kHardlyARate) return {};
    const std::string why =
        schedule.warmup_steps > steps
            ? fmt::format("scheduler.warmup_steps={} rises far beyond the run's end", schedule.warmup_steps)
            : "the scheduler's factor never rises";
    return concern_of(Concern::Kind::learning_rate,
                      most == 0
                          ? fmt::format("the learning rate is 0 in {}: {}", run, why)
                          : fmt::format("the learning rate is at most {:.2g} in {}, {:.2g}% of optimizer.lr={:g}: {}",
                                        most * asked, run, 100 * most, asked, why));
}

MaybeConcern loss_fault(Setup& setup, const LossFunction& loss) {
    if (!setup.task->why_loss_is_no_mean().empty()) return {};
    const PlainLoss plain(setup, loss);
    if (MaybeConcern sum = sum_fault(plain)) return sum;
    if (setup.accumulate == 1) return {};
    const double factor = factor_of_measured(plain);
    if (factor == 0) return {};
    return concern_of(
        Concern::Kind::accumulation,
        fmt::format("the loss that is trained on is {:g} {} the one that is measured of the same samples, while {} "
                    "batches make a step: each is already weighed by its share of the samples, so the loss of a batch "
                    "must be {} by no factor",
                    factor > 1 ? factor : 1 / factor, factor > 1 ? "times" : "times less than", setup.accumulate,
                    factor > 1 ? "multiplied" : "divided"),
        "loss");
}

MaybeConcern clip_fault(const ClipSpec& clip, std::span<const StepFigures> steps) {
    if (clip.kind != ClipSpec::Kind::norm || steps.size() < 2) return {};
    double least = INFINITY;
    for (const StepFigures& step : steps) least = std::min(least, step.grad_norm);
    if (!(double(clip.limit) < kHardlyAStep * least)) return {};
    Concern concern = concern_of(
        Concern::Kind::clipping,
        fmt::format(
            "clipping at {:g} leaves at most 1/{:.0f} of the gradient in all {} steps (norms from {:.3g}): such "
            "a limit is one for gradients that still carry the loss scale, and these do not",
            clip.limit, least / double(clip.limit), steps.size(), least));
    concern.remedy = Remedy::of_gradient_clip(std::max(1.0, std::exp2(std::round(std::log2(least)))));
    return concern;
}

std::vector<Concern> faults_before_steps(Setup& setup, const LossFunction& loss) {
    const RngState rng = default_generator().state();
    std::vector<Concern> concerns;
    // What a part of the task throws here it will throw again where the run needs it, and that is then told.
    const auto look = [&](const auto& fault) {
        try {
            if (MaybeConcern found = fault()) concerns.push_back(std::move(*found));
        } catch (const Error&) {
        }
    };
    for (const Split split : {Split::train, Split::test})
        look([&] { return data_fault(check_data(*setup.task, split, kSamplesRead, kSecondsOfReading)); });
    look([&] { return rate_fault(*setup.optimizer, setup.total_steps); });
    if (concerns.empty() || concerns.front().kind != Concern::Kind::data) {
        look([&] { return evaluation_fault(setup); });
        look([&] { return loss_fault(setup, loss); });
    }
    default_generator().set_state(rng);
    return concerns;
}

}  // namespace invar
