// The part of Trainer that deals with a run that has become unstable: goes back and on in a safer precision, or gives
// up with what is known. What it decided lies in the checkpoint it goes on from, so that being killed loses nothing.
#include "invar/core/error.h"
#include "invar/train/trainer.h"

namespace invar {

namespace {

// After so many steps in a row without one finite gradient nothing will get better by itself.
constexpr std::int64_t kHopeless = 100;

nlohmann::json to_json(const Recovery& r) {
    return {{"failed_at", r.failed_at}, {"back_to", r.back_to}, {"from", r.from}, {"to", r.to}, {"reason", r.reason}};
}

Recovery recovery_from(const nlohmann::json& state) {
    return {state.at("failed_at"), state.at("back_to"), state.at("from"), state.at("to"), state.at("reason")};
}

}  // namespace

nlohmann::json Trainer::watch_state() const {
    nlohmann::json recoveries = nlohmann::json::array(), precisions = nlohmann::json::array();
    for (const Recovery& recovery : summary_.recoveries) recoveries.push_back(to_json(recovery));
    for (const PrecisionSpan& span : summary_.precisions) precisions.push_back({span.step, span.precision});
    return {{"alerts", monitor_.alerts().state()},
            {"stability", stability_.state()},
            {"recoveries", recoveries},
            {"precisions", precisions}};
}

// The whole state of a run, as save() left it, with one more recovery where there was one. The precision comes first: a
// scaler takes its state only where there is one.
void Trainer::restore(const Checkpoint& checkpoint, const std::optional<Recovery>& added) {
    const nlohmann::json& state = checkpoint.state;
    std::vector<Recovery> recoveries;
    std::vector<PrecisionSpan> precisions;
    std::int64_t step = 0;
    try {
        step = state.at("progress").at("step");
        if (state.contains("watch")) {
            for (const nlohmann::json& each : state.at("watch").at("recoveries"))
                recoveries.push_back(recovery_from(each));
            for (const nlohmann::json& each : state.at("watch").at("precisions"))
                precisions.push_back({each.at(0), each.at(1)});
            monitor_.alerts().restore(state.at("watch").at("alerts"));
            stability_.restore(state.at("watch").at("stability"));
        }
    } catch (const nlohmann::json::exception&) {
        fail("the checkpoint's state lacks what a run needs to go on; it was written by something else");
    }
    if (added) recoveries.push_back(*added);
    if (!recoveries.empty()) plan_.hold_at(recoveries.back().to);
    // As when the checkpoint was saved, just before the plan is asked again.
    if (const Precision wanted = plan_.at(std::max<std::int64_t>(step - 1, 0)); wanted != setup_.precision)
        setup_.set_precision(wanted);
    progress_ = restore_snapshot(setup_, checkpoint);
    scale_ = setup_.scaler->get_scale();
    summary_.recoveries = std::move(recoveries);
    if (!precisions.empty()) summary_.precisions = std::move(precisions);
    if (const std::string now = setup_.precision.name(); summary_.precisions.back().precision != now)
        summary_.precisions.push_back({progress_.step, now});
}

void Trainer::react(const Instability& found, Observer& observer) {
    if (config_.trainer.on_instability != "skip") {
        unstable_ = found;
        return;
    }
    if (monitor_.alerts().raise(found.kind))
        tell({{{found.step, found.epoch, found.kind, "", found.report.loss,
                fmt::format("step {}: {}", found.step, found.reason)}},
              {}},
             observer);
    if (found.report.step.skipped_in_a_row >= kHopeless) give_up(found, "");
}

void Trainer::recover(Observer& observer) {
    const Instability found = *unstable_;
    if (config_.trainer.on_instability == "stop") give_up(found, "");
    if (std::int64_t(summary_.recoveries.size()) >= config_.stability.max_recoveries)
        give_up(found, fmt::format("after {} recoveries (stability.max_recoveries)", summary_.recoveries.size()));
    const std::optional<Precision> safer = plan_.safer_than(setup_.precision);
    if (!safer) give_up(found, "there is no safer precision: the model, the data or the learning rate is to blame");
    const LatestCheckpoint good = folder_->checkpoints().latest();
    if (!good) give_up(found, "there is no checkpoint to go back to");

    Recovery recovery{found.step, good.step, setup_.precision.name(), safer->name(), found.reason};
    if (const std::string more = diagnose(found); !more.empty()) recovery.reason += "; " + more;
    restore(load_checkpoint(good.path), recovery);
    monitor_.forget();
    StepState steps = setup_.optimizer->state();
    steps.skipped_in_a_row = 0;
    setup_.optimizer->set_state(steps);
    unstable_.reset();
    summary_.all_finite = true;  // what was not is taken back

    folder_->rewind(progress_.step);
    for (const Recovery& each : summary_.recoveries)
        if (each.back_to == progress_.step) folder_->log(each, progress_.epoch);
    saved_at_ = -1;  // the same step again, with what was decided
    save(observer);
    observer.noted(fmt::format("recovered at step {}: {}; back to step {} and on in {} instead of {}",
                               recovery.failed_at, recovery.reason, recovery.back_to, recovery.to, recovery.from));
    if (validation_due()) validate(observer);
}

// What is known of the failure beyond its reason: the first gradient that is not finite, and what the program's own
// diagnosis finds.
std::string Trainer::diagnose(const Instability& found) {
    std::string text;
    for (const Parameter* parameter : setup_.optimizer->store().parameters()) {
        if (kernels_for(setup_.device).all_finite(parameter->value.grad().view())) continue;
        text = "first bad gradient: " + parameter->name;
        break;
    }
    const std::string more = diagnosis_ ? diagnosis_(setup_, folder_->path(), last_, found) : "";
    return text + (text.empty() || more.empty() ? "" : "; ") + more;
}

void Trainer::give_up(const Instability& found, const std::string& because) {
    const std::string precision = setup_.precision.name();
    const std::int64_t skipped = found.report.step.skipped_in_a_row;
    std::string text = fmt::format("training stopped at step {}: {}", found.step, found.reason);
    if (skipped > 1 && found.kind != "skipped_streak")
        text += fmt::format(", {} steps in a row had NaN or Inf gradients", skipped);
    if (!because.empty()) text += ", " + because;
    text += fmt::format(" (in {}, loss {:g}, gradient norm {:g}", precision, found.report.loss,
                        found.report.step.grad_norm);
    if (setup_.scaler->enabled()) text += fmt::format(", scale {:g}", found.report.scale.scale);
    if (const std::string more = diagnose(found); !more.empty()) text += ", " + more;
    text += "). ";
    if (const LatestCheckpoint good = folder_->checkpoints().latest())
        text += fmt::format("The last good checkpoint is of step {}. ", good.step);
    const std::optional<Precision> safer = plan_.safer_than(setup_.precision);
    text += fmt::format("Try {}a lower optimizer.lr or trainer.gradient_clip_val=1",
                        safer ? fmt::format("trainer.precision={}, ", safer->name()) : "");
    clock_.stop();
    summary_.memory = memory_stats(setup_.device);
    write_summary("unstable", text);
    fail("{}", text);
}

}  // namespace invar
