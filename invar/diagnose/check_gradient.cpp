// The gradient of the whole model against differences of its loss.
#include <algorithm>
#include <cmath>
#include <limits>

#include "invar/core/error.h"
#include "invar/diagnose/check_double.h"
#include "invar/diagnose/check_parts.h"

namespace invar {

namespace {

constexpr std::int64_t kSamples = 4;
constexpr int kDirections = 4;
// As a share of the weights. Where the loss has kinks between two points, as with ReLU, another step may have none.
constexpr double kSteps[] = {1e-6, 1e-7, 1e-5};

// Random, in each parameter as large as its weights are.
ParameterValues random_direction(const ParameterValues& weights, std::uint64_t seed) {
    ParameterValues direction = weights;
    for (std::size_t p = 0; p < weights.size(); ++p) {
        double squares = 0.0;
        for (const double w : weights[p]) squares += w * w;
        const double size = squares > 0 ? std::sqrt(squares / double(weights[p].size())) : 0.1;
        for (std::size_t i = 0; i < weights[p].size(); ++i)
            direction[p][i] = size * (2.0 * double(to_unit(philox(seed, i, p).v[0])) - 1.0);
    }
    return direction;
}

// The derivative of the loss along a direction as backward has it, and the sizes of the parameters' parts in it.
struct Derivative {
    double value = 0.0, magnitude = 0.0;
};
Derivative along(const ParameterValues& gradients, const ParameterValues& direction) {
    Derivative d;
    for (std::size_t p = 0; p < gradients.size(); ++p) {
        double part = 0.0;
        const std::size_t size = std::min(gradients[p].size(), direction[p].size());  // either may be left out
        for (std::size_t i = 0; i < size; ++i) part += gradients[p][i] * direction[p][i];
        d.value += part;
        d.magnitude += std::fabs(part);
    }
    return d;
}

class Differences {
  public:
    Differences(DoubleModel& model, const Batch& batch)
        : model_(model), batch_(batch), weights_(model.weights()), loss_(model.loss({&batch, 1})) {}
    ~Differences() { model_.set_weights(weights_); }
    Differences(const Differences&) = delete;
    Differences& operator=(const Differences&) = delete;

    const ParameterValues& weights() const { return weights_; }
    bool repeats() { return model_.loss({&batch_, 1}) == loss_; }

    struct Slope {
        double value = 0.0, tolerance = 0.0;
    };
    // The slope nearest to what is expected, over the steps there are, with the error it may have by itself: what half
    // the step changes, and the rounding of two losses that are divided by it.
    Slope nearest(const ParameterValues& direction, const Derivative& expected) {
        Slope best{0.0, -std::numeric_limits<double>::infinity()};
        for (const double step : kSteps) {
            const double whole = slope(direction, step), half = slope(direction, step / 2);
            constexpr double kRoundings = 64;
            const double tolerance = 10 * std::fabs(whole - half) +
                                     kRoundings * std::numeric_limits<double>::epsilon() * std::fabs(loss_) / step +
                                     1e-5 * expected.magnitude;
            const auto excess = [&](const Slope& s) { return std::fabs(s.value - expected.value) - s.tolerance; };
            const Slope found{half, tolerance};
            if (best.tolerance < 0 || excess(found) < excess(best)) best = found;
            if (excess(best) <= 0) break;
        }
        return best;
    }

  private:
    double slope(const ParameterValues& direction, double step) {
        const auto loss_at = [&](double distance) {
            ParameterValues moved = weights_;
            for (std::size_t p = 0; p < moved.size(); ++p)
                for (std::size_t i = 0; i < direction[p].size(); ++i) moved[p][i] += distance * direction[p][i];
            model_.set_weights(moved);
            return model_.loss({&batch_, 1});
        };
        return (loss_at(step) - loss_at(-step)) / (2 * step);
    }

