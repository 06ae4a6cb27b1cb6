#include "invar/train/monitor.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "invar/amp/autocast.h"
#include "invar/autograd/node.h"
#include "invar/core/format_info.h"
#include "invar/kernels/devices.h"
#include "invar/nn/module_title.h"
#include "invar/nn/module_watch.h"
#include "invar/train/reports.h"
#include "invar/train/scale_text.h"

namespace invar {

namespace {

constexpr std::int64_t kSamples = 16;  // of a batch, to look at activations with
constexpr std::size_t kNames = 4;      // in one message
constexpr int kSmall = 10;             // steps in a row: one batch that is known by heart has small gradients too
constexpr double kHeadRoom = 0.5;      // activations above this share of FP16's largest number are close to overflow

}  // namespace

// What the device was asked for after one step, and where it leaves the answers.
struct Monitor::Measurement {
    Measurement(Device device, std::size_t count, std::size_t modules)
        : gradients(device, count), parameters(device, count), activations(device, modules) {}
    std::int64_t step = 0, epoch = 0;
    bool asked_gradients = false, asked_parameters = false, asked_activations = false;
    TensorStats gradients, parameters, activations;
    std::vector<bool> have_gradients;  // of the parameters
    std::vector<std::string> activation_names;
    std::vector<bool> activations_in_f16;
    std::optional<StepReport> report;  // of that step
};

Monitor::Monitor(const MonitorConfig& config, Setup& setup) : config_(config), setup_(setup) {
    for (const Parameter* parameter : setup.optimizer->store().parameters())
        module_of_.push_back(module_of(parameter->name));
    for (const auto& [path, module] : setup.model->modules()) titles_[path] = module_title(path, *module);
}

Monitor::~Monitor() = default;

std::unique_ptr<Monitor::Measurement> Monitor::take_unused() {
    if (unused_.empty())
        return std::make_unique<Measurement>(setup_.device, module_of_.size(), setup_.model->modules().size());
    std::unique_ptr<Measurement> measurement = std::move(unused_.back());
    unused_.pop_back();
    return measurement;
}

void Monitor::measure(std::int64_t step, std::int64_t epoch, std::span<const Batch> group) {
    const bool gradients = due(step, config_.gradients_every_n_steps),
               parameters = due(step, config_.parameters_every_n_steps),
               activations = due(step, config_.activations_every_n_steps);
    if (!gradients && !parameters && !activations) return;
    std::unique_ptr<Measurement> measurement = take_unused();
    measurement->step = step, measurement->epoch = epoch, measurement->report.reset();
    measurement->asked_gradients = gradients, measurement->asked_parameters = parameters,
    measurement->asked_activations = activations;
    const ParameterStore& store = setup_.optimizer->store();
    if (gradients) measurement->have_gradients = store.have_gradients();
    if (gradients && store.sharding().shares_moments())
        measure_shares(measurement->gradients);
    else if (gradients)
        measurement->gradients.measure(store.gradients(), store.places());
    if (parameters) measurement->parameters.measure(setup_.optimizer->store().known_weights(), store.places());
    if (activations) setup_.optimizer->store().gather_shadows();
    if (activations) measure_activations(*measurement, group.front().head(kSamples));
    pending_.push_back(std::move(measurement));
}

// Where ranks share gradients out, each measures its part of every parameter, and they are added up in rank order. All
// of them wait for that here, since they would not all come to read a report at the same time.
void Monitor::measure_shares(TensorStats& sums) {
    const ParameterStore& store = setup_.optimizer->store();
    std::vector<Segment> parts;
    std::vector<std::size_t> parameter_of;
    const std::size_t count = store.parameters().size();
    for (std::size_t i = 0; i < count; ++i)
        if (const ParameterStore::OwnPart own = store.own_part(i); own.count > 0)
            parts.push_back({own.at, own.count, 0}), parameter_of.push_back(i);
    TensorStats stats(setup_.device, parts.size());
    stats.measure(store.gradient_share(), parts);
    kernels_for(setup_.device).synchronize();
    std::vector<double> squares(count);
    for (std::size_t i = 0; i < parts.size(); ++i) squares[parameter_of[i]] = stats[i].sum_squares;
    setup_.ranks->sum(squares);
    for (std::size_t i = 0; i < squares.size(); ++i) sums.set(i, squares[i]);
}

// A forward pass of its own over a few samples, since a replayed step cannot be looked into. As in evaluation, so that
// it draws no random numbers and moves no statistics.
void Monitor::measure_activations(Measurement& measurement, const Batch& samples) {
    measurement.activation_names.clear();
    measurement.activations_in_f16.clear();
    const ModuleWatch watch([&](const std::string& path, const Tensor& result) {
        if (measurement.activation_names.size() == measurement.activations.room()) return;
        measurement.activations.measure(measurement.activation_names.size(), result);
        measurement.activation_names.push_back(path);
        measurement.activations_in_f16.push_back(result.dtype() == Dtype::f16);
    });
    const NoGrad no_grad;
    const Autocast cast(setup_.precision);
    const Tf32Scope tf32(setup_.precision.kind == Precision::Kind::tf32);
    const bool was_training = setup_.model->training();
    setup_.model->eval();
    setup_.loss(*setup_.model, samples);
    setup_.model->train(was_training);
}

Findings Monitor::handle_report(const ReportedStep& step) {
    Findings findings;
    if (!config_.enabled) return findings;
    for (const std::unique_ptr<Measurement>& each : pending_)
        if (each->step == step.step()) each->report = step.report;
    // The device writes in order: it has left what was asked for after a step once a later step has reported.
    while (!pending_.empty() && pending_.front()->report &&
           (setup_.device.is_cpu() || step.step() > pending_.front()->step))
        collect(findings);
    step_ = step.step(), epoch_ = step.epoch();
    judge_report(step, findings);
    return findings;
}

Findings Monitor::drain() {
    Findings findings;
    if (!pending_.empty()) kernels_for(setup_.device).synchronize();
    while (!pending_.empty() && pending_.front()->report) collect(findings);
    return findings;
}

void Monitor::discard() {
    pending_.clear();
}

nlohmann::json Monitor::state() const {
    return {{"alerts", alerts_.state()}, {"small_gradients", small_}};
}

void Monitor::restore(const nlohmann::json& state) {
    alerts_.restore(state.at("alerts"));
    small_ = state.at("small_gradients");
}

void Monitor::alert(Findings& findings, bool raised, const std::string& kind, const std::string& where, double value,
                    const std::function<std::string()>& message) {
    if (!raised) return alerts_.clear(kind, where);
    if (!alerts_.raise(kind, where)) return;
    findings.alerts.push_back({step_, epoch_, kind, where, value, fmt::format("step {}: {}", step_, message())});
}

// "layers.0.fc1 (Linear)"; what is not a module of the model ("loss") keeps its name.
const std::string& Monitor::title(const std::string& module) const {
    const auto found = titles_.find(module);
    return found == titles_.end() ? module : found->second;
}

MonitorMetrics& Monitor::metrics(Findings& findings) const {
    std::vector<MonitorMetrics>& all = findings.metrics;
    if (all.empty() || all.back().step != step_) all.emplace_back().step = step_, all.back().epoch = epoch_;
    return all.back();
}

// What costs nothing to look at, after every step.
void Monitor::judge_report(const ReportedStep& reported, Findings& findings) {
    const StepReport& report = reported.report;
    const double norm = report.step.grad_norm;
    const bool skipped = report.step.skip != 0;
    alert(findings, skipped, "skipped_step", "", double(report.step.skipped), [&] {
        std::string names = reported.newest ? bad_gradients() : "";
        if (const std::int64_t place = report.step.first_nonfinite; names.empty() && place >= 0)
            names = fmt::format(" (NaN or Inf first in {})", setup_.optimizer->store().parameter_at(place).name);
        const std::string scale = setup_.scaler->enabled() ? "; loss scale now " + scale_text(report.scale.scale) : "";
        const std::string rank = report.step.bad_rank >= 0 ? fmt::format(" on rank {}", report.step.bad_rank) : "";
        return fmt::format("skipped, {}{}{}{}", skip_reason(report), names, rank, scale);
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
            return fmt::format("the loss scale has fallen to {}: small gradients vanish in FP16",
                               scale_text(report.scale.scale));
        });

    ++steps_since_, samples_since_ += reported.samples;
    if (due(reported.step(), config_.memory_every_n_steps)) metrics(findings).memory = memory_stats(setup_.device);
    if (due(reported.step(), config_.throughput_every_n_steps)) {
        const double seconds = reported.seconds - seconds_before_;
        metrics(findings).step_ms = 1e3 * seconds / double(steps_since_);
        metrics(findings).samples_per_s = seconds > 0 ? double(samples_since_) / seconds : 0.0;
        seconds_before_ = reported.seconds, steps_since_ = 0, samples_since_ = 0;
    }
}

// The parameters whose gradients in the store are not finite.
std::string Monitor::bad_gradients() {
    std::vector<std::string> names;
    std::size_t bad = 0;
    for (const Parameter* parameter : setup_.optimizer->store().parameters()) {
        const Tensor gradient = parameter->value.grad();
        if (!gradient || kernels_for(setup_.device).all_finite(gradient.view())) continue;
        if (++bad <= kNames) names.push_back(parameter->name);
    }
    if (bad == 0) return "";
    return fmt::format(" (NaN or Inf in {}{})", fmt::join(names, ", "),
                       bad > kNames ? fmt::format(" and {} more", bad - kNames) : "");
}

void Monitor::collect(Findings& findings) {
    std::unique_ptr<Measurement> measurement = std::move(pending_.front());
    pending_.pop_front();
    step_ = measurement->step, epoch_ = measurement->epoch;
    if (measurement->asked_gradients) collect_gradients(*measurement, findings);
    if (measurement->asked_parameters) collect_parameters(*measurement, findings);
    if (measurement->asked_activations) collect_activations(*measurement, findings);
    unused_.push_back(std::move(measurement));
}

void Monitor::collect_gradients(const Measurement& measurement, Findings& findings) {
    const StepState& all = measurement.report->step;
    if (all.nonfinite > 0) return;  // told by name when the step was skipped
    const double scale = all.grad_norm > 0 ? std::sqrt(all.sum_squares) / double(all.grad_norm) : 1.0;
    auto& norms = metrics(findings).grad_norms;
    auto& small = metrics(findings).small_grad_norms;
    const std::vector<Parameter*>& parameters = setup_.optimizer->store().parameters();
    double squares = 0.0;
    bool any = false;  // a module that is frozen has no norm, which is not a small one
    for (std::size_t i = 0; i < module_of_.size(); ++i) {
        squares += measurement.gradients[i].sum_squares;
        any = any || measurement.have_gradients[i];
        const double own = std::sqrt(measurement.gradients[i].sum_squares) / scale;
        if (measurement.have_gradients[i] && own < config_.grad_norm_low) small.emplace_back(parameters[i]->name, own);
        if (i + 1 < module_of_.size() && module_of_[i + 1] == module_of_[i]) continue;
        if (any) norms.emplace_back(module_of_[i], std::sqrt(squares) / scale);
        squares = 0.0, any = false;
    }
    if (norms.size() == 1) return;  // the norm of all, which is judged after every step
    for (const auto& [module, norm] : norms) {
        const double value = norm;
        const std::string name = " of " + title(module);
        alert(findings, value < config_.grad_norm_low && (small_ == 0 || small_ >= kSmall), "gradient_small", module,
              value, [&] {
                  return fmt::format("the gradient norm{} is {:.3g}, below {:g}", name, value, config_.grad_norm_low);
              });
        alert(findings, value > config_.grad_norm_high, "gradient_large", module, value, [&] {
            return fmt::format("the gradient norm{} is {:.3g}, above {:g}", name, value, config_.grad_norm_high);
        });
    }
}

void Monitor::collect_parameters(const Measurement& measurement, Findings& findings) {
    const std::vector<Parameter*>& all = setup_.optimizer->store().parameters();
    for (std::size_t i = 0; i < all.size(); ++i) {
        const std::int64_t bad = measurement.parameters[i].nonfinite;
        alert(findings, bad > 0, "parameter_nonfinite", all[i]->name, double(bad),
              [&] { return fmt::format("{} of the weights {} are NaN or Inf", bad, all[i]->name); });
    }
}

void Monitor::collect_activations(const Measurement& measurement, Findings& findings) {
    const double largest = format_info(Dtype::f16).max;
    for (std::size_t i = 0; i < measurement.activation_names.size(); ++i) {
        const std::string& module = measurement.activation_names[i];
        const StepState& found = measurement.activations[i];
        metrics(findings).activations.emplace_back(module, found.max_abs);
        alert(findings, found.nonfinite > 0, "activation_nonfinite", module, double(found.nonfinite),
              [&] { return fmt::format("{} values that {} put out are NaN or Inf", found.nonfinite, title(module)); });
        if (found.nonfinite > 0) continue;
        const bool half = measurement.activations_in_f16[i];
        alert(findings, half && found.max_abs > kHeadRoom * largest, "activation_large", module, found.max_abs, [&] {
            return fmt::format("{} puts out {:.4g}, close to FP16's largest number {:g}", title(module), found.max_abs,
                               largest);
        });
    }
}

}  // namespace invar
