#include "invar/cli/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "invar/cli/signals.h"
#include "invar/train/logged_names.h"
#include "invar/train/scale_text.h"

namespace invar::cli {

namespace {

constexpr std::int64_t kUnasked = 3;  // lines of skipped steps through a pipe, beside those of the interval

}  // namespace

void ProgressLine::started(const Setup& setup, const RunFolder&, const Progress& progress) {
    setup_ = &setup;
    scaled_ = setup.scaler->enabled();
    unit_ = setup.task->speed_unit();
    samples_per_step_ = setup.train_data->options().batch_size * setup.accumulate;
    const std::int64_t steps = setup.total_steps - setup.first_epoch_at, an_epoch = setup.steps_per_epoch;
    epochs_ = an_epoch > 0 ? (steps + an_epoch - 1) / an_epoch : 0;
    last_.reset();
    last_step_ = amp_told_at_ = progress.step;
    logged_rate_ = {};
    ticks_ = unasked_ = 0;
    step_seconds_ = 0.0;
    before_ = Clock::now();
    // A signal that came while the data were read.
    if (StopOnSignal::requested()) Trainer::request_stop(StopOnSignal::name(), StopOnSignal::exit_code() - 128);
    draw(progress, setup.total_steps);
}

void ProgressLine::step_reported(const ReportedStep& step) {
    last_ = step.report;
    last_step_ = step.step();
    scaled_ = setup_->scaler->enabled();  // which a schedule of precisions changes
    const ScalerSpec& spec = setup_->scaler->spec();
    growth_interval_ = spec.dynamic ? spec.growth_interval : 0;
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
    if (line_.due()) draw(progress, total_steps);
}

void ProgressLine::draw(const Progress& progress, std::int64_t total) {
    if (quiet_ || !on_terminal() || total <= 0) return;
    const std::int64_t step = progress.step;
    const double share = double(step) / double(total);
    const int width = terminal_width(), columns = width >= 100 ? 24 : width >= 60 ? 12 : 0;
    std::vector<std::string> parts;
    std::string head = label_.empty() ? "" : label_ + "  ";
    if (columns > 0) head += bar(share, columns) + " ";
    head += fmt::format("{}/{} {:3.0f}%", step, total, std::floor(100 * share));
    parts.push_back(std::move(head));
    if (last_) parts.push_back(fmt::format("{} {}", logged::kLoss, loss_text(last_->loss)));
    // While a step is under way its epoch is not counted as done.
    if (epochs_ > 0)
        parts.push_back(fmt::format("{} {}/{}", logged::kEpoch, std::min(progress.epoch + 1, epochs_), epochs_));
    parts.push_back("ETA " + (ticks_ > 0 ? clock_time(step_seconds_ * double(total - step)) : std::string("-:--")));
    if (ticks_ > 1) {
        Rate now{unit_.name, unit_.per_sample * double(samples_per_step_) / step_seconds_, 0.0};
        if (logged_rate_.per_second > 0) now.mfu = logged_rate_.mfu * now.per_second / logged_rate_.per_second;
        parts.push_back(rate_text(now));
    }
    if (last_) {
        if (scaled_) parts.push_back(fmt::format("{} {}", logged::kScale, scale_text(last_->scale.scale)));
        parts.push_back(fmt::format("{} {:.3g}", logged::kGradNorm, last_->step.grad_norm));
        if (last_->step.skipped > 0)
            parts.push_back(paint(Colour::yellow, fmt::format("{} {}", logged::kSkipped, last_->step.skipped)));
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
    if (!m.due && ++unasked_ > kUnasked) {
        if (unasked_ == kUnasked + 1)
            noted("from here on steps that are skipped or move the scale are only counted; metrics.jsonl has each");
        return;
    }
    std::string line = fmt::format("{} {}/{}  {} {}/{}  {} {}  {} {:.4g}  {} {:.4g}", logged::kStep, m.step,
                                   m.total_steps, logged::kEpoch, m.epoch, epochs_, logged::kLoss, loss_text(m.loss),
                                   logged::kLr, m.lr, logged::kGradNorm, m.grad_norm);
    if (scaled_) line += fmt::format("  {} {}", logged::kScale, scale_text(m.scale));
    if (m.skipped > 0) line += fmt::format("  {} {}", logged::kSkipped, m.skipped);
    lasting(line + "  " + rate_text(m.rate));
}

void ProgressLine::validated(const ValidationMetrics& m) {
    std::string line = fmt::format("{}  {} {}", paint(Colour::cyan, fmt::format("{} {}", logged::kEpoch, m.epoch)),
                                   logged::kStep, m.step);
    for (const Measured& measured : m.metrics)
        line +=
            fmt::format("  {} {}", logged::of_validation(measured.metric.name), measured.metric.str(measured.value));
    lasting(line);
    tell_amp_stats();
    before_ = Clock::now();  // validation is not a slow step
}

void ProgressLine::tell_amp_stats() {
    if (!scaled_ || !last_ || amp_told_at_ == last_step_) return;
    amp_told_at_ = last_step_;
    const std::string moves =
        growth_interval_ > 0 ? fmt::format(", Growth tracker: {} of {}", last_->scale.growth_tracker, growth_interval_)
                             : ", fixed";
    lasting(fmt::format("{} Scale: {}{}, Skipped: {} of {}", paint(Colour::cyan, "[AMP Stats]"),
                        scale_text(last_->scale.scale), moves, last_->step.skipped, last_step_));
}

void ProgressLine::finish() {
    tell_amp_stats();
    line_.clear();
}

void ProgressLine::noted(const std::string& note) {
    lasting(paint(Colour::yellow, "note") + ": " + note);
}

void ProgressLine::alerted(const Alert& alert) {
    lasting(paint(Colour::yellow, "alert") + ": " + alert.message);
}

}  // namespace invar::cli
