#include "invar/optim/specs.h"

#include <algorithm>
#include <cmath>

#include "invar/core/error.h"

namespace invar {

OptimizerSpec optimizer_spec(const OptimizerConfig& config) {
    OptimizerSpec spec;
    spec.lr = config.lr;
    spec.weight_decay = config.weight_decay;
    std::any_cast<const OptimizerMaker&>(config.info().make)(config.options(), spec);
    return spec;
}

std::vector<ParameterGroup> parameter_groups(Module& model, const OptimizerConfig& config) {
    const OptimizerSpec spec = optimizer_spec(config);
    if (config.decay_norms_and_biases || config.weight_decay == 0) return {{model.parameters(), spec}};
    ParameterGroup decayed{{}, spec}, spared{{}, spec};
    spared.spec.weight_decay = 0;
    for (Parameter* parameter : model.parameters())
        (parameter->value.rank() <= 1 ? spared : decayed).parameters.push_back(parameter);
    if (decayed.parameters.empty()) return {spared};
    if (spared.parameters.empty()) return {decayed};
    return {decayed, spared};
}

Schedule make_schedule(const SchedulerConfig& config, double lr, std::int64_t total_steps) {
    Schedule schedule;
    schedule.spec.warmup_steps = config.warmup_steps;
    schedule.spec.total_steps = total_steps;
    std::any_cast<const SchedulerMaker&>(config.info().make)(config.options(), lr, schedule);
    return schedule;
}

std::vector<double> sampled(const Curve& curve, const ScheduleSpec& spec) {
    constexpr std::int64_t kMostPoints = std::int64_t(1) << 20;  // longer runs have steps between two of them
    const std::int64_t steps = std::max<std::int64_t>(spec.total_steps - spec.warmup_steps, 1);
    const std::int64_t points = std::min(steps, kMostPoints);
    std::vector<double> factors(std::size_t(points), 0.0);
    for (std::int64_t i = 0; i < points; ++i) {
        const std::int64_t step = points > 1 ? std::int64_t(double(i) * double(steps - 1) / double(points - 1)) : 0;
        const double factor = curve(step, steps);
        check<UsageError>(std::isfinite(factor) && factor >= 0,
                          "the schedule's factor on the rate is {} at step {} of {}; it must be 0 or more", factor,
                          step, steps);
        factors[std::size_t(i)] = factor;
    }
    return factors;
}

}  // namespace invar
