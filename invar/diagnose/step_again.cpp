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

std::optional<std::int64_t> first_bad_step(const fs::path& run) {
    const fs::path log = RunFolder::metrics_of(run);
    std::error_code ignored;
    if (!fs::exists(log, ignored)) return std::nullopt;
    for (const nlohmann::json& line : read_jsonl(log)) {
        const auto loss = line.find(logged::kLoss), step = line.find(logged::kStep);
        if (loss == line.end() || step == line.end() || !step->is_number_integer()) continue;
        if (!std::isfinite(number_of(*loss))) return step->get<std::int64_t>();
    }
    return std::nullopt;
}

WayToStep way_to_step(const fs::path& run, const Config& config, std::int64_t step) {
    const nlohmann::json summary = read_summary(RunFolder::summary_of(run));
    const std::int64_t steps = summary.is_object() ? summary.value("steps", std::int64_t(0)) : 0;
    check<UsageError>(step >= 1, "steps are counted from 1, so that there is no step {}", step);
    check<UsageError>(steps == 0 || step <= steps, "{} has steps 1 to {}, and no step {}", run.string(), steps, step);
    const bool recovered = summary.is_object() && summary.value("recoveries", std::int64_t(0)) > 0;
    check<UsageError>(!recovered,
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