    DoubleModel& model_;
    const Batch& batch_;
    ParameterValues weights_;
    double loss_;
};

// Goes through the parameters one by one for the one whose gradient is wrong most.
void find_culprit(GradientCheck& result, DoubleModel& model, Differences& differences, const ParameterValues& gradients,
                  const ParameterValues& direction, const TimeLimit& limit) {
    double worst = 0.0;
    bool none = false;
    for (std::size_t p = 0; p < gradients.size() && !limit.over(); ++p) {
        ParameterValues only(direction.size());
        only[p] = direction[p];
        const Derivative expected = along(gradients, only);
        const Differences::Slope slope = differences.nearest(only, expected);
        const double error = std::fabs(slope.value - expected.value);
        if (error <= slope.tolerance || error <= worst) continue;
        worst = error;
        none = gradients[p].empty();
        result.parameter = model.learning()[p]->name;
        result.backward = expected.value;
        result.slope = slope.value;
    }
    if (result.parameter.empty()) {
        result.text = fmt::format("backward gives {:.6g} along a random direction, and differences of the loss {:.6g}",
                                  result.backward, result.slope);
    } else if (none) {
        result.text = fmt::format(
            "no gradient reaches {}, though the loss depends on it (its slope is {:.4g}): is it cut off by detach() or "
            "an op without a backward?",
            result.parameter, result.slope);
    } else {
        result.text = fmt::format(
            "the gradient of {} is wrong: along a random direction backward gives {:.6g}, and "
            "differences of the loss {:.6g}{}",
            result.parameter, result.backward, result.slope,
            result.slope == 0 ? "" : fmt::format(" (ratio {:.4g})", result.backward / result.slope));
    }
}

}  // namespace

GradientCheck check_gradient(const Task& task, const Config& config, double seconds) {
    const TimeLimit limit(seconds);
    GradientCheck result;
    DoubleModel model(task, config);
    if (model.learning().empty()) {
        result.mark = Mark::fail;
        result.text = "no parameter learns: the model has none, or all of them are frozen";
        return result;
    }
    ParameterValues gradients;
    Batch batch;
    try {
        batch = model.read(Split::train, spread_samples(*task.data(Split::train), kSamples));
        model.loss({&batch, 1});
    } catch (const Error& error) {
        result.mark = Mark::warn;
        result.text = fmt::format("not checked: the model does not run in f64: {}", error.what());
        return result;
    }
    Differences differences(model, batch);
    if (!differences.repeats()) {
        result.mark = Mark::warn;
        result.text = "not checked: the loss of the same samples with the same random numbers is another each time";
        return result;
    }
    gradients = model.gradients({&batch, 1});
    bool nonzero = false;
    for (int n = 0; n < kDirections && (n == 0 || !limit.over()); ++n) {
        const ParameterValues direction = random_direction(differences.weights(), std::uint64_t(n) + 1);
        const Derivative expected = along(gradients, direction);
        const Differences::Slope slope = differences.nearest(direction, expected);
        const double error = std::fabs(slope.value - expected.value);
        ++result.directions;
        nonzero = nonzero || expected.magnitude > 0 || slope.value != 0;
        const double share = expected.magnitude > 0 ? error / expected.magnitude : error > slope.tolerance ? 1.0 : 0.0;
        result.difference = std::max(result.difference, share);
        result.backward = expected.value;
        result.slope = slope.value;
        if (error <= slope.tolerance) continue;
        result.mark = Mark::fail;
        find_culprit(result, model, differences, gradients, direction, TimeLimit(seconds));
        return result;
    }
    std::vector<std::string> unused;
    for (std::size_t p = 0; p < gradients.size(); ++p)
        if (gradients[p].empty()) unused.push_back(model.learning()[p]->name);
    result.text = fmt::format(
        "backward and differences of the loss in f64 agree along {} random direction{} to {:.2g} of the gradient",
        result.directions, result.directions == 1 ? "" : "s", result.difference);
    if (!nonzero && unused.size() < gradients.size()) {
        result.mark = Mark::warn;
        result.text = "the gradient is zero in every parameter: the loss of these samples is constant";
        return result;
    }
    if (unused.empty()) return result;
    result.mark = unused.size() == gradients.size() ? Mark::fail : Mark::warn;
    result.text = unused.size() == gradients.size()
                      ? "the loss does not depend on any parameter"
                      : fmt::format("the loss does not depend on {} of {} parameters, such as {}", unused.size(),
                                    gradients.size(), unused.front());
    return result;
}

}  // namespace invar
