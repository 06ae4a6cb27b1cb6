#include "invar/diagnose/rerun.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "invar/diagnose/replay.h"
#include "invar/train/step.h"

namespace invar {

namespace {

constexpr std::int64_t kAfter = 25;  // by which a loss that leaps shows where it goes
constexpr double kSlower = 0.1;      // learning rates are tried in such steps,
constexpr int kTries = 3;            // so many

// The weights of a checkpoint are not those that the run began with.
Config of_checkpoint(Config config) {
    config.init_from.clear();
    return config;
}

}  // namespace

Rerun::Rerun(const RerunStart& start)
    : others_(default_generator().state()),
      setup_(start.task, start.checkpoint.empty() ? start.config : of_checkpoint(start.config)),
      plan_(start.config.trainer, setup_.steps_per_epoch),
      stability_(start.config.stability) {
    if (start.loss) setup_.loss = start.loss;
    if (start.checkpoint.empty()) return;
    const Checkpoint checkpoint = load_checkpoint(start.checkpoint);
    // As when it was saved: a scaler takes its state only where there is one.
    const auto progress = checkpoint.state.find("progress");
    const std::int64_t done = progress == checkpoint.state.end() ? 0 : progress->value("step", std::int64_t(0));
    if (const Precision then = plan_.at(std::max<std::int64_t>(done - 1, 0)); then != setup_.precision)
        setup_.set_precision(then);
    progress_ = restore_snapshot(setup_, checkpoint);
    if (const auto watch = checkpoint.state.find("watch"); watch != checkpoint.state.end())
        stability_.restore(watch->at("stability"));
}

Rerun::~Rerun() {
    default_generator().set_state(others_);
}

std::optional<Instability> Rerun::train_until(std::int64_t step, const std::function<void()>& after) {
    setup_.model->train();
    setup_.train_data->start_epoch(progress_.epoch, progress_.batch);
    const auto train = step_function(setup_);
    while (progress_.step < step) {
        const std::vector<Batch> group = setup_.next_group();
        if (group.empty()) {
            ++progress_.epoch, progress_.batch = 0;
            setup_.train_data->start_epoch(progress_.epoch);
            continue;
        }
        if (plan_.at(progress_.step) != setup_.precision) setup_.set_precision(plan_.at(progress_.step));
        ReportedStep done;
        done.before = progress_;
        done.rng = default_generator().state();
        done.scale_before = setup_.scaler->get_scale();
        done.report.loss = train(group).item();
        done.report.step = setup_.optimizer->state();
        if (setup_.scaler->enabled()) done.report.scale = setup_.scaler->state();
        ++progress_.step;
        progress_.batch = setup_.train_data->position();
        if (after) after();
        if (std::optional<Instability> found = stability_.judge(done); found && found->breaks) return found;
    }
    return std::nullopt;
}

std::string try_in_full_precision(const RerunStart& start, const FailedStep& step, Explanation& why) {
    const std::int64_t from = std::max<std::int64_t>(step.checkpoint, 0), until = step.found.at.step() + kAfter;
    if (until - from > kMostStepsAgain)
        return fmt::format("the {} steps since the last good checkpoint are too many to be tried in FP32",
                           step.found.at.step() - from);
    const auto survives = [&](double rate, bool in_full) {
        RerunStart tried = start;
        tried.config.optimizer.lr = rate;
        if (in_full) {
            tried.config.trainer.precision = kFullPrecision.name();
            tried.config.trainer.amp_level = "auto";
            tried.config.trainer.precision_overrides.clear();
        }
        Rerun rerun(tried);
        return !rerun.train_until(until) && !rerun.is_thrown_off();
    };
    using FullPrecision = Explanation::FullPrecision;
    const std::string where = step.checkpoint > 0 ? fmt::format("from step {} on", from) : "from the beginning";
    double rate = start.config.optimizer.lr;
    why.full_precision = survives(rate, true) ? FullPrecision::survives : FullPrecision::fails;
    if (why.full_precision == FullPrecision::survives) return fmt::format("{} FP32 goes well", where);
    why.remedy = {};
    why.verified = false;
    for (int i = 0; i < kTries && !why.remedy; ++i) {
        rate *= kSlower;
        if (survives(rate, false)) why.remedy = Remedy::of_learning_rate(rate), why.verified = true;
    }
    return fmt::format("{} FP32 goes the same way: no precision is to blame{}", where,
                       why.remedy ? fmt::format("; with optimizer.lr={:g} the same steps go well", rate) : "");
}

}  // namespace invar
