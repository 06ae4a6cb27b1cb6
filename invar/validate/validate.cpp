#include "invar/validate/validate.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "invar/core/error.h"
#include "invar/core/printable.h"
#include "invar/core/suggest.h"
#include "invar/diagnose/record_failure.h"
#include "invar/kernels/devices.h"
#include "invar/tasks/registry.h"
#include "invar/train/low_precision.h"
#include "invar/train/precision_plan.h"
#include "invar/train/step.h"
#include "invar/validate/learned.h"
#include "invar/validate/run_files.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

constexpr const char* kBaseline = "32-true";
constexpr std::int64_t kLogged = 10;  // steps between the points of a curve, at most

std::int64_t logged_every(const TrainerConfig& trainer) {
    return trainer.log_every_n_steps == 0 ? kLogged : std::min(trainer.log_every_n_steps, kLogged);
}

// All mistakes that can be seen before the first run are found before the first run.
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
}

fs::path make_validation_folder(const Config& base) {
    make_folders(base.output_dir);
    const fs::path wanted = fs::path(base.output_dir) / base.exp_name;
    fs::path path = wanted;
    std::error_code error;
    // create_directory tells a new folder from an old one, so two validations at once do not share one.
    for (int i = 2; !fs::create_directory(path, error); ++i) {
        check<IoError>(!error || fs::exists(path), "cannot make the folder {}: {}", path.string(), error.message());
        path = wanted.string() + "_" + std::to_string(i);
    }
    return path;
}

Config config_for(const Validation& validation, const std::string& precision, int seed) {
    const bool baseline = precision == kBaseline;
    Config config = candidate_config(validation.options.base, precision);
    // All arms and seeds are judged on the same data, and whoever looks at such a run again must find them.
    if (seed > 0 && config.data.seed < 0) config.data.seed = config.seed;
    config.seed += seed;
    config.trainer.log_every_n_steps = logged_every(config.trainer);
    config.output_dir = validation.folder.string();
    config.exp_name = baseline ? "fp32" : precision;
    if (validation.options.seeds > 1) config.exp_name += fmt::format("_seed{}", config.seed);
    return config;
}

// The run as anyone would read it from its folder, so that validate and compare cannot disagree.
RunRecord record_in(const fs::path& folder, const Validation& validation, const std::optional<Start>& start) {
    const FoundRun run = read_run(folder);
    const std::string& metric = validation.metric;
    check(run.log.series.contains(metric), "{} holds no {}, though its task measures it", run.log.source, metric);
    RunRecord record = record_of(run, metric, validation.direction, Take::last);
    if (start) record.not_learned = why_not_learned(run.log, *start);
    return record;
}

// Only the baseline is asked: a candidate that learned nothing differs from one that did.
std::optional<Start> start_of(Setup& setup, const Arm& arm) {
    if (arm.name != kBaseline) return std::nullopt;
    const Evaluation before = evaluate(*setup.task, *setup.model, *setup.test_data, setup.precision);
    return Start{before.metrics, before.samples};
}

void run_once(Validation& validation, Arm& arm, int seed, Observer& observer) {
    RunSummary summary;
    std::optional<Start> start;
    try {
        Trainer trainer(validation.options.task, config_for(validation, arm.name, seed));
        trainer.set_diagnosis(explain);
        const Device device = trainer.setup().device;
        if (!device.is_cpu())
            validation.device = fmt::format("{}: {}", device.str(), kernels_for(device).description());
        start = start_of(trainer.setup(), arm);
        summary = trainer.fit(observer);
        validation.threads = threads();
    } catch (const UsageError&) {
        throw;
    } catch (const IoError&) {
        throw;
    } catch (const UnstableError& error) {
        arm.failure = error.what();
        arm.names_command = !error.failure().why.command.empty();
        return;
    } catch (const Error& error) {
        arm.failure = error.what();
        return;
    }
    check(summary.status == "finished", "validation stopped in {} at step {}; what there is lies in {}", arm.name,
          summary.steps, validation.folder.string());
    if (!summary.stopped_early.empty())
        validation.warnings.push_back(fmt::format("{} was stopped early at step {}: {}",
                                                  summary.folder.filename().string(), summary.steps,
                                                  summary.stopped_early));
    const RunRecord& run = arm.runs.emplace_back(record_in(summary.folder, validation, start));
    if (!run.not_finite.empty()) arm.failure = fmt::format("seed {}: {}", *run.seed, run.not_finite);
}

}  // namespace

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

Validation validate(const ValidateOptions& options, Observer& observer) {
    Validation validation;
    validation.options = options;
    if (!validation.options.task) validation.options.task = make_task(options.base);
    choose_metric(validation);
    check_options(validation.options);
    validation.limits = options.limits;
    validation.folder = make_validation_folder(options.base);
    validation.baseline.name = kBaseline;
    for (const std::string& name : validation.options.candidates) validation.candidates.emplace_back().name = name;

    // Seed by seed, so that a machine that slows down or warms up in the meantime does so for all precisions alike.
    Arm& baseline = validation.baseline;
    bool learned = true;
    for (int seed = 0; seed < options.seeds && !baseline.failed(); ++seed) {
        run_once(validation, baseline, seed, observer);
        if (!baseline.failed() && baseline.runs.back().metric == 0)
            baseline.failure = fmt::format("its {} is 0; train longer, or compare another --metric", validation.metric);
        learned = learned && !baseline.failed() && baseline.runs.back().not_learned.empty();
        for (Arm& arm : validation.candidates)
            if (learned && !arm.failed()) run_once(validation, arm, seed, observer);
    }
    decide(validation);
    return validation;
}

}  // namespace invar
