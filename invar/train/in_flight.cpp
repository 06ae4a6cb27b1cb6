#include "invar/train/in_flight.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace invar {

namespace {

constexpr std::int64_t kWarmUps = 5;  // steps that the speed is measured without, where there are more

}  // namespace

void InFlight::add(const Progress& before, std::span<const Batch> group) {
    steps_.push_back({before, default_generator().state(), whole_samples_of(group)});
}

std::size_t InFlight::ready_everywhere(Communicator& ranks) const {
    return ranks.alone() ? ready() : std::ranges::min(ranks.gathered(ready()));
}

ReportedStep InFlight::wait() {
    return take(reports_.wait());
}

void InFlight::discard() {
    for (; !steps_.empty(); steps_.pop_front()) reports_.wait();
}

ReportedStep InFlight::take(const StepReport& report) {
    const Step step = steps_.front();
    steps_.pop_front();
    ReportedStep reported{step.before, step.rng, scale_, step.samples, end_of(report), steps_.empty(), report};
    // NaN has a sign, which means nothing and looks like something.
    StepReport& found = reported.report;
    if (std::isnan(found.loss)) found.loss = std::numeric_limits<double>::quiet_NaN();
    if (std::isnan(found.step.grad_norm)) found.step.grad_norm = std::numeric_limits<float>::quiet_NaN();
    samples_ += step.samples;
    samples_since_ += step.samples;
    if (++reported_ == kWarmUps)
        warm_up_seconds_ = std::min(reported.seconds, clock_.seconds()), warm_up_samples_ = samples_;
    return reported;
}

// When a step ended, in seconds of training. The device says how long after the first one of this stretch; when its
// report came to be read depends on what the host was doing: where that of the first one was read late, the others seem
// to end later than now.
double InFlight::end_of(const StepReport& report) {
    if (!stretch_) stretch_ = {clock_.seconds(), report.ended_ns};
    return stretch_->seconds + 1e-9 * double(report.ended_ns - stretch_->ended_ns);
}

void InFlight::stop_clock() {
    clock_.stop();
    stretch_.reset();
    rated_at_ = std::min(rated_at_, clock_.seconds());
}

double InFlight::rate_until(const ReportedStep& step) {
    const double rate = step.seconds > rated_at_ ? double(samples_since_) / (step.seconds - rated_at_) : 0.0;
    rated_at_ = step.seconds, samples_since_ = 0;
    return rate;
}

Speed InFlight::speed(const Speed& earlier) const {
    const bool warm = reported_ > kWarmUps;  // there were more steps than the first ones
    const double before = earlier.samples_per_s > 0 ? earlier.seconds : 0.0;
    const double rated = before + clock_.seconds() - (warm ? warm_up_seconds_ : 0.0);
    const double samples = before * earlier.samples_per_s + double(samples_ - (warm ? warm_up_samples_ : 0));
    Speed speed{earlier.seconds + clock_.seconds(), rated > 0 ? samples / rated : 0.0, warm ? kWarmUps : 0};
    // Where nothing was trained the rate is the earlier one: times its seconds and over them, it may lose its last
    // digit.
    if (reported_ == 0) speed.samples_per_s = earlier.samples_per_s;
    return speed;
}

}  // namespace invar
