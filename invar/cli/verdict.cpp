#include "invar/cli/verdict.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "invar/cli/console.h"
#include "invar/core/error.h"
#include "invar/report/content.h"
#include "invar/report/text.h"
#include "invar/train/logged_names.h"

namespace invar::cli {

namespace {

Colour colour_of(Verdict verdict) {
    constexpr Colour kColours[] = {Colour::green, Colour::yellow, Colour::red, Colour::red};
    return kColours[static_cast<int>(verdict)];
}

std::string table_of(const Comparison& c) {
    bool tested = false, skips = false;
    for (const Arm& arm : c.candidates)
        tested = tested || arm.equivalence.tested, skips = skips || std::isfinite(arm.skipped);
    const bool memory = std::isfinite(c.baseline.memory_of("total"));
    const bool purposes = std::isfinite(c.baseline.memory_of("activations"));
    const bool by_precision = c.baseline.runs.empty() || c.baseline.runs.front().precision == c.baseline.name;
    std::vector<std::string> header = {by_precision ? "precision" : "run", c.metric, "difference"};
    if (tested) header.emplace_back("90% interval");
    const bool timed = std::isfinite(c.baseline.train_seconds);
    const bool raced = std::ranges::any_of(c.candidates, [](const Arm& arm) { return std::isfinite(arm.speed_up); });
    if (timed) header.emplace_back("time");
    if (raced) header.emplace_back("speed");
    if (purposes) header.emplace_back("peak activations");
    if (memory) header.emplace_back("total memory");
    if (skips) header.emplace_back("skipped");
    header.emplace_back("verdict");
    Table table(header);
    const auto add = [&](const Arm& arm, bool baseline) {
        const Equivalence& e = arm.equivalence;
        const auto bytes = [](double value) { return std::isnan(value) ? std::string("-") : human_bytes(value); };
        const bool compared = !baseline && !arm.failed() && std::isfinite(e.difference);
        std::vector<std::string> row = {arm.name, std::isnan(arm.metric) ? "-" : metric_text(c, arm.metric),
                                        compared ? signed_percent(e.difference) : "-"};
        if (tested) row.push_back(compared && e.tested ? e.ninety.str() : "-");
        if (timed) row.push_back(std::isnan(arm.train_seconds) ? "-" : human_seconds(arm.train_seconds));
        if (raced)
            row.push_back(std::isnan(arm.speed_up) || arm.runs.empty() ? "-" : fmt::format("{:.2f}x", arm.speed_up));
        if (purposes) row.push_back(bytes(arm.memory_of("activations")));
        if (memory) row.push_back(bytes(arm.memory_of("total")));
        if (skips)
            row.push_back(std::isnan(arm.skipped) ? "-" : fmt::format("{:.0f}", arm.skipped * double(arm.runs.size())));
        row.push_back(baseline
                          ? (arm.failed() ? paint(colour_of(Verdict::invalid), name_of(Verdict::invalid)) : "baseline")
                          : paint(colour_of(arm.verdict), name_of(arm.verdict)));
        table.row(row);
    };
    add(c.baseline, true);
    for (const Arm& arm : c.candidates) add(arm, false);
    return table.fitted("  ", {"peak activations", "skipped", "time", "total memory", "speed", "90% interval"});
}

JsonLine json_of(const Comparison& c, const Arm& arm, bool baseline) {
    JsonLine line;
    line.add("name", arm.name);
    // Only validation has arms without a run, and calls them by their precision.
    const std::string& precision = arm.runs.empty() ? arm.name : arm.runs[0].precision;
    if (!precision.empty()) line.add("precision", precision);
    line.add("role", baseline ? "baseline" : "candidate").add("runs", arm.runs.size());
    const auto number = [&](std::string_view key, double value) {
        if (std::isfinite(value)) line.add(key, value);
    };
    number(c.metric, arm.metric);
    if (c.metric != "val_loss") number("val_loss", arm.val_loss);
    number(logged::kLoss, arm.train_loss);
    number("train_seconds", arm.train_seconds);
    number(logged::kSamplesPerS, arm.samples_per_s);
    number("tokens_per_s", arm.tokens_per_s);
    number(logged::kMfu, arm.mfu);
    number(logged::kMaxGradNorm, arm.max_grad_norm);
    number("steps", arm.steps);
    number(logged::kSkipped, arm.skipped);
    number(logged::kScale, arm.final_scale);
    if (!arm.runs.empty()) line.add("all_finite", arm.all_finite());
    if (!arm.memory.empty()) {
        JsonLine memory;
        for (const auto& [name, bytes] : arm.memory) memory.add(name, std::int64_t(bytes));
        line.add(logged::kPeakBytes, memory);
    }
    if (baseline && c.noise) {
        JsonLine noise;
        const auto known = [&](std::string_view key, double value) {
            if (std::isfinite(value)) noise.add(key, value);
        };
        known("spread", c.noise->spread);
        if (c.noise->samples > 0) noise.add("samples", c.noise->samples);
        known("resolution", c.noise->resolution);
        known("sampling_error", c.noise->sampling_error);
        line.add("noise", noise);
    }
    if (baseline) return line;
    const Equivalence& e = arm.equivalence;
    if (!arm.failed()) number("difference", e.difference);
    number("speed_up", arm.speed_up);
    if (!arm.disturbed.empty()) line.add("disturbed", arm.disturbed);
    number("grad_norm_ratio", arm.grad_norm_ratio);
    if (e.tested) {
        line.add("paired", e.paired).add("low_90", e.ninety.low).add("high_90", e.ninety.high);
        line.add("low_95", e.ninety_five.low).add("high_95", e.ninety_five.high);
        line.add("p_equivalent", e.p_equivalent).add("p_harm", e.p_harm);
        if (e.further_seeds) line.add("further_seeds", *e.further_seeds);
        if (e.sampling_error > 0) line.add("sampling_error", e.sampling_error);
        if (e.enough_samples > 0) line.add("enough_samples", e.enough_samples);
    }
    return line.add("verdict", name_of(arm.verdict)).add("reason", arm.reason);
}

}  // namespace

int show_verdict(const Comparison& c, const ReportFiles& files, bool json, JsonLine more) {
    if (json) {
        say(json_of(c, c.baseline, true).text());
        for (const Arm& arm : c.candidates) say(json_of(c, arm, false).text());
        more.add("verdict", name_of(c.verdict)).add("reason", c.reason).add("metric", c.metric);
        more.add("better", c.direction == Better::higher ? "higher" : "lower");
        if (!c.warnings.empty()) more.add("warnings", fmt::format("{}", fmt::join(c.warnings, "; ")));
        if (!files.markdown.empty())
            more.add("report", files.markdown.string())
                .add("report_html", files.html.string())
                .add("report_json", files.json.string());
        say(more.text());
    } else {
        for (const std::string& warning : c.warnings) warn("warning: " + warning);
        say(table_of(c));
        if (const Arm& first = c.candidates.front(); !first.disturbed.empty())
            say("speed was disturbed and is not judged: " + first.disturbed);
        if (const std::string noise = noise_text(c); !noise.empty()) say("noise of the baseline: " + noise);
        say(fmt::format("{}: {}", paint(colour_of(c.verdict), name_of(c.verdict)), c.reason));
        if (!files.markdown.empty()) say(fmt::format("report: {} (also .json, .html)", files.markdown.string()));
    }
    constexpr int kExitCodes[] = {0, 3, 1, 4};
    return kExitCodes[static_cast<int>(c.verdict)];
}

}  // namespace invar::cli
