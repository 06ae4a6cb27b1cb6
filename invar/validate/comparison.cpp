#include "invar/validate/comparison.h"

#include <algorithm>
#include <cmath>

#include "invar/core/cpu_use.h"
#include "invar/core/error.h"
#include "invar/core/shell.h"

namespace invar {

namespace {

double amount(const std::vector<std::pair<std::string, double>>& memory, std::string_view purpose) {
    for (const auto& [name, bytes] : memory)
        if (name == purpose) return bytes;
    return kUnknown;
}

// The last value of the first of these series that the log has.
double last_of(const RunLog& log, const std::vector<std::string>& wanted) {
    const std::optional<std::string> name = find_any(wanted, log.names());
    return name ? log.series.at(*name).y.back() : kUnknown;
}

Series curve_of(const RunLog& log, const std::vector<std::string>& wanted) {
    const std::optional<std::string> name = find_any(wanted, log.names());
    return name ? log.series.at(*name) : Series{};
}

// How many there were: most loggers count them from 0, some write what has passed as a fraction.
double epochs_of(const RunLog& log) {
    if (const double count = last_of(log, {"epochs"}); !std::isnan(count)) return count;
    const std::vector<double> numbers = curve_of(log, {"epoch"}).y;
    const auto whole = [](double number) { return number == std::floor(number); };
    const bool from_zero =
        !numbers.empty() && numbers.front() == 0 && std::all_of(numbers.begin(), numbers.end(), whole);
    return numbers.empty() ? kUnknown : numbers.back() + (from_zero ? 1 : 0);
}

std::string first_not_finite(const std::string& name, const Series& series) {
    for (std::size_t i = 0; i < series.y.size(); ++i)
        if (!std::isfinite(series.y[i]))
            return fmt::format("{} is {} at step {:g}", name, std::isnan(series.y[i]) ? "NaN" : "infinite",
                               series.x[i]);
    return "";
}

}  // namespace

double RunRecord::memory_of(std::string_view purpose) const {
    return amount(memory, purpose);
}
std::size_t Arm::recoveries() const {
    std::size_t all = 0;
    for (const RunRecord& run : runs) all += run.recoveries.size();
    return all;
}

double Arm::memory_of(std::string_view purpose) const {
    return amount(memory, purpose);
}

Outcomes Arm::outcomes() const {
    Outcomes outcomes;
    for (const RunRecord& run : runs) outcomes.push_back({run.metric, run.seed});
    return outcomes;
}

bool Arm::all_finite() const {
    return std::all_of(runs.begin(), runs.end(), [](const RunRecord& run) { return run.not_finite.empty(); });
}

RunRecord record_of(const RunLog& log, const std::string& metric, Better direction, Take take) {
    RunRecord run;
    run.name = log.source;
    run.metric_curve = log.at(metric);
    const std::vector<double>& values = run.metric_curve.y;
    run.metric = values.back();
    if (take == Take::best && std::isfinite(run.metric))
        run.metric = direction == Better::higher ? *std::max_element(values.begin(), values.end())
                                                 : *std::min_element(values.begin(), values.end());
    run.loss = curve_of(log, loss_names());
    run.scale = curve_of(log, scale_names());
    // A loss that is multiplied by 1 is not scaled.
    if (std::all_of(run.scale.y.begin(), run.scale.y.end(), [](double scale) { return scale == 1; })) run.scale = {};
    run.grad_norm = curve_of(log, gradient_norm_names());
    if (!run.loss.empty()) run.train_loss = run.loss.y.back();
    if (!run.scale.empty()) run.final_scale = run.scale.y.back();
    for (const double norm : run.grad_norm.y)
        if (std::isfinite(norm) && !(norm <= run.max_grad_norm)) run.max_grad_norm = norm;

    const std::vector<std::string> held_out_losses{"val_loss",  "val_loss_epoch", "valid_loss",     "validation_loss",
                                                   "eval_loss", "test_loss",      "test_loss_epoch"};
    run.val_loss = last_of(log, held_out_losses);
    run.train_seconds = last_of(log, seconds_names());
    run.waited_share = last_of(log, {"waited_share"});
    run.skipped = last_of(log, {"skipped_steps", "skipped", "overflow_count"});
    run.epochs = epochs_of(log);
    run.samples = last_of(log, {"val_samples"});
    run.steps = last_of(log, {"steps", "step", "global_step", "trainer_global_step", "_step", "iteration"});
    // A speed is logged in pieces; all of them together tell more than the last one.
    if (const Series speed = curve_of(log, speed_names()); !speed.empty()) {
        run.samples_per_s = 0.0;
        for (const double value : speed.y) run.samples_per_s += value / double(speed.y.size());
    }
    run.tokens_per_s = last_of(log, {"tokens_per_s"});
    run.mfu = last_of(log, {"mfu"});
    constexpr std::string_view kPurposePrefix = "peak_bytes.", kNormPrefix = "grad_norms.",
                               kSmallPrefix = "small_grad_norms.";
    for (const auto& [name, series] : log.series) {
        run.gradients_watched = run.gradients_watched || name.starts_with(kNormPrefix);
        if (name.starts_with(kSmallPrefix))
            run.small_gradients.emplace_back(name.substr(kSmallPrefix.size()), std::ranges::min(series.y));
        if (name.starts_with(kPurposePrefix) && !name.ends_with(".total"))
            run.memory.emplace_back(name.substr(kPurposePrefix.size()), series.y.back());
    }
    if (const double total = last_of(log, memory_names()); std::isfinite(total))
        run.memory.emplace_back("total", total);

    run.not_finite = first_not_finite("loss", run.loss);
    if (run.not_finite.empty()) run.not_finite = first_not_finite(metric, run.metric_curve);
    if (const auto name = find_any(held_out_losses, log.names()); name && run.not_finite.empty())
        run.not_finite = first_not_finite(*name, log.series.at(*name));
    return run;
}

void sum_up(Arm& arm) {
    if (arm.runs.empty()) return;
    const double n = double(arm.runs.size());
    const auto sum = [&](double RunRecord::*member) {
        double total = 0.0;
        for (const RunRecord& run : arm.runs) total += run.*member;  // one that is not known makes the sum unknown
        return total;
    };
    arm.metric = sum(&RunRecord::metric) / n;
    arm.val_loss = sum(&RunRecord::val_loss) / n;
    arm.train_loss = sum(&RunRecord::train_loss) / n;
    arm.train_seconds = sum(&RunRecord::train_seconds) / n;
    double seconds_a_sample = 0.0;
    for (const RunRecord& run : arm.runs) seconds_a_sample += 1 / run.samples_per_s / n;
    arm.samples_per_s = 1 / seconds_a_sample;
    arm.tokens_per_s = sum(&RunRecord::tokens_per_s) / n;
    arm.mfu = sum(&RunRecord::mfu) / n;
    arm.skipped = sum(&RunRecord::skipped) / n;
    arm.steps = sum(&RunRecord::steps) / n;
    arm.final_scale = arm.runs.back().final_scale;
    arm.max_grad_norm = kUnknown;
    arm.waited_share = kUnknown;
    arm.memory.clear();
    for (const RunRecord& run : arm.runs) {
        if (!(run.waited_share <= arm.waited_share) && std::isfinite(run.waited_share))
            arm.waited_share = run.waited_share;
        if (!(run.max_grad_norm <= arm.max_grad_norm) && std::isfinite(run.max_grad_norm))
            arm.max_grad_norm = run.max_grad_norm;
        if (arm.memory.empty() || run.memory_of("total") > arm.memory_of("total")) arm.memory = run.memory;
    }
}

namespace {

std::string disturbance(const Arm& arm, const Arm& baseline) {
    if (arm.runs.empty()) return "";  // there are no times of it
    const std::string first = disturbance_of(baseline.waited_share, baseline.name);
    return first.empty() ? disturbance_of(arm.waited_share, arm.name) : first;
}

// All must have learned: a mean over some that did and some that did not is no baseline.
void fail_where_not_learned(Arm& baseline) {
    std::string names;
    int failed = 0;
    for (const RunRecord& run : baseline.runs) {
        if (run.not_learned.empty()) continue;
        ++failed;
        const std::string name = run.seed ? fmt::format("seed {}", *run.seed) : run.name;
        names += fmt::format("{}{}: {}", names.empty() ? "" : "; ", name, run.not_learned);
    }
    if (failed == 0 || baseline.failed()) return;
    if (baseline.runs.size() == 1)
        baseline.failure = "it is not shown to have learned: " + baseline.runs[0].not_learned;
    else
        baseline.failure = fmt::format("{} of its {} runs are not shown to have learned, and all must: {}", failed,
                                       baseline.runs.size(), names);
}

// The command that tells more of the first run of ours, "" where there is none.
std::string more_of(const std::vector<RunRecord>& runs) {
    for (const RunRecord& run : runs)
        if (!run.folder.empty()) return "; more: " + program_name() + " diagnose " + shell_word(run.folder.string());
    return "";
}

// A run with NaN or Inf leaves its arm nothing to compare; one of ours can be asked for more.
void fail_where_not_finite(Arm& arm) {
    for (const RunRecord& run : arm.runs) {
        if (run.not_finite.empty()) continue;
        if (!arm.failed()) arm.failure = arm.runs.size() > 1 ? run.name + ": " + run.not_finite : run.not_finite;
        if (!run.folder.empty() && !std::exchange(arm.names_command, true)) arm.failure += more_of({run});
        return;
    }
}

}  // namespace

void compare(Arm& arm, const Comparison& comparison) {
    const Arm& baseline = comparison.baseline;
    const auto ratio = [](double a, double b) { return b > 0 ? a / b : kUnknown; };
    arm.speed_up = ratio(arm.samples_per_s, baseline.samples_per_s);
    if (std::isnan(arm.speed_up)) arm.speed_up = ratio(baseline.train_seconds, arm.train_seconds);
    arm.disturbed = disturbance(arm, baseline);
    if (!arm.disturbed.empty()) arm.speed_up = kUnknown;
    arm.grad_norm_ratio = ratio(arm.max_grad_norm, baseline.max_grad_norm);
    arm.equivalence =
        test_equivalence(baseline.outcomes(), arm.outcomes(), comparison.metric, comparison.limits, comparison.samples);
    arm.verdict = arm.equivalence.verdict;
    arm.reason = arm.equivalence.reason;
    if (const double difference = arm.equivalence.difference;
        !arm.failed() && arm.verdict == Verdict::fail && std::isfinite(difference) && difference != 0) {
        const bool better = (difference > 0) == (comparison.direction == Better::higher);
        if (better) arm.reason += "; it is better, but precision alone should not change it so much";
    }
    fail_where_not_finite(arm);
    if (!arm.broke.empty()) arm.reason += "; " + arm.broke;
    if (const std::size_t times = arm.recoveries(); times > 0) {
        // What ended well is not the candidate as it was asked for.
        arm.verdict = std::max(arm.verdict, Verdict::marginal);
        arm.reason += fmt::format("; it became unstable and was recovered {} time{}", times, times == 1 ? "" : "s");
    }
    const bool told_where = !arm.broke.empty();
    if (!arm.failed() && arm.verdict == Verdict::fail && !told_where) arm.reason += more_of(arm.runs);
    if (!arm.failed()) return;
    arm.verdict = baseline.failed() ? Verdict::invalid : Verdict::fail;
    arm.reason = arm.failure;
}

void conclude(Comparison& comparison) {
    const Arm& baseline = comparison.baseline;
    if (baseline.failed()) {
        comparison.verdict = Verdict::invalid;
        comparison.reason = "the baseline gives nothing to compare with: " + baseline.failure;
        return;
    }
    comparison.verdict = Verdict::pass;
    comparison.reason.clear();
    for (const Arm& arm : comparison.candidates) comparison.verdict = std::max(comparison.verdict, arm.verdict);
    for (const Arm& arm : comparison.candidates) {
        if (arm.verdict != comparison.verdict) continue;
        comparison.reason += (comparison.reason.empty() ? "" : "; ") + arm.name + ": " + arm.reason;
    }
}

std::int64_t samples_behind(const Comparison& comparison) {
    double fewest = std::numeric_limits<double>::infinity();
    bool known = !comparison.baseline.runs.empty();
    const auto each_arm = [&](const auto& look) {
        look(comparison.baseline);
        for (const Arm& arm : comparison.candidates) look(arm);
    };
    each_arm([&](const Arm& arm) {
        for (const RunRecord& run : arm.runs) {
            known = known && run.samples >= 1;
            fewest = std::min(fewest, run.samples);
        }
    });
    if (!known) return 0;
    each_arm([&](const Arm& arm) { known = known && are_shares_of(arm.outcomes(), std::int64_t(fewest)); });
    return known ? std::int64_t(fewest) : 0;
}

void decide(Comparison& comparison) {
    Arm& baseline = comparison.baseline;
    sum_up(baseline);
    if (comparison.samples == 0) comparison.samples = samples_behind(comparison);
    if (!baseline.runs.empty()) comparison.noise = noise_of(baseline.outcomes(), comparison.samples);
    fail_where_not_finite(baseline);
    fail_where_not_learned(baseline);
    for (Arm& arm : comparison.candidates) {
        sum_up(arm);
        if (baseline.failed() && !arm.failed())
            arm.failure = "not compared: the baseline gives nothing to compare with";
        compare(arm, comparison);
    }
    conclude(comparison);
}

}  // namespace invar
