#include "invar/validate/candidates.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "invar/core/error.h"
#include "invar/core/printable.h"
#include "invar/core/suggest.h"
#include "invar/kernels/devices.h"
#include "invar/train/low_precision.h"
#include "invar/train/precision_plan.h"

namespace invar {

void check_options(ValidateOptions& options) {
    check<UsageError>(options.seeds >= 1, "--seeds {}: must be at least 1", options.seeds);
    check_limits(options.limits);
    const std::int64_t validated = options.base.trainer.limit_val_batches.among(1);
    check<UsageError>(validated > 0, "trainer.limit_val_batches leaves nothing to validate on; leave it out");
    const Device device = resolve_device(options.base.trainer.device);
    require_precisions(options.base.trainer, device);
    if (options.candidates.empty()) options.candidates = default_candidates(options.base);
    std::vector<std::string> names;
    for (const std::string& candidate : options.candidates) {
        const bool configured = candidate == kConfigured;
        check<UsageError>(!configured || is_of_its_own(options.base),
                          "--candidates {}: the configuration has neither a trainer.precision_schedule nor modules in "
                          "lower precisions than the FP32 around them; name its precision",
                          candidate);
        candidate_config(options.base, candidate).trainer.resolved_precision().require(device);
        const std::string name = configured ? candidate : Precision::parse(candidate).name();
        const Precision wanted = configured ? Precision() : Precision::parse(candidate);
        check<UsageError>(configured || wanted == Precision::parse(name),
                          "--candidates {}: names a level too; use --candidates {} trainer.amp_level={}", candidate,
                          name, name_of(wanted.level));
        check<UsageError>(name != kBaseline, "--candidates {}: FP32 is the baseline itself; name another precision",
                          candidate);
        const std::string full = why_fp32(options.task, candidate_config(options.base, candidate));
        check<UsageError>(full.empty(), "--candidates {}: {}, so that FP32 would be held against itself", candidate,
                          full);
        const std::string other = configured ? "" : changed_by_level(options.base.trainer, candidate);
        check<UsageError>(other.empty(), "--candidates {}: {}; leave out one of the two", candidate, other);
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
    options.candidates = std::move(names);
}

// By the task's own word: its metrics are what a run logs of a validation.
void choose_metric(Validation& validation) {
    const std::vector<Metric> metrics = validation.options.task->metrics();
    check<UsageError>(!metrics.empty(), "the task has no metrics; the first must be 'loss'");
    std::vector<std::string> names;
    for (const Metric& metric : metrics) names.push_back("val_" + metric.name);
    std::string& wanted = validation.options.metric;
    if (wanted.empty()) wanted = names[names.size() > 1 ? 1 : 0];
    const auto found = std::ranges::find(names, find_metric(wanted, names).value_or(""));
    check<UsageError>(found != names.end(), "--metric {}: there is no such metric{}; there {} {}", printable(wanted),
                      did_you_mean(wanted, names), names.size() == 1 ? "is" : "are", fmt::join(names, ", "));
    const Metric& metric = metrics[std::size_t(found - names.begin())];
    validation.metric = wanted = *found;
    validation.direction = metric.better;
    validation.percent = metric.print == Metric::Print::percent;
    check_unit(validation.options.limits, validation.metric, validation.percent);
}

std::string why_fp32(const std::shared_ptr<const Task>& task, const Config& config) {
    const TrainerConfig& trainer = config.trainer;
    if (!computes_low(*task, config)) {
        if (trainer.amp_level == "O0") return "with trainer.amp_level=O0 nothing is cast";
        if (trainer.precision_overrides.empty()) return "trainer.precision_schedule names no lower precision";
        return "trainer.precision_overrides keeps every module with weights in FP32";
    }
    if (trainer.precision_schedule.empty()) return "";
    const Setup setup(task, config);
    const PrecisionPlan plan(trainer, setup.steps_per_epoch);
    for (const std::int64_t step : plan.changes())
        if (step < setup.total_steps && computes_low(*setup.model, plan.at(step))) return "";
    return fmt::format("trainer.precision_schedule reaches no lower precision in {} steps", setup.total_steps);
}

bool is_of_its_own(const Config& base) {
    const TrainerConfig& trainer = base.trainer;
    return !trainer.precision_schedule.empty() ||
           (!trainer.precision_overrides.empty() && trainer.resolved_precision() == Precision::parse(kBaseline));
}

std::vector<std::string> default_candidates(const Config& base) {
    if (is_of_its_own(base)) return {kConfigured};
    const Precision own = base.trainer.resolved_precision();
    if (own.name() != kBaseline) return {own.name()};
    if (base.trainer.amp_level == "O3") return {"16-true", "bf16-true"};  // what O3 makes of the mixed ones
    return {"16-mixed", "bf16-mixed"};
}

Config candidate_config(const Config& base, const std::string& candidate) {
    return candidate == kConfigured ? base : in_precision(base, candidate);
}

}  // namespace invar
