// The part of Trainer that deals with a run that has become unstable: goes back and on in a safer precision, or gives
// up with what is known. What it decided lies in the checkpoint it goes on from, so that being killed loses nothing.
#include <algorithm>

#include "invar/core/error.h"
#include "invar/train/trainer.h"

namespace invar {

namespace {

// After so many steps in a row without one finite gradient nothing will get better by itself.
constexpr std::int64_t kHopeless = 100;

// What a remedy may set, beside the precision of modules.
constexpr const char* kPrecision = "trainer.precision=";
constexpr const char* kInitScale = "scaler.init_scale=";

nlohmann::json to_json(const Recovery& r) {
    return {{"failed_at", r.failed_at}, {"back_to", r.back_to}, {"from", r.from}, {"to", r.to},
            {"reason", r.reason},       {"setting", r.setting}};
}

Recovery recovery_from(const nlohmann::json& state) {
    return {state.at("failed_at"), state.at("back_to"), state.at("from"),
            state.at("to"),        state.at("reason"),  state.value("setting", "")};
}

}  // namespace

nlohmann::json Trainer::watch_state() const {
    nlohmann::json recoveries = nlohmann::json::array(), precisions = nlohmann::json::array();
    for (const Recovery& recovery : summary_.recoveries) recoveries.push_back(to_json(recovery));
    for (const PrecisionSpan& span : summary_.precisions) precisions.push_back({span.step, span.precision});
    const RunSummary& s = summary_;
    nlohmann::json validation = nlohmann::json::object();
    for (const Measured& measured : s.validation) validation[measured.metric.name] = measured.value;
    return {{"monitor", monitor_.state()},
            {"stability", stability_.state()},
            {"recoveries", recoveries},
            {"precisions", precisions},
            {"logged_steps", logged_steps_},
            {"summary",
             {{"alerts", s.alerts},
              {"train_loss", s.train_loss},
              {"max_grad_norm", s.max_grad_norm},
              {"losses_finite", s.losses_finite},
              {"validation", validation}}}};
}

void Trainer::restore_watch(const nlohmann::json& watch) {
    monitor_.restore(watch.at("monitor"));
    stability_.restore(watch.at("stability"));
    logged_steps_ =
        watch.value("logged_steps", std::int64_t(0));  // fewer than there are, where nobody had counted them
    const nlohmann::json& s = watch.at("summary");
    summary_.alerts = s.at("alerts");
    summary_.train_loss = s.at("train_loss");
    summary_.max_grad_norm = s.at("max_grad_norm");
    summary_.losses_finite = s.at("losses_finite");
    summary_.validation.clear();
    const nlohmann::json& validation = s.at("validation");
    for (const Metric& metric : setup_.task->metrics())
        if (const auto found = validation.find(metric.name); found != validation.end())
            summary_.validation.push_back({metric, found->get<double>()});
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
            restore_watch(state.at("watch"));
        }
    } catch (const nlohmann::json::exception&) {
        fail("the checkpoint's state lacks what a run needs to go on; it was written by something else");
    }
    if (added) recoveries.push_back(*added);
    if (!recoveries.empty()) plan_.hold_at(recoveries.back().to);
    for (const Recovery& recovery : recoveries) apply(recovery.setting);
    // As when the checkpoint was saved, just before the plan is asked again.
    if (const Precision wanted = plan_.at(std::max<std::int64_t>(step - 1, 0)); wanted != setup_.precision)
        setup_.set_precision(wanted);
    progress_ = restore_snapshot(setup_, checkpoint);
    if (added && added->setting.starts_with(kInitScale)) setup_.scaler->set_scale(setup_.scaling.init_scale);
    scale_ = setup_.scaler->get_scale();
    summary_.recoveries = std::move(recoveries);
    if (!precisions.empty()) summary_.precisions = std::move(precisions);
    if (const std::string now = computed_precision(); summary_.precisions.back().precision != now) {
        if (summary_.precisions.back().step == progress_.step)
            summary_.precisions.pop_back();  // no step was taken in it
        summary_.precisions.push_back({progress_.step, now});
    }
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
        give_up(found, fmt::format("after {} recover{} (stability.max_recoveries)", summary_.recoveries.size(),
                                   summary_.recoveries.size() == 1 ? "y" : "ies"));
    const LatestCheckpoint good = folder_->checkpoints().latest();
    if (!good) give_up(found, "there is no checkpoint to go back to");
    const std::optional<Precision> safer = plan_.safer_than(setup_.precision);
    if (!safer) give_up(found, "there is no safer precision: the model, the data or the learning rate is to blame");

    const Explanation why = diagnose(found);
    Recovery recovery{found.step, good.step, setup_.precision.name(), safer->name(), found.reason, ""};
    if (!why.text.empty()) recovery.reason += "; " + why.text;
    const auto tried = [&](const Recovery& earlier) { return earlier.setting == why.remedy; };
    if (config_.stability.apply_remedy && !why.remedy.empty() && std::ranges::none_of(summary_.recoveries, tried)) {
        const Config wanted = load_config("", {why.remedy}, {});
        if (why.remedy.starts_with(kPrecision))
            recovery.to = wanted.trainer.resolved_precision().name();
        else
            recovery.to = recovery.from, recovery.setting = why.remedy;
    }
    restore(load_checkpoint(good.path), recovery);
    monitor_.forget();
    StepState steps = setup_.optimizer->state();
    steps.skipped_in_a_row = 0;
    setup_.optimizer->set_state(steps);
    unstable_.reset();
    reset_peak_memory(setup_.device);

    folder_->rewind(progress_.step);
    for (const Recovery& each : summary_.recoveries)
        if (each.back_to == progress_.step) folder_->log(each, progress_.epoch);
    saved_at_ = -1;  // the same step again, with what was decided
    save(observer);
    observer.noted(fmt::format("recovered at step {}: {}; back to step {} and on in {}{}", recovery.failed_at,
                               recovery.reason, recovery.back_to, recovery.way_on(),
                               recovery.to == recovery.from ? "" : " instead of " + recovery.from));
    if (validation_due()) validate(observer);
}

