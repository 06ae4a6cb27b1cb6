#include "invar/train/monitor.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "invar/amp/autocast.h"
#include "invar/autograd/node.h"
#include "invar/core/format_info.h"
#include "invar/kernels/devices.h"
#include "invar/nn/module_watch.h"

namespace invar {

namespace {

constexpr std::int64_t kSamples = 16;  // of a batch, to look at activations with
constexpr std::size_t kNames = 4;      // in one message
constexpr int kSmall = 10;             // steps in a row: one batch that is known by heart has small gradients too
constexpr double kHeadRoom = 0.5;      // activations above this share of FP16's largest number are close to overflow

std::string module_of(const std::string& parameter) {
    const std::size_t dot = parameter.rfind('.');
    return dot == std::string::npos ? "" : parameter.substr(0, dot);
}

std::string of_module(const std::string& module) {
    return module.empty() ? "" : " of " + module;
}

}  // namespace

// What the device was asked for after one step.
struct Monitor::Look {
    std::int64_t step = 0, epoch = 0;
    bool gradients = false, parameters = false, activations = false;
    std::optional<StepReport> report;  // of that step
};

Monitor::Monitor(const MonitorConfig& config, Setup& setup)
    : config_(config),
      setup_(setup),
      gradients_(setup.device, setup.optimizer->store().parameters().size()),
      parameters_(setup.device, gradients_.room()) {
    for (const Parameter* parameter : setup.optimizer->store().parameters())
        module_of_.push_back(module_of(parameter->name));
}

Monitor::~Monitor() = default;

void Monitor::look(std::int64_t step, std::int64_t epoch, std::span<const Batch> group) {
    if (pending_) return;  // the device is far behind; the next interval will do
    Look look;
    look.step = step, look.epoch = epoch;
    if ((look.gradients = due(step, config_.gradients_every_n_steps))) look_at_gradients();
    if ((look.parameters = due(step, config_.parameters_every_n_steps))) look_at_parameters();
    if ((look.activations = due(step, config_.activations_every_n_steps))) look_at_activations(group.front().x);
    if (look.gradients || look.parameters || look.activations) pending_ = std::make_unique<Look>(std::move(look));
}

void Monitor::look_at_gradients() {
    const std::vector<Parameter*>& all = setup_.optimizer->store().parameters();
    for (std::size_t i = 0; i < all.size(); ++i) gradients_.measure(i, all[i]->value.grad());
}

void Monitor::look_at_parameters() {
    const std::vector<Parameter*>& all = setup_.optimizer->store().parameters();
    for (std::size_t i = 0; i < all.size(); ++i) parameters_.measure(i, all[i]->value.detach());
}

// A forward pass of its own over a few samples, since a replayed step cannot be looked into. As in evaluation, so that
// it draws no random numbers and moves no statistics.
void Monitor::look_at_activations(const Tensor& x) {
    Shape shape = x.shape();
    shape[0] = std::min(shape[0], kSamples);
    if (!activations_) activations_.emplace(setup_.device, setup_.model->modules().size());
    activation_names_.clear();
    const ModuleWatch watch([&](const std::string& path, const Tensor& result) {
        if (activation_names_.size() == activations_->room()) return;
        activations_->measure(activation_names_.size(), result);
        activation_names_.push_back(path);
    });
    const NoGrad no_grad;
    const Autocast cast(setup_.precision);
    const Tf32Scope tf32(setup_.precision.kind == Precision::Kind::tf32);
    const bool was_training = setup_.model->training();
    setup_.model->eval();
    (*setup_.model)(x.window(0, shape));
    setup_.model->train(was_training);
}

Findings Monitor::heard(const HeardStep& step) {
    Findings findings;
    if (!config_.enabled) return findings;
    if (pending_ && step.step == pending_->step) pending_->report = step.report;
    // The device writes in order: it has left what was asked for after a step once a later step has reported.
    if (pending_ && pending_->report && (setup_.device.is_cpu() || step.step > pending_->step)) collect(findings);
    step_ = step.step, epoch_ = step.epoch;
    judge_report(step, findings);
    return findings;
}

Findings Monitor::settle() {
    Findings findings;
    if (pending_ && pending_->report) {
        kernels_for(setup_.device).synchronize();
        collect(findings);
    }
    return findings;
}

void Monitor::forget() {
    pending_.reset();
}

void Monitor::alert(Findings& findings, bool raised, const std::string& kind, const std::string& where, double value,
                    const std::function<std::string()>& message) {
    if (!raised) return alerts_.clear(kind, where);
    if (!alerts_.raise(kind, where)) return;
    findings.alerts.push_back({step_, epoch_, kind, where, value, fmt::format("step {}: {}", step_, message())});
}

MonitorMetrics& Monitor::metrics(Findings& findings) const {
    std::vector<MonitorMetrics>& all = findings.metrics;
    if (all.empty() || all.back().step != step_) all.emplace_back().step = step_, all.back().epoch = epoch_;
    return all.back();
}

// What costs nothing to look at, after every step.
void Monitor::judge_report(const HeardStep& heard, Findings& findings) {
    const StepReport& report = heard.report;
    const double norm = report.step.grad_norm;
    const bool skipped = report.step.skip != 0;
    alert(findings, skipped, "skipped_step", "", double(report.step.skipped), [&] {
        std::string names = heard.newest ? bad_gradients() : "";
        if (const std::int64_t place = report.step.first_nonfinite; names.empty() && place >= 0)
            names = fmt::format(" (NaN or Inf first in {})", setup_.optimizer->store().parameter_at(place).name);
        const std::string scale =
            setup_.scaler->enabled() ? fmt::format("; loss scale now {:g}", report.scale.scale) : "";
        return fmt::format("skipped, its gradients overflowed{}{}", names, scale);
    });
    if (!skipped) {
        small_ = norm < config_.grad_norm_low ? small_ + 1 : 0;
        alert(findings, small_ >= kSmall, "gradient_small", "", norm, [&] {
            return fmt::format("the gradient norm {:.3g} is below {:g}, as for {} steps", norm, config_.grad_norm_low,
                               small_);
        });
        alert(findings, norm > config_.grad_norm_high, "gradient_large", "", norm,
              [&] { return fmt::format("the gradient norm {:.3g} is above {:g}", norm, config_.grad_norm_high); });
    }
    if (setup_.scaler->enabled())
        alert(findings, report.scale.scale < 1.0f, "scale_low", "", report.scale.scale, [&] {
            return fmt::format("the loss scale has fallen to {:g}: small gradients vanish in FP16", report.scale.scale);
        });

    ++steps_since_, samples_since_ += heard.samples;
    if (due(heard.step, config_.memory_every_n_steps)) metrics(findings).memory = memory_stats(setup_.device);
    if (due(heard.step, config_.throughput_every_n_steps)) {
        const double seconds = heard.seconds - seconds_before_;
        metrics(findings).step_ms = 1e3 * seconds / double(steps_since_);
        metrics(findings).samples_per_s = seconds > 0 ? double(samples_since_) / seconds : 0.0;
        seconds_before_ = heard.seconds, steps_since_ = 0, samples_since_ = 0;
    }
}

// The parameters whose gradients in the store are not finite.
std::string Monitor::bad_gradients() {
    std::vector<std::string> names;
    std::size_t bad = 0;
    for (const Parameter* parameter : setup_.optimizer->store().parameters()) {
        if (kernels_for(setup_.device).all_finite(parameter->value.grad().view())) continue;
        if (++bad <= kNames) names.push_back(parameter->name);
    }
    if (bad == 0) return "";
    return fmt::format(" (NaN or Inf in {}{})", fmt::join(names, ", "),
                       bad > kNames ? fmt::format(" and {} more", bad - kNames) : "");
}

void Monitor::collect(Findings& findings) {
    step_ = pending_->step, epoch_ = pending_->epoch;
    if (pending_->gradients) collect_gradients(findings);
    if (pending_->parameters) collect_parameters(findings);
    if (pending_->activations) collect_activations(findings);
    pending_.reset();
}

void Monitor::collect_gradients(Findings& findings) {
    const StepState& all = pending_->report->step;
    if (all.nonfinite > 0) return;  // told by name when the step was skipped
    const double scale = all.grad_norm > 0 ? std::sqrt(all.sum_squares) / double(all.grad_norm) : 1.0;
    auto& norms = metrics(findings).grad_norms;
    double squares = 0.0;
    for (std::size_t i = 0; i < module_of_.size(); ++i) {
        squares += gradients_[i].sum_squares;
        if (i + 1 < module_of_.size() && module_of_[i + 1] == module_of_[i]) continue;
        norms.emplace_back(module_of_[i], std::sqrt(squares) / scale);
        squares = 0.0;
    }
    if (norms.size() == 1) return;  // the norm of all, which is judged after every step
    for (const auto& [module, norm] : norms) {
        const double value = norm;
        const std::string name = of_module(module);
        alert(findings, value < config_.grad_norm_low && (small_ == 0 || small_ >= kSmall), "gradient_small", module,
              value, [&] {
                  return fmt::format("the gradient norm{} is {:.3g}, below {:g}", name, value, config_.grad_norm_low);
              });
        alert(findings, value > config_.grad_norm_high, "gradient_large", module, value, [&] {
            return fmt::format("the gradient norm{} is {:.3g}, above {:g}", name, value, config_.grad_norm_high);
        });
    }
}

void Monitor::collect_parameters(Findings& findings) {
    const std::vector<Parameter*>& all = setup_.optimizer->store().parameters();
    for (std::size_t i = 0; i < all.size(); ++i) {
        const std::int64_t bad = parameters_[i].nonfinite;
        alert(findings, bad > 0, "parameter_nonfinite", all[i]->name, double(bad),
              [&] { return fmt::format("{} of the weights {} are NaN or Inf", bad, all[i]->name); });
    }
}

void Monitor::collect_activations(Findings& findings) {
    const bool half = setup_.precision.compute_dtype() == Dtype::f16;
    const double largest = format_info(Dtype::f16).max;
    for (std::size_t i = 0; i < activation_names_.size(); ++i) {
        const std::string& module = activation_names_[i];
        const StepState& found = (*activations_)[i];
        metrics(findings).activations.emplace_back(module, found.max_abs);
        alert(findings, found.nonfinite > 0, "activation_nonfinite", module, double(found.nonfinite),
              [&] { return fmt::format("{} values that {} put out are NaN or Inf", found.nonfinite, module); });
        if (found.nonfinite > 0) continue;
        alert(findings, half && found.max_abs > kHeadRoom * largest, "activation_large", module, found.max_abs, [&] {
            return fmt::format("{} puts out {:.4g}, close to FP16's largest number {:g}", module, found.max_abs,
                               largest);
        });
    }
}

}  // namespace invar
