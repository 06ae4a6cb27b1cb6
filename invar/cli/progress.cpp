#include "invar/cli/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "invar/cli/signals.h"

namespace invar::cli {

void ProgressLine::started(const Setup& setup, const RunFolder&, const Progress& progress) {
    scaled_ = setup.scaler->enabled();
    unit_ = setup.task->speed_unit();
    samples_per_step_ = setup.train_data->options().batch_size * setup.accumulate;
    steps_per_epoch_ = setup.steps_per_epoch;
    first_epoch_at_ = setup.first_epoch_at;
    last_.reset();
    logged_rate_ = {};
    ticks_ = 0;
    step_seconds_ = 0.0;
    before_ = Clock::now();
    // A signal that came while the data were read.
    if (StopOnSignal::requested()) Trainer::request_stop(StopOnSignal::name(), StopOnSignal::exit_code() - 128);
    draw(progress.step, setup.total_steps);
}

void ProgressLine::step_launched(const Progress& progress, std::int64_t total_steps) {
    const Clock::time_point now = Clock::now();
    const double taken = std::chrono::duration<double>(now - before_).count();
    before_ = now;
    ++ticks_;
    const double weight = std::max(0.02, 1.0 / double(std::max<std::int64_t>(ticks_ - 1, 1)));
    step_seconds_ += weight * (taken - step_seconds_);
    if (StopOnSignal::requested() && !told_stop_) {
        told_stop_ = true;
        noted(fmt::format("{}: saving a checkpoint, then stopping (a second Ctrl-C or SIGTERM quits at once)",
                          StopOnSignal::name()));
    }
    if (line_.due()) draw(progress.step, total_steps);
}

void ProgressLine::draw(std::int64_t step, std::int64_t total) {
    if (quiet_ || !on_terminal() || total <= 0) return;
    const double share = double(step) / double(total);
    std::vector<std::string> parts;
    std::string head = label_.empty() ? "" : label_ + "  ";
    head += fmt::format("{} {}/{} {:3.0f}%", bar(share, terminal_width() >= 100 ? 24 : 12), step, total,
                        std::floor(100 * share));
    parts.push_back(std::move(head));
    parts.push_back("ETA " + (ticks_ > 0 ? clock_time(step_seconds_ * double(total - step)) : std::string("-:--")));
    if (last_) parts.push_back(fmt::format("loss {}", loss_text(last_->loss)));
    if (ticks_ > 1) {
        Rate now{unit_.name, unit_.per_sample * double(samples_per_step_) / step_seconds_, 0.0};
        if (logged_rate_.per_second > 0) now.mfu = logged_rate_.mfu * now.per_second / logged_rate_.per_second;
        parts.push_back(rate_text(now));
    }
    if (last_) {
        if (scaled_) parts.push_back(fmt::format("scale {:g}", last_->scale.scale));
        parts.push_back(fmt::format("grad norm {:.3g}", last_->step.grad_norm));
        if (last_->step.skipped > 0)
            parts.push_back(paint(Colour::yellow, fmt::format("skipped {}", last_->step.skipped)));
    }
    line_.show(parts);
}

void ProgressLine::lasting(std::string_view line) {
    if (quiet_) return;
    line_.above(label_.empty() ? std::string(line) : fmt::format("{}  {}", label_, line));
    if (output_error() == 0 || told_lost_) return;
    told_lost_ = true;
    warn(fmt::format("warning: standard output is lost ({}); the run goes on, its metrics.jsonl keeps what it logs",
                     output_error_text()));
}

void ProgressLine::step_logged(const StepMetrics& m) {
    logged_rate_ = m.rate;
    if (on_terminal()) return;
    std::string line = fmt::format("step {}/{}  epoch {}  loss {}  lr {:.4g}  grad norm {:.4g}", m.step, m.total_steps,
                                   m.epoch + 1, loss_text(m.loss), m.lr, m.grad_norm);
    if (scaled_) line += fmt::format("  scale {:g}", m.scale);
    if (m.skipped > 0) line += fmt::format("  skipped {}", m.skipped);
    lasting(line + "  " + rate_text(m.rate));
}

void ProgressLine::validated(const ValidationMetrics& m) {
    const std::int64_t epoch =
        steps_per_epoch_ > 0 ? (m.step - first_epoch_at_ + steps_per_epoch_ - 1) / steps_per_epoch_ : m.epoch;
    std::string line = fmt::format("{}  step {}", paint(Colour::cyan, fmt::format("epoch {}", epoch)), m.step);
    for (const Measured& measured : m.metrics)
        line += fmt::format("  val {} {}", measured.metric.name, measured.metric.str(measured.value));
    lasting(line);
    before_ = Clock::now();  // validation is not a slow step
}

void ProgressLine::noted(const std::string& note) {
    lasting(paint(Colour::yellow, "note") + ": " + note);
}

void ProgressLine::alerted(const Alert& alert) {
    lasting(paint(Colour::yellow, "alert") + ": " + alert.message);
}

}  // namespace invar::cli
