#include "invar/train/stability.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
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

// A loss so many times that of the untrained network is far from anything that training does.
constexpr double kAstray = 10.0;
// Losses that are usually so many times that, and do not fall, have learnt nothing.
constexpr double kLearntNothing = 2.0;
// Steps by whose median it is told whether a loss is back, or gets there: falling by so much from one such stretch to
// the next.
constexpr std::size_t kStretch = 10;
constexpr double kFalls = 0.9;

double median(std::vector<double> values) {
    const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

double median_of(std::span<const double> values) {
    return median({values.begin(), values.end()});
}

// Below it lies a quarter of them.
double lower_quartile_of(std::span<const double> values) {
    std::vector<double> all(values.begin(), values.end());
    const auto place = all.begin() + std::ptrdiff_t(all.size() / 4);
    std::nth_element(all.begin(), place, all.end());
    return *place;
}

}  // namespace

std::string name_of(Instability::Kind kind) {
    constexpr const char* kNames[] = {"loss_nonfinite", "scale_floor",    "skipped_streak",
                                      "loss_spike",     "gradient_spike", "loss_diverged"};
    return kNames[static_cast<std::size_t>(kind)];
}

double Stability::Window::usual() const {
    return median({values.begin(), values.end()});
}

bool Stability::Window::falls() const {
    const std::vector<double> all(values.begin(), values.end());
    const std::span older = std::span(all).first(all.size() / 2), newer = std::span(all).subspan(all.size() / 2);
    return !older.empty() && median_of(newer) < median_of(older);
}

double Stability::Window::spread(const Bounds& bounds) const {
    const double middle = usual();
    std::vector<double> deviations;
    for (const double v : values) deviations.push_back(std::fabs(v - middle));
    return std::max({kToStandardDeviation * median(std::move(deviations)), bounds.spread,
                     bounds.of_median * std::fabs(middle), 1e-30});
}

std::optional<double> Stability::Window::spike(double value, const Bounds& bounds, const StabilityConfig& config) {
    if (!first) first = value;
    if (std::int64_t(values.size()) < config.window) {
        values.push_back(value);
        return std::nullopt;
    }
    const double middle = usual();
    const double largest = *std::max_element(values.begin(), values.end());
    const double least_spread = std::max({bounds.spread, bounds.of_median * std::fabs(middle), 1e-30});
    const double distance = (value - middle) / spread(bounds);

    const bool is_far = distance > kHalf * config.z_score && value > largest;
    above = is_far ? above + 1 : 0;
    // Alone it must also leave behind the worst of the window, by as much as that lies above the usual.
    const bool stands_out = value > largest + std::max(largest - middle, least_spread) && value > bounds.least;
    const bool lasts = above >= kInARow && value > bounds.least_in_a_row;
    if ((distance > config.z_score && stands_out) || lasts) return distance;
    if (is_far) return std::nullopt;  // one hard batch is not what the next is measured by
    values.push_back(value);
    while (std::int64_t(values.size()) > config.window) values.pop_front();
    return std::nullopt;
}

double Stability::untrained() const {
    return std::max(std::fabs(losses_.first.value_or(0.0)), 1e-6);
}

std::optional<std::int64_t> Stability::good_until() const {
    if (!thrown_) return skipping_since_;
    return std::min(thrown_->at.before.step, skipping_since_.value_or(thrown_->at.before.step));
}

Stability::Bounds Stability::loss_bounds() const {
    return {kOfFirst * untrained(), kOfMedian, kWorseThanFirst * untrained(), 0.0};
}

