#include "invar/diagnose/rerun.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "invar/diagnose/replay.h"
#include "invar/train/step.h"

namespace invar {

namespace {

constexpr double kSlower = 0.1;    // learning rates are tried in such steps,
constexpr int kTries = 3;          // so many
constexpr std::size_t kLast = 10;  // losses by whose median it is told
constexpr double kLearnt = 0.95;   // whether they have left that of the untrained network

// The weights of a checkpoint are not those that the run began with.
Config of_checkpoint(Config config) {
    config.init_from.clear();
    return config;
}

// Without anything that is low, whatever the run was.
RerunStart in_full_precision(RerunStart start) {
    start.config.trainer.precision = kFullPrecision.name();
    start.config.trainer.amp_level = "auto";
    start.config.trainer.precision_overrides.clear();
    start.config.trainer.precision_schedule.clear();
    return start;
}

// A loss that was thrown off comes back within a window of steps, or breaks, or is seen to do neither.
Explanation::FullPrecision went(const RerunStart& start, std::int64_t until) {
    using FullPrecision = Explanation::FullPrecision;
    Rerun rerun(start);
    if (rerun.train_until(until)) return FullPrecision::fails;
    if (!rerun.is_thrown_off()) return FullPrecision::survives;
    if (rerun.train_until(until + start.config.stability.window)) return FullPrecision::fails;
    return rerun.is_thrown_off() ? FullPrecision::thrown_off : FullPrecision::survives;
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
        losses_.push_back(done.report.loss);
        if (after) after();
        if (std::optional<Instability> found = stability_.judge(done); found && found->breaks) return found;
    }
    return std::nullopt;
}

bool Rerun::has_learnt() const {
    if (losses_.size() < kLast) return false;
    std::vector<double> last(losses_.end() - std::ptrdiff_t(kLast), losses_.end());
    std::ranges::nth_element(last, last.begin() + kLast / 2);
    return last[kLast / 2] < kLearnt * stability_.untrained();
}

Remedy slower_rate(const RerunStart& start, std::int64_t until) {
    Remedy stays;
    RerunStart tried = start;
    for (int i = 0; i < kTries; ++i) {
        tried.config.optimizer.lr *= kSlower;
        Rerun rerun(tried);
        if (rerun.train_until(until) || rerun.is_thrown_off()) continue;
        const Remedy remedy = Remedy::of_learning_rate(tried.config.optimizer.lr);
        if (rerun.has_learnt()) return remedy;
        if (!stays) stays = remedy;
    }
    return stays;
}

std::string try_in_full_precision(const RerunStart& start, const FailedStep& step, Explanation& why) {
    const std::int64_t from = std::max<std::int64_t>(step.checkpoint, 0), until = step.found.at.step() + kStepsAfter;
    if (until - from > kMostStepsAgain)
        return fmt::format("the {} steps since the last good checkpoint are too many to be tried in FP32",
                           step.found.at.step() - from);
    using FullPrecision = Explanation::FullPrecision;
    const std::string where = step.checkpoint > 0 ? fmt::format("from step {} on", from) : "from the beginning";
    why.full_precision = went(in_full_precision(start), until);
    if (why.full_precision == FullPrecision::survives) return fmt::format("{} FP32 goes well", where);
    why.remedy = slower_rate(start, until);
    why.verified = bool(why.remedy);
    return fmt::format("{} {}{}", where,
                       why.full_precision == FullPrecision::fails
                           ? "FP32 goes the same way: no precision is to blame"
                           : "FP32 is thrown off too, and stays finite: the precision is not the first to blame",
                       why.remedy ? fmt::format("; with {} the same steps go well", why.remedy.str()) : "");
}

}  // namespace invar
