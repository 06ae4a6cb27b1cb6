#include "invar/train/stability.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "invar/core/error.h"

namespace invar {

namespace {

// A run that has almost converged has losses so alike that every hard batch would be an outlier: a loss is judged
// against its own size and against where the run began too.
constexpr double kOfMedian = 0.1, kOfFirst = 0.05;
// A single loss counts only where it is so much worse than that of the untrained network.
constexpr double kWorseThanFirst = 1.5;
// In logarithms: norms of single batches may well differ by a quarter from one another. Below the run's first one they
// may come back from almost nothing, as those of a batch do that is not known by heart.
constexpr double kOfNorm = 0.25;
// Values in a row need be only half as far off: chance does not repeat itself.
constexpr int kInARow = 3;
constexpr double kHalf = 0.5;
// Of the median deviation, where values spread as the normal distribution does.
constexpr double kToStandardDeviation = 1.4826;

double median(std::vector<double> values) {
    const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

}  // namespace

std::string name_of(Instability::Kind kind) {
    constexpr const char* kNames[] = {"loss_nonfinite", "scale_floor", "skipped_streak", "loss_spike",
                                      "gradient_spike"};
    return kNames[static_cast<std::size_t>(kind)];
}

std::optional<double> Stability::Window::spike(double value, const Bounds& bounds, const StabilityConfig& config) {
    if (!first) first = value;
    if (std::int64_t(values.size()) < config.window) {
        values.push_back(value);
        return std::nullopt;
    }
    const double usual = median({values.begin(), values.end()});
    const double largest = *std::max_element(values.begin(), values.end());
    std::vector<double> deviations;
    for (const double v : values) deviations.push_back(std::fabs(v - usual));
    const double spread = std::max({bounds.spread, bounds.of_median * std::fabs(usual), 1e-30});
    const double distance = (value - usual) / std::max(kToStandardDeviation * median(std::move(deviations)), spread);

    const bool is_far = distance > kHalf * config.z_score && value > largest;
    above = is_far ? above + 1 : 0;
    // Alone it must also leave behind the worst of the window, by as much as that lies above the usual.
    const bool stands_out = value > largest + std::max(largest - usual, spread) && value > bounds.least;
    const bool lasts = above >= kInARow && value > bounds.least_in_a_row;
    const bool is_spike = (distance > config.z_score && stands_out) || lasts;
    if (is_far && !is_spike) return std::nullopt;  // one hard batch is not what the next is measured by
    values.push_back(value);
    while (std::int64_t(values.size()) > config.window) values.pop_front();
    return is_spike ? std::optional(distance) : std::nullopt;
}

std::optional<Instability> Stability::judge(const ReportedStep& step) {
    using Kind = Instability::Kind;
    const StepReport& report = step.report;
    const auto found = [&](Kind kind, std::string reason) { return Instability{kind, std::move(reason), step}; };
    if (!std::isfinite(report.loss))
        return found(Kind::loss_nonfinite, std::isnan(report.loss) ? "the loss is NaN" : "the loss is infinite");
    if (report.scale.at_floor)
        return found(Kind::scale_floor,
                     fmt::format("the loss scale is at its floor, {:g}, and still too large", report.scale.scale));
    if (report.step.skipped_in_a_row >= config_.streak)
        return found(Kind::skipped_streak,
                     fmt::format("{} steps in a row were skipped for NaN or Inf", report.step.skipped_in_a_row));
    if (report.step.skip) return std::nullopt;

    const double first = std::fabs(losses_.first.value_or(report.loss));
    const std::optional<double> loss_spike =
        losses_.spike(report.loss, {kOfFirst * first, kOfMedian, kWorseThanFirst * first, 0.0}, config_);
    const double norm = std::log(std::max(double(report.step.grad_norm), 1e-30));
    const double first_norm = norms_.first.value_or(norm);
    const std::optional<double> norm_spike = norms_.spike(norm, {kOfNorm, 0.0, first_norm, first_norm}, config_);
    if (loss_spike)
        return found(Kind::loss_spike, fmt::format("the loss {:.4g} is {:.1f} standard deviations above the last {}",
                                                   report.loss, *loss_spike, config_.window));
    if (norm_spike)
        return found(Kind::gradient_spike,
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
