#include "invar/train/stability.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "invar/core/error.h"

namespace invar {

namespace {

// The least deviation that counts. A run that has almost converged has losses so alike that every hard batch would be
// an outlier; a loss is judged against its own size and against where the run began.
constexpr double kOfMean = 0.05, kOfFirst = 0.01;
// Norms of single batches may well differ by half from one another.
constexpr double kOfNorm = 0.4;
constexpr int kInARow = 3;
// How much worse than the run's first value a single one must be: a loss twice as large, a norm sixteen times.
constexpr double kTwice = 1.0, kSixteenTimes = 2.77;

}  // namespace

std::optional<double> Stability::Window::spike(double value, double least_deviation, double leap,
                                               const StabilityConfig& config) {
    if (!first) first = value;
    double distance = 0.0;
    if (std::int64_t(values.size()) == config.window) {
        double mean = 0.0, squares = 0.0;
        for (const double v : values) mean += v / double(values.size());
        for (const double v : values) squares += (v - mean) * (v - mean);
        const double deviation = std::sqrt(squares / double(values.size() - 1));
        distance = (value - mean) / std::max({deviation, least_deviation, kOfMean * std::fabs(mean), 1e-30});
    }
    const bool is_above = distance > config.z_score;
    above = is_above ? above + 1 : 0;
    const bool is_spike = is_above && (value > *first + leap || above >= kInARow);
    if (is_above && !is_spike) return std::nullopt;  // one hard batch is not what the next is measured by
    values.push_back(value);
    while (std::int64_t(values.size()) > config.window) values.pop_front();
    return is_spike ? std::optional(distance) : std::nullopt;
}

std::optional<Instability> Stability::judge(const HeardStep& heard) {
    const StepReport& report = heard.report;
    const auto found = [&](const char* kind, std::string reason) {
        return Instability{heard.step, heard.epoch, kind, std::move(reason), report};
    };
    if (!std::isfinite(report.loss))
        return found("loss_nonfinite", std::isnan(report.loss) ? "the loss is NaN" : "the loss is infinite");
    if (report.scale.at_floor)
        return found("scale_floor",
                     fmt::format("the loss scale is at its floor, {:g}, and still too large", report.scale.scale));
    if (report.step.skipped_in_a_row >= config_.streak)
        return found("skipped_streak",
                     fmt::format("{} steps in a row had NaN or Inf gradients", report.step.skipped_in_a_row));
    if (report.step.skip) return std::nullopt;

    const double norm = std::log(std::max(double(report.step.grad_norm), 1e-30));
    const double first = std::fabs(losses_.first.value_or(report.loss));
    const std::optional<double> loss_spike = losses_.spike(report.loss, kOfFirst * first, kTwice * first, config_);
    const std::optional<double> norm_spike = norms_.spike(norm, kOfNorm, kSixteenTimes, config_);
    if (loss_spike)
        return found("loss_spike", fmt::format("the loss {:.4g} is {:.1f} standard deviations above the last {}",
                                               report.loss, *loss_spike, config_.window));
    if (norm_spike)
        return found("gradient_spike",
                     fmt::format("the gradient norm {:.4g} is {:.1f} standard deviations (of its logarithm) above the "
                                 "last {}",
                                 report.step.grad_norm, *norm_spike, config_.window));
    return std::nullopt;
}

nlohmann::json Stability::state() const {
    const auto of = [](const Window& window) {
        nlohmann::json state = {{"values", window.values}, {"above", window.above}};
        if (window.first) state["first"] = *window.first;
        return state;
    };
    return {{"losses", of(losses_)}, {"norms", of(norms_)}};
}

void Stability::restore(const nlohmann::json& state) {
    const auto fill = [](Window& window, const nlohmann::json& from) {
        window = {from.at("values").get<std::deque<double>>(), {}, from.at("above")};
        if (from.contains("first")) window.first = from.at("first").get<double>();
    };
    fill(losses_, state.at("losses"));
    fill(norms_, state.at("norms"));
}

}  // namespace invar
