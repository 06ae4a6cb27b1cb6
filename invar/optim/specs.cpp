#include "invar/optim/specs.h"

namespace invar {

OptimizerSpec optimizer_spec(const OptimizerConfig& config) {
    OptimizerSpec spec;
    spec.lr = config.lr;
    spec.weight_decay = config.weight_decay;
    std::any_cast<const OptimizerMaker&>(config.info().make)(config.options(), spec);
    return spec;
}

ScheduleSpec schedule_spec(const SchedulerConfig& config, double lr, std::int64_t total_steps) {
    ScheduleSpec spec;
    spec.warmup_steps = config.warmup_steps;
    spec.total_steps = total_steps;
    std::any_cast<const SchedulerMaker&>(config.info().make)(config.options(), lr, spec);
    return spec;
}

}  // namespace invar