std::optional<Instability> Stability::judge(const ReportedStep& step) {
    using Kind = Instability::Kind;
    const StepReport& report = step.report;
    const auto found = [&](Kind kind, std::string reason) {
        return Instability{kind, std::move(reason), step, true, step.step(), good_until().value_or(step.before.step)};
    };
    skipping_since_.reset();
    if (report.step.skip) skipping_since_ = step.step() - report.step.skipped_in_a_row;
    if (!std::isfinite(report.loss))
        return found(Kind::loss_nonfinite, std::isnan(report.loss) ? "the loss is NaN" : "the loss is infinite");
    if (report.scale.at_floor)
        return found(Kind::scale_floor,
                     fmt::format("the loss scale is at its floor, {:g}, and still too large", report.scale.scale));
    if (report.step.skipped_in_a_row >= config_.streak)
        return found(Kind::skipped_streak,
                     fmt::format("{} steps in a row were skipped for NaN or Inf", report.step.skipped_in_a_row));
    if (report.step.skip) return std::nullopt;
    return thrown_ ? follow(step) : look(step);
}

// Whether this step stands out.
std::optional<Instability> Stability::look(const ReportedStep& step) {
    using Kind = Instability::Kind;
    const StepReport& report = step.report;
    const auto told = [&](Kind kind, std::string reason) {
        throw_off(step);
        return Instability{kind, std::move(reason), step, false, step.step(), step.before.step};
    };
    if (!losses_.first) losses_.first = report.loss;
    const bool knows_usual = std::int64_t(losses_.values.size()) >= config_.window;
    if (!knows_usual && report.loss > kAstray * untrained())
        return told(Kind::loss_spike, fmt::format("the loss {:.4g} is {:.4g} times that of the untrained network",
                                                  report.loss, report.loss / untrained()));
    const std::optional<double> loss_spike = losses_.spike(report.loss, loss_bounds(), config_);
    const double usual = knows_usual ? losses_.usual() : 0.0;
    if (knows_usual && !at_first_) at_first_ = usual;
    // One batch does not tell how an untrained network does, where batches are small; that all others are worse does,
    // as long as there are few of them. From then on the run is measured by its first window too.
    const bool begins = step.step() <= 2 * config_.window;
    const double before = begins ? untrained() : std::max(untrained(), at_first_.value_or(0.0));
    const bool never_better = knows_usual && *std::ranges::min_element(losses_.values) > before;
    if (never_better && usual > kLearntNothing * before && !losses_.falls())
        return Instability{Kind::loss_diverged,
                           fmt::format("the loss is {:.4g} in the last {} steps, and was {:.4g} untrained", usual,
                                       config_.window, untrained()),
                           step,
                           true,
                           step.step(),
                           step.before.step};
    const double norm = std::log(std::max(double(report.step.grad_norm), 1e-30));
    const double first_norm = norms_.first.value_or(norm);
    const std::optional<double> norm_spike = norms_.spike(norm, {kOfNorm, 0.0, first_norm, first_norm}, config_);
    if (loss_spike)
        return told(Kind::loss_spike, fmt::format("the loss {:.4g} is {:.1f} standard deviations above the last {}",
                                                  report.loss, *loss_spike, config_.window));
    if (norm_spike)
        return told(Kind::gradient_spike,
                    fmt::format("the gradient norm {:.4g} is {:.1f} standard deviations (of its logarithm) above the "
                                "last {}",
                                report.step.grad_norm, *norm_spike, config_.window));
    return std::nullopt;
}

// Back is a run that has lost less than half of what it had learnt, or that is within the noise it had.
void Stability::throw_off(const ReportedStep& step) {
    thrown_ = {step, 0.0, {}, std::int64_t(losses_.values.size()) >= config_.window};
    if (losses_.values.empty()) {
        thrown_->bound = kWorseThanFirst * untrained();
        return;
    }
    const double usual = losses_.usual();
    thrown_->bound = std::max(usual + kHalf * std::max(untrained() - usual, 0.0),
                              usual + kHalf * config_.z_score * losses_.spread(loss_bounds()));
}

