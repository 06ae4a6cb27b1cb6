#include "invar/train/recovery_policy.h"

#include <algorithm>

#include "invar/train/scale_text.h"

namespace invar {

constexpr std::string_view kInFullPrecision[] = {"unknown", "survives", "thrown_off", "fails"};

std::string_view name_of(Explanation::FullPrecision full_precision) {
    return kInFullPrecision[static_cast<std::size_t>(full_precision)];
}

Explanation::FullPrecision full_precision_named(std::string_view name) {
    const auto found = std::ranges::find(kInFullPrecision, name);
    return found == std::end(kInFullPrecision)
               ? Explanation::FullPrecision::unknown
               : static_cast<Explanation::FullPrecision>(found - std::begin(kInFullPrecision));
}

namespace fs = std::filesystem;

namespace {

// After so many steps in a row without one finite gradient nothing will get better by itself.
constexpr std::int64_t kHopeless = 100;

std::string joined(const std::string& a, const std::string& b) {
    return a.empty() || b.empty() ? a + b : a + "; " + b;
}

// Cause and command of an explanation.
std::string text_of(const Explanation& why, bool with_command) {
    return joined(why.cause, with_command && !why.command.empty() ? "more: " + why.command : "");
}

}  // namespace

std::string RunFailure::text(bool with_command) const {
    const StepReport& report = found.at.report;
    const std::int64_t skipped = report.step.skipped_in_a_row;
    std::string text = fmt::format("training stopped at step {}: {}", found.shown_at, found.reason);
    if (skipped > 1 && found.kind != Instability::Kind::skipped_streak)
        text += fmt::format(", {} steps in a row were skipped", skipped);
    if (!not_recovered.empty()) text += ", " + not_recovered;
    text += fmt::format(" (in {}, loss {:g}, gradient norm {:g}", precision, report.loss, report.step.grad_norm);
    if (scale) text += ", scale " + scale_text(*scale);
    if (const std::string more = text_of(why, with_command); !more.empty()) text += ", " + more;
    text += "). ";
    if (good_checkpoint >= 0) text += fmt::format("The last good checkpoint is of step {}. ", good_checkpoint);
    const bool slower = advice.kind == Remedy::Kind::learning_rate;
    return text + fmt::format("Try {}{} or trainer.gradient_clip_val=1", advice ? advice.str() : "",
                              slower   ? ""
                              : advice ? ", a lower optimizer.lr"
                                       : "a lower optimizer.lr");
}

bool RecoveryPolicy::hopeless(const Instability& found) const {
    return found.at.report.step.skipped_in_a_row >= kHopeless;
}

// What led to the halt is then still there when the host, up to a ring of reports ahead, gets to know.
HaltSpec RecoveryPolicy::halts() const {
    if (skips()) return {false, false, kHopeless};
    return {true, true, config_.stability.streak};
}

Recovery RecoveryPolicy::decide(const Instability& found, std::int64_t checkpoint, const fs::path& run) {
    const auto refuse = [&](const std::string& because) { give_up(found, because, checkpoint, run); };
    if (!recovers()) refuse("");
    if (std::int64_t(recoveries_.size()) >= config_.stability.max_recoveries)
        refuse(fmt::format("after {} recover{} (stability.max_recoveries)", recoveries_.size(),
                           recoveries_.size() == 1 ? "y" : "ies"));
    if (checkpoint < 0) refuse("there is no checkpoint to go back to");
    const std::optional<Precision> safer = plan_.safer_than(setup_.precision);
    if (!safer) refuse("there is no safer precision: the model, the data or the learning rate is to blame");

    const Explanation why = explain(found, checkpoint, run);
    if (why.of_any_precision()) give_up(found, "another precision would not help", checkpoint, run, why);
    Recovery recovery{found.shown_at, checkpoint, setup_.precision.name(), safer->name(),
                      joined(found.reason, text_of(why, true))};
    const auto tried = [&](const Recovery& earlier) { return earlier.remedy == why.remedy; };
    const bool usable = why.verified && config_.stability.apply_remedy && std::ranges::none_of(recoveries_, tried);
    if (usable && why.remedy.kind == Remedy::Kind::precision)
        recovery.to = Precision::parse(why.remedy.precision).name();
    else if (usable && why.remedy)
        recovery.to = recovery.from, recovery.remedy = why.remedy;
    return recovery;
}

void RecoveryPolicy::give_up(const Instability& found, const std::string& not_recovered, std::int64_t checkpoint,
                             const fs::path& run, const std::optional<Explanation>& known) {
    RunFailure failure;
    failure.found = found;
    failure.not_recovered = not_recovered;
    failure.precision = setup_.precision.name();
    if (setup_.scaler->enabled()) failure.scale = found.at.report.scale.scale;
    failure.good_checkpoint = checkpoint;
    failure.why = known ? *known : explain(found, checkpoint, run);
    failure.advice = failure.why.remedy;
    const auto safer = plan_.safer_than(setup_.precision);
    if (!failure.advice && safer && !failure.why.of_any_precision())
        failure.advice = Remedy::of_precision(safer->name());
    throw UnstableError(std::move(failure));
}

void RecoveryPolicy::apply(std::vector<Recovery> recoveries) {
    recoveries_ = std::move(recoveries);
    if (!recoveries_.empty()) plan_.hold_at(recoveries_.back().to);
    for (const Recovery& recovery : recoveries_) {
        const Remedy& remedy = recovery.remedy;
        if (remedy.kind == Remedy::Kind::init_scale) setup_.scaling.init_scale = remedy.value;
        if (remedy.kind == Remedy::Kind::precision_overrides) setup_.override_precision(remedy.overrides);
    }
}

// What is known of the failure beyond its reason: the first gradient that is not finite, and what the program's own
// diagnosis finds.
Explanation RecoveryPolicy::explain(const Instability& found, std::int64_t checkpoint, const fs::path& run) {
    std::string first;
    if (const std::int64_t place = found.at.report.step.first_nonfinite; place >= 0)
        first = "first bad gradient: " + setup_.optimizer->store().parameter_at(place).name;
    if (const int rank = found.at.report.step.bad_rank; rank >= 0)
        first = joined(first, fmt::format("on rank {}", rank));
    if (!explain_) return {first};
    const Progress& before = found.at.before;
    setup_.train_data->start_epoch(before.epoch, before.batch);
    Explanation why = explain_(setup_, {run, config_now(), setup_.next_group(), found, checkpoint});
    why.cause = joined(first, why.cause);
    return why;
}

// What would train as this run does at this step.
Config RecoveryPolicy::config_now() const {
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

}  // namespace invar
