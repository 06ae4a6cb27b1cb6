#include "invar/diagnose/step_again.h"

#include <cmath>

#include "invar/core/error.h"
#include "invar/diagnose/rerun.h"
#include "invar/io/jsonl.h"
#include "invar/tasks/registry.h"
#include "invar/train/logged_names.h"
#include "invar/train/run_folder.h"
#include "invar/train/summary.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

struct LoggedLoss {
    std::int64_t step = 0;
    double loss = 0.0;
};

template <class Wanted>
std::optional<LoggedLoss> first_logged(const fs::path& run, const Wanted& wanted) {
    const fs::path log = RunFolder::metrics_of(run);
    std::error_code ignored;
    if (!fs::exists(log, ignored)) return std::nullopt;
    for (const nlohmann::json& line : read_jsonl(log)) {
        const auto loss = line.find(logged::kLoss), step = line.find(logged::kStep);
        if (loss == line.end() || step == line.end() || !step->is_number_integer()) continue;
        if (const LoggedLoss found{step->get<std::int64_t>(), number_of(*loss)}; wanted(found)) return found;
    }
    return std::nullopt;
}

// The last checkpoint up to the step that was not saved in the middle of trouble.
LatestCheckpoint checkpoint_before_trouble(const fs::path& run, std::int64_t step) {
    const CheckpointFolder checkpoints(RunFolder::checkpoints_of(run), 1);
    for (LatestCheckpoint found = checkpoints.latest(step); found; found = checkpoints.latest(found.step - 1)) {
        const nlohmann::json state = load_checkpoint(found.path).state;
        const auto watch = state.find("watch");
        if (watch == state.end() || !Stability::in_trouble(watch->at("stability"))) return found;
    }
    return {};
}

}  // namespace

std::optional<std::int64_t> first_bad_step(const fs::path& run) {
    const auto found = first_logged(run, [](const LoggedLoss& line) { return !std::isfinite(line.loss); });
    return found ? std::optional(found->step) : std::nullopt;
}

std::optional<double> logged_loss(const fs::path& run, std::int64_t step) {
    const auto found = first_logged(run, [&](const LoggedLoss& line) { return line.step == step; });
    return found ? std::optional(found->loss) : std::nullopt;
}

Explanation tried_from_before(const fs::path& run, const Config& config, const Failure& failure) {
    Explanation why;
    const nlohmann::json summary = read_summary(RunFolder::summary_of(run));
    if (summary.is_object() && summary.contains("failure_in_fp32")) {
        why.full_precision = full_precision_named(summary.value("failure_in_fp32", ""));
        if (summary.contains("failure_remedy")) why.remedy = Remedy::parse(summary.value("failure_remedy", ""));
        why.verified = bool(why.remedy);
        return why;
    }
    if (failure.ranks > 1) return why;
    const LatestCheckpoint good = checkpoint_before_trouble(run, failure.progress.step);
    FailedStep step;
    step.found.at.before = failure.progress;
    step.checkpoint = good ? good.step : -1;
    try_in_full_precision({make_task(config), {}, config, good.path}, step, why);
    return why;
}

WayToStep way_to_step(const fs::path& run, const Config& config, std::int64_t step) {
    const nlohmann::json summary = read_summary(RunFolder::summary_of(run));
    const std::int64_t steps = summary.is_object() ? summary.value("steps", std::int64_t(0)) : 0;
    check<UsageError>(step >= 1, "steps are counted from 1, so that there is no step {}", step);
    check<UsageError>(steps == 0 || step <= steps, "{} has steps 1 to {}, and no step {}", run.string(), steps, step);
    const bool recovered = summary.is_object() && summary.value("recoveries", std::int64_t(0)) > 0;
    check<UsageError>(
        !recovered,
        "{} was changed on its way by a recovery, so that step {} cannot be had as it was; train it again "
        "without trainer.on_instability=recover",
        run.string(), step);
    const CheckpointFolder checkpoints(RunFolder::checkpoints_of(run), int(config.trainer.keep_checkpoints));
    const LatestCheckpoint latest = checkpoints.latest(step - 1);
    return latest ? WayToStep{step, latest.path, latest.step} : WayToStep{step, {}, 0};
}

Failure state_before(const WayToStep& way, Config& config, const std::function<void(double)>& progress) {
    config.stability.z_score = 1e30;  // whatever the run met on its way, it went on
    Rerun again({make_task(config), {}, config, way.checkpoint});
    std::int64_t done = 0;
    const auto after = [&] {
        if (progress) progress(double(++done) / double(way.again()));
    };
    Setup& setup = again.setup();
    do again.train_until(way.step - 1, after);
    while (again.progress().step < way.step - 1);
    Failure found;
    found.progress = again.progress();
    found.group = setup.next_group();
    if (found.group.empty()) {  // the first of an epoch
        setup.train_data->start_epoch(++found.progress.epoch);
        found.progress.batch = 0;
        found.group = setup.next_group();
    }
    found.rng = default_generator().state();
    const PrecisionPlan plan(config.trainer, setup.steps_per_epoch);
    if (const Precision now = plan.at(way.step - 1); now != setup.precision) setup.set_precision(now);
    found.scale = setup.scaler->get_scale();
    config.trainer.precision = setup.precision.name();
    config.trainer.precision_schedule.clear();
    if (config.trainer.resolved_precision() != setup.precision) config.trainer.amp_level = "auto";
    found.state = take_snapshot(setup, found.progress, to_yaml(config));
    return found;
}

}  // namespace invar