// Whether a loss that was thrown off comes back.
std::optional<Instability> Stability::follow(const ReportedStep& step) {
    std::vector<double>& losses = thrown_->losses;
    losses.push_back(step.report.loss);
    const std::size_t n = losses.size();
    if (n < kStretch) return std::nullopt;
    const double recent = median_of(std::span(losses).last(kStretch));
    // Hard batches leave the easy ones as good as they were, and weights that are astray do not. Where nothing is known
    // but the first loss, which may have been that of an easy one, a single loss as good as that tells.
    const std::span both = std::span(losses).last(std::min(n, 2 * kStretch));
    const double good = thrown_->knew_usual ? lower_quartile_of(both) : *std::ranges::min_element(losses);
    const bool good_now_and_then = good <= thrown_->bound;
    if (recent <= thrown_->bound || (good_now_and_then && std::int64_t(n) >= config_.window)) {
        for (const double loss : std::span(losses).last(kStretch)) losses_.values.push_back(loss);
        while (std::int64_t(losses_.values.size()) > config_.window) losses_.values.pop_front();
        losses_.above = norms_.above = 0;
        thrown_.reset();
        return std::nullopt;
    }
    if (n < 2 * kStretch) return std::nullopt;
    const double before = median_of(std::span(losses).last(2 * kStretch).first(kStretch));
    const bool waited = recent > kAstray * untrained() || std::int64_t(n) >= config_.window;
    if (recent < kFalls * before || good_now_and_then || !waited) return std::nullopt;
    Instability found{
        Instability::Kind::loss_diverged,
        fmt::format("the loss has not come back since step {}: {:.4g} in the last {} steps, where at most "
                    "{:.4g} would be as good as before ({:.4g} untrained)",
                    thrown_->at.step(), recent, kStretch, thrown_->bound, untrained()),
        thrown_->at,
        true,
        step.step(),
        thrown_->at.before.step};
    // Who goes on all the same goes on from here.
    losses_.values.assign(losses.end() - std::ptrdiff_t(kStretch), losses.end());
    thrown_.reset();
    return found;
}

nlohmann::json Stability::state() const {
    const auto of = [](const Window& window) {
        nlohmann::json state = {{"values", window.values}, {"above", window.above}};
        if (window.first) state["first"] = *window.first;
        return state;
    };
    nlohmann::json state = {{"losses", of(losses_)}, {"norms", of(norms_)}};
    if (at_first_) state["at_first"] = *at_first_;
    if (skipping_since_) state["skipping_since"] = *skipping_since_;
    if (!thrown_) return state;
    const ReportedStep& at = thrown_->at;
    state["thrown"] = {{"step", at.before.step},   {"epoch", at.before.epoch},
                       {"batch", at.before.batch}, {"rng", {at.rng.seed, at.rng.offset}},
                       {"scale", at.scale_before}, {"loss", at.report.loss},
                       {"bound", thrown_->bound},  {"knew_usual", thrown_->knew_usual},
                       {"losses", thrown_->losses}};
    return state;
}

bool Stability::in_trouble(const nlohmann::json& state) {
    return state.contains("thrown") || state.contains("skipping_since");
}

void Stability::restore(const nlohmann::json& state) {
    const auto fill = [](Window& window, const nlohmann::json& from) {
        window = {from.at("values").get<std::deque<double>>(), {}, from.at("above")};
        if (from.contains("first")) window.first = from.at("first").get<double>();
    };
    fill(losses_, state.at("losses"));
    fill(norms_, state.at("norms"));
    at_first_.reset();
    if (state.contains("at_first")) at_first_ = state.at("at_first").get<double>();
    skipping_since_.reset();
    if (state.contains("skipping_since")) skipping_since_ = state.at("skipping_since").get<std::int64_t>();
    thrown_.reset();
    const auto thrown = state.find("thrown");
    if (thrown == state.end()) return;
    ReportedStep at;
    at.before = {thrown->at("step"), thrown->at("epoch"), thrown->at("batch")};
    at.rng = {thrown->at("rng").at(0), thrown->at("rng").at(1)};
    at.scale_before = thrown->at("scale");
    at.report.loss = thrown->at("loss");
    thrown_ = {at, thrown->at("bound"), thrown->at("losses").get<std::vector<double>>(),
               thrown->value("knew_usual", true)};
}

}  // namespace invar
