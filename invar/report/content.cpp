#include "invar/report/content.h"

#include <algorithm>
#include <cmath>

#include "invar/core/error.h"
#include "invar/report/monitoring.h"
#include "invar/report/text.h"
#include "invar/train/logged_names.h"

namespace invar {

namespace {

using State = CheckItem::State;

// The speed-up that the checklist asks for, and a training run of full length.
constexpr double kSpeedUp = 1.10;
constexpr double kFullEpochs = 10;

std::string bytes_or_unknown(double bytes) {
    return std::isnan(bytes) ? "n/a" : human_bytes(bytes);
}

// Differences too small to be welcome or not.
int sign_of(double from, double to, bool lower_is_better, double threshold) {
    const double change = (to - from) / std::fabs(from);
    if (!std::isfinite(change) || std::fabs(change) < threshold) return 0;
    return (change < 0) == lower_is_better ? 1 : -1;
}

std::vector<std::string> purposes_of(const Arm& a, const Arm& b) {
    std::vector<std::string> names = {"activations", "weights",   "masters", "gradients",
                                      "optimizer",   "workspace", "data"};
    for (const Arm* arm : {&a, &b})
        for (const auto& entry : arm->memory)
            if (std::find(names.begin(), names.end(), entry.first) == names.end() && entry.first != "total")
                names.push_back(entry.first);
    names.insert(names.begin(), "total");
    std::erase_if(
        names, [&](const std::string& name) { return std::isnan(a.memory_of(name)) && std::isnan(b.memory_of(name)); });
    return names;
}

std::string plural(double n, const char* word) {
    return fmt::format("{:.0f} {}{}", n, word, n == 1 ? "" : "s");
}

std::string epochs_text(double epochs) {
    return epochs < 1 ? "less than one epoch" : plural(std::floor(epochs), "epoch");
}

std::string length_of(const Arm& arm) {
    if (arm.runs.empty()) return "no run finished";
    const RunRecord& run = arm.runs.front();
    std::string text = plural(double(arm.runs.size()), "run");
    if (std::isfinite(run.steps)) text += " of " + plural(run.steps, "step");
    if (std::isfinite(run.epochs)) text += (run.epochs < 1 ? ", " : " in ") + epochs_text(run.epochs);
    return text + (arm.runs.size() > 1 ? " each" : "");
}

// Why there is no figure.
std::string unmeasured(const Arm& arm, const std::string& missing) {
    return arm.runs.empty() ? "not measured: no run of it finished" : "not measured: the logs hold " + missing;
}

CheckItem finite_item(const Arm& arm) {
    if (arm.runs.empty() && arm.verdict == Verdict::invalid)
        return {State::open, "Check for NaN/Inf values in logs", "it was not trained"};
    const bool good = (!arm.failed() || arm.verdict == Verdict::invalid) && arm.all_finite();
    std::string measured = good ? "none in losses and final weights" : "found, or the run broke off";
    if (good && arm.runs.front().precision.empty()) measured = "none in the logged losses and metrics";
    if (std::isfinite(arm.skipped)) measured += fmt::format("; {} steps skipped for NaN or Inf", skipped_of(arm));
    if (std::isfinite(arm.final_scale)) measured += fmt::format(", final loss scale {:g}", arm.final_scale);
    if (const std::size_t times = arm.recoveries(); times > 0)
        measured += fmt::format("; recovered {} from instability", plural(double(times), "time"));
    return {good && arm.recoveries() == 0 ? State::done : State::open, "Check for NaN/Inf values in logs", measured};
}

CheckItem norm_item(const Comparison& c, const Arm& arm, const ReportContext& context) {
    const std::string what = "Validate gradient norms are stable";
    if (std::isnan(arm.grad_norm_ratio)) return {State::unknown, what, unmeasured(arm, "no gradient norm")};
    const bool stable = !arm.failed() && arm.grad_norm_ratio >= 1 / kNormFactor && arm.grad_norm_ratio <= kNormFactor;
    return {stable ? State::done : State::open, what,
            fmt::format("largest {} against {} in {}: {:.3g}x, allowed {:g}x either way", known(arm.max_grad_norm),
                        known(c.baseline.max_grad_norm), context.baseline, arm.grad_norm_ratio, kNormFactor)};
}

CheckItem memory_item(const Comparison& c, const Arm& arm) {
    const std::string what = "Confirm memory is down";
    const double from = c.baseline.memory_of("total"), to = arm.memory_of("total");
    if (std::isnan(from) || std::isnan(to)) return {State::unknown, what, unmeasured(arm, "no peak memory")};
    std::string measured = "total " + report_change(from, to);
    const double before = c.baseline.memory_of("activations"), after = arm.memory_of("activations");
    if (std::isfinite(before) && std::isfinite(after)) measured += ", activations " + report_change(before, after);
    return {!arm.failed() && to < from ? State::done : State::open, what, measured};
}

}  // namespace

std::string approval_note(const Comparison& c) {
    constexpr const char* kNotes[] = {
        "Validated for production use, as far as figures can tell. The rest is for people to decide.",
        "Consider additional validation before anything is approved.",
        "Not recommended: take the difference for numerical instability until its cause is known.",
        "Nothing was validated: the baseline gives nothing to compare with."};
    return kNotes[static_cast<int>(c.verdict)];
}

std::vector<std::string> approval_items(const Comparison& c) {
    std::vector<std::string> items;
    for (const Arm& arm : c.candidates)
        items.push_back(fmt::format("{} approved for production use ({})", arm.name, name_of(arm.verdict)));
    return items;
}

std::vector<std::string> recoveries_of(const Arm& arm) {
    std::vector<std::string> all;
    for (const RunRecord& run : arm.runs)
        for (const std::string& recovery : run.recoveries)
            all.push_back(arm.runs.size() > 1 ? fmt::format("{}: {}", run.name, recovery) : recovery);
    return all;
}

std::string known(double value) {
    return std::isnan(value) ? "n/a" : report_number(value);
}

std::string metric_text(const Comparison& c, double value) {
    return c.percent && std::isfinite(value) ? fmt::format("{:.2f}%", 100 * value) : known(value);
}

std::string noise_text(const Comparison& c) {
    if (!c.noise) return "";
    const auto text = [&](double value) {
        return c.percent ? fmt::format("{:.3g} points", 100 * value) : report_number(value);
    };
    std::string all;
    if (std::isfinite(c.noise->spread))
        all = fmt::format("{} over {} runs", text(c.noise->spread), c.baseline.runs.size());
    if (c.noise->samples > 0)
        all += fmt::format("{}{} by the choice of {} samples, of which one is {}", all.empty() ? "" : "; ",
                           text(c.noise->sampling_error), c.noise->samples, text(c.noise->resolution));
    return all.empty() ? all : "standard deviation " + all;
}

std::string skipped_of(const Arm& arm) {
    const double n = double(arm.runs.size());
    return std::isnan(arm.skipped) ? "n/a" : fmt::format("{:.0f} of {:.0f}", n * arm.skipped, n * arm.steps);
}

std::vector<ResultRow> result_rows(const Comparison& c, const Arm& arm) {
    const Arm& base = c.baseline;
    std::vector<ResultRow> rows;
    const auto add = [&](const std::string& name, double from, double to, auto text, int good = 0) {
        if (std::isnan(from) && std::isnan(to)) return;
        rows.push_back({name, text(from), text(to), report_change(from, to), good});
    };
    const auto duration = [](double seconds) { return report_duration(seconds); };
    const auto as_metric = [&](double value) { return metric_text(c, value); };
    add(c.metric, base.metric, arm.metric, as_metric,
        sign_of(base.metric, arm.metric, c.direction == Better::lower, c.limits.relative_to(base.metric).margin));
    if (!rows.empty() && arm.failed()) rows.back().change = "not compared:", rows.back().good = -1;
    if (!rows.empty()) rows.back().change += fmt::format(" {}", name_of(arm.verdict));
    if (c.metric != "val_loss") add("val_loss", base.val_loss, arm.val_loss, known);
    add(logged::kLoss, base.train_loss, arm.train_loss, known);
    // A gain in speed is worth nothing where the result is not, or where the machine had other things to do.
    const bool judged = arm.disturbed.empty() && arm.verdict < Verdict::fail;
    const auto add_time = [&](const std::string& name, double from, double to, auto text, bool lower) {
        const std::size_t before = rows.size();
        add(name, from, to, text, judged ? sign_of(from, to, lower, 0.02) : 0);
        if (rows.size() > before && !arm.disturbed.empty()) rows.back().change = "disturbed";
    };
    add_time("Training Time", base.train_seconds, arm.train_seconds, duration, true);
    add_time(logged::kSamplesPerS, base.samples_per_s, arm.samples_per_s, known, false);
    add_time("tokens_per_s", base.tokens_per_s, arm.tokens_per_s, known, false);
    const auto percent = [](double share) { return std::isnan(share) ? "n/a" : fmt::format("{:.3g}%", 100 * share); };
    add_time(logged::kMfu, base.mfu, arm.mfu, percent, false);
    add(logged::kMaxGradNorm, base.max_grad_norm, arm.max_grad_norm, known);
    for (const std::string& purpose : purposes_of(base, arm))
        add(purpose == "total" ? "Memory Usage" : "Memory: " + purpose, base.memory_of(purpose), arm.memory_of(purpose),
            bytes_or_unknown,
            purpose == "total" ? sign_of(base.memory_of(purpose), arm.memory_of(purpose), true, 0.01) : 0);
    return rows;
}

std::vector<CheckItem> checklist(const Comparison& c, const Arm& arm, const ReportContext& context) {
    const Arm& base = c.baseline;
    const bool ran = !arm.failed();
    const auto state = [](bool done) { return done ? State::done : State::open; };
    const std::string on = context.validated_on.empty() ? "" : "; " + context.validated_on;
    std::vector<CheckItem> items;
    items.push_back({state(!base.failed() && !base.runs.empty()),
                     fmt::format("Run {} baseline", context.baseline == "FP32" ? "FP32" : "the"),
                     length_of(base) + on});
    items.push_back({state(ran && !arm.runs.empty()), fmt::format("Run {} test", arm.name), length_of(arm) + on});
    const double difference = std::fabs(arm.equivalence.difference);
    std::string measured = !ran                        ? "nothing to compare"
                           : std::isfinite(difference) ? fmt::format("measured {:.2f}%", 100 * difference)
                                                       : arm.reason;
    if (ran && arm.equivalence.tested) measured += ", 90% interval " + arm.equivalence.ninety.str();
    items.push_back({state(ran && arm.verdict == Verdict::pass),
                     fmt::format("Verify {} difference < {}", c.metric, c.limits.str(c.limits.margin)), measured});
    items.push_back(finite_item(arm));
    items.push_back(norm_item(c, arm, context));
    if (!arm.disturbed.empty())
        items.push_back({State::unknown, "Confirm speedup > 10%", "not judged: " + arm.disturbed});
    else if (std::isnan(arm.speed_up))
        items.push_back({State::unknown, "Confirm speedup > 10%", unmeasured(arm, "neither speed nor time")});
    else
        items.push_back({state(arm.verdict < Verdict::fail && arm.speed_up > kSpeedUp), "Confirm speedup > 10%",
                         fmt::format("measured {:.2f}x the speed of {}", arm.speed_up, context.baseline)});
    items.push_back(memory_item(c, arm));
    items.push_back({State::done, "Document validation results", "this report"});
    items.push_back({State::todo, "Get team approval", "to be signed under Approval"});
    const double epochs = arm.runs.empty() ? kUnknown : arm.runs.front().epochs;
    items.push_back({std::isnan(epochs) && ran ? State::unknown : state(ran && epochs >= kFullEpochs),
                     "Test on full training run (10+ epochs)",
                     std::isnan(epochs) ? "not measured" : "these runs have " + epochs_text(epochs)});
    items.push_back({State::todo, "Monitor production metrics closely", "after this report"});
    return items;
}

std::vector<std::pair<std::string, std::string>> statistics_rows(const Comparison& c, const Arm& arm) {
    const Equivalence& e = arm.equivalence;
    if (!e.tested || arm.failed()) return {};
    const auto p = [](double value) { return value < 1e-4 ? std::string("< 0.0001") : fmt::format("{:.4f}", value); };
    std::string further = "none, it is decided";
    if (!e.further_seeds)
        further = "no number would decide it";
    else if (*e.further_seeds > 0)
        further = fmt::format("about {} more", *e.further_seeds);
    std::vector<std::pair<std::string, std::string>> rows = {
        {"Test", fmt::format("two one-sided t-tests, {}",
                             e.paired ? "paired by seed" : "Welch: the arms' seeds differ or are not known")},
        {"Runs", fmt::format("{} baseline, {} candidate", c.baseline.runs.size(), arm.runs.size())},
        {"Difference", signed_percent(e.difference, 3) + " of the baseline's mean"},
        {"Standard error", fmt::format("{:.3f}%, {:.3g} degrees of freedom", 100 * e.standard_error, e.degrees)},
        {"90% interval", e.ninety.str(3)},
        {"95% interval", e.ninety_five.str(3)},
        {"p, not within " + c.limits.str(c.limits.margin), p(e.p_equivalent)},
        {"p, not beyond " + c.limits.str(c.limits.harm), p(e.p_harm)},
        {"Seeds still needed", further}};
    if (e.sampling_error > 0)
        rows.insert(rows.begin() + 4,
                    {"Sampling error", fmt::format("{:.3f}%, of {} samples", 100 * e.sampling_error, c.samples)});
    if (e.enough_samples > 0)
        rows.emplace_back("Samples that could show equivalence", fmt::format("at least {}", e.enough_samples));
    return rows;
}

std::vector<ResultRow> seed_rows(const Comparison& c, const Arm& arm) {
    const std::vector<RunRecord>& base = c.baseline.runs;
    if (std::max(base.size(), arm.runs.size()) < 2) return {};
    std::vector<ResultRow> rows;
    const auto partner = [&](const RunRecord& run) -> const RunRecord* {
        for (const RunRecord& other : arm.runs)
            if (run.seed && other.seed == run.seed) return &other;
        return nullptr;
    };
    const bool paired = arm.equivalence.paired;
    for (std::size_t i = 0; i < std::max(base.size(), arm.runs.size()); ++i) {
        const RunRecord* a = i < base.size() ? &base[i] : nullptr;
        const RunRecord* b = paired && a != nullptr ? partner(*a) : i < arm.runs.size() ? &arm.runs[i] : nullptr;
        const double from = a != nullptr ? a->metric : kUnknown, to = b != nullptr ? b->metric : kUnknown;
        const auto seed = [](const RunRecord* run) {
            return run != nullptr && run->seed ? std::to_string(*run->seed) : std::string("-");
        };
        rows.push_back({paired ? seed(a) : fmt::format("{} / {}", seed(a), seed(b)), metric_text(c, from),
                        metric_text(c, to), paired ? report_change(from, to) : "-"});
    }
    return rows;
}

std::vector<std::string> limits_of(const Comparison& c) {
    std::vector<std::string> texts;
    for (const std::string& warning : c.warnings) texts.push_back("Warning: " + warning + ".");
    for (const Arm& arm : c.candidates)
        if (const std::string& caveat = arm.equivalence.caveat;
            !caveat.empty() && !arm.failed() && std::find(texts.begin(), texts.end(), caveat) == texts.end())
            texts.push_back(caveat);
    const std::size_t runs = c.baseline.runs.size();
    if (runs == 1) texts.emplace_back("Repeat with three seeds or more (`--seeds 3`) before a decision that matters.");
    if (runs > 1)
        texts.push_back(
            fmt::format("With {} runs an arm, a PASS means that a difference of {} or more would have shown itself "
                        "19 times out of 20. It holds for these data, this length of training and these settings. The "
                        "margin is a share of the baseline's mean, which is taken as known.",
                        runs, c.limits.str(c.limits.margin)));
    if (runs > 1 && c.samples > 0)
        texts.push_back(fmt::format(
            "The {} samples that were validated on are taken for a random choice. Errors of different runs are taken "
            "as independent of each other, and a difference as one that may lie on single samples.",
            c.samples));
    if (c.candidates.size() > 1 && runs > 1)
        texts.push_back(fmt::format(
            "Each of the {} candidates is tested by itself at that level; among many, one may pass by chance.",
            c.candidates.size()));
    for (const Arm& arm : c.candidates)
        if (!arm.disturbed.empty()) {
            texts.push_back("Speed was disturbed and is not judged: " + arm.disturbed + ".");
            break;
        }
    texts.emplace_back(c.one_go ? "Times were measured on one machine in one go, and hold for it alone."
                                : "Times were not measured in one go: each is that of its run, and holds for the "
                                  "machine, and for what else ran on it, at that time.");
    return texts;
}

}  // namespace invar