// A setting that some recovery has decided on.
void Trainer::apply(const std::string& setting) {
    if (setting.empty()) return;
    const Config wanted = load_config("", {setting}, {});
    if (setting.starts_with(kInitScale)) setup_.scaling.init_scale = wanted.scaler.init_scale;
    if (!wanted.trainer.precision_overrides.empty()) setup_.override_precision(wanted.trainer.precision_overrides);
}

// What would train as this run does at this step.
Config Trainer::config_now() const {
    Config now = config_;
    now.trainer.precision = setup_.precision.name();
    now.trainer.precision_schedule.clear();
    if (now.trainer.resolved_precision() != setup_.precision) now.trainer.amp_level = "auto";
    now.scaler.init_scale = setup_.scaling.init_scale;
    for (const auto& [path, module] : setup_.model->modules())
        if (module->precision() && !path.empty())
            now.trainer.precision_overrides.emplace_back(path, module->precision()->name());
    return now;
}

// Where the device stops by itself, so that what led there is still there when the host, up to a ring of reports ahead,
// gets to know.
HaltSpec Trainer::halts() const {
    if (config_.trainer.on_instability == "skip") return {false, false, kHopeless};
    return {true, true, config_.stability.streak};
}

// What is known of the failure beyond its reason: the first gradient that is not finite, and what the program's own
// diagnosis finds.
Trainer::Explanation Trainer::diagnose(const Instability& found) {
    Explanation why;
    if (const std::int64_t place = found.report.step.first_nonfinite; place >= 0)
        why.text = "first bad gradient: " + setup_.optimizer->store().parameter_at(place).name;
    if (!diagnosis_) return why;
    const Progress& before = heard_.before;
    setup_.train_data->start_epoch(before.epoch, before.batch);
    Explanation more = diagnosis_(
        setup_, {folder_->path(), config_now(), setup_.next_group(), before, heard_.rng, heard_scale_, found});
    if (!why.text.empty() && !more.text.empty()) why.text += "; ";
    more.text = why.text + more.text;
    return more;
}

void Trainer::give_up(const Instability& found, const std::string& because) {
    const std::string precision = setup_.precision.name();
    const std::int64_t skipped = found.report.step.skipped_in_a_row;
    std::string text = fmt::format("training stopped at step {}: {}", found.step, found.reason);
    if (skipped > 1 && found.kind != "skipped_streak") text += fmt::format(", {} steps in a row were skipped", skipped);
    if (!because.empty()) text += ", " + because;
    text += fmt::format(" (in {}, loss {:g}, gradient norm {:g}", precision, found.report.loss,
                        found.report.step.grad_norm);
    if (setup_.scaler->enabled()) text += fmt::format(", scale {:g}", found.report.scale.scale);
    const Explanation why = diagnose(found);
    if (!why.text.empty()) text += ", " + why.text;
    text += "). ";
    if (const LatestCheckpoint good = folder_->checkpoints().latest())
        text += fmt::format("The last good checkpoint is of step {}. ", good.step);
    const std::optional<Precision> safer = plan_.safer_than(setup_.precision);
    text += fmt::format("Try {}", !why.advice.empty() ? why.advice + ", " : "");
    if (why.advice.empty() && safer) text += fmt::format("trainer.precision={}, ", safer->name());
    text += "a lower optimizer.lr or trainer.gradient_clip_val=1";
    ++summary_.alerts;
    folder_->log(Alert{found.step, found.epoch, found.kind, "", found.report.loss, text});
    stop_clock();
    measure_memory();
    write_summary("unstable", text);
    fail("{}", text);
}

}  // namespace invar
