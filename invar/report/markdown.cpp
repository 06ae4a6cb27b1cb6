#include "invar/report/markdown.h"

#include <fmt/ranges.h>

#include <chrono>
#include <cmath>
#include <ctime>
#include <fstream>

#include "invar/core/error.h"
#include "invar/io/file.h"
#include "invar/kernels/kernels.h"
#include "invar/report/text.h"

namespace invar {

namespace {

// The speed-up and the gradient norms that the checklist asks for.
constexpr double kSpeedUp = 1.10;
constexpr double kNormFactor = 2.0;

std::string cpu_model() {
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);)
        if (line.starts_with("model name") && line.find(": ") != line.npos) return line.substr(line.find(": ") + 2);
    return "unknown CPU";
}

// The overrides without those that choose a precision: the report's commands choose it themselves.
std::vector<std::string> without_precision(const std::vector<std::string>& overrides) {
    std::vector<std::string> kept;
    for (const std::string& word : overrides) {
        const std::string key = word.substr(0, word.find('='));
        const bool chooses = key.find("precision") != key.npos || key.ends_with("amp_level");
        if (!chooses) kept.push_back(word);
    }
    return kept;
}

std::string command(const char* verb, const ReportContext& context, const std::vector<std::string>& words) {
    std::vector<std::string> all = {"invar", verb};
    if (!context.config.empty()) all.push_back(shell_word(context.config));
    for (const std::string& word : words) all.push_back(shell_word(word));
    return fmt::format("{}", fmt::join(all, " "));
}

std::string train_command(const Validation& validation, const ReportContext& context, const std::string& precision) {
    std::vector<std::string> words = without_precision(context.overrides);
    words.push_back("trainer.precision=" + precision);
    const TrainerConfig& trainer = validation.options.base.trainer;
    if (precision == validation.baseline.precision) {
        if (trainer.amp_level != "auto") words.push_back("trainer.amp_level=auto");
        if (!trainer.precision_overrides.empty()) words.push_back("trainer.precision_overrides=null");
    }
    return command("train", context, words);
}

std::string validate_command(const Validation& validation, const ReportContext& context) {
    const ValidateOptions& options = validation.options;
    std::vector<std::string> words = context.overrides;
    words.push_back("--candidates");
    words.push_back(fmt::format("{}", fmt::join(options.candidates, ",")));
    words.insert(words.end(), {"--seeds", std::to_string(options.seeds), "--metric", options.metric});
    return command("validate", context, words);
}

std::string result_cell(const Arm& arm, const std::string& value) {
    return arm.runs.empty() ? "n/a" : value;
}

std::string overview(const Validation& v) {
    MarkdownTable table(
        {"Configuration", v.options.metric, "Training Time", "Memory", "Peak Activations", "Skipped Steps", "Status"});
    const auto add = [&](const Arm& arm, const std::string& name, const std::string& status) {
        table.row({name, result_cell(arm, report_number(arm.metric)),
                   result_cell(arm, report_duration(arm.train_seconds)),
                   result_cell(arm, human_bytes(arm.memory.peak_total)),
                   result_cell(arm, human_bytes(arm.memory.peak_of(Purpose::activations))),
                   result_cell(arm, fmt::format("{} of {}", arm.skipped, arm.steps)), status});
    };
    add(v.baseline, "FP32 baseline", v.baseline.failed() ? "FAIL" : "baseline");
    for (const Arm& arm : v.candidates) add(arm, arm.precision, std::string(name_of(arm.verdict)));
    return table.str();
}

std::string results(const Validation& v, const Arm& arm) {
    const Arm& base = v.baseline;
    MarkdownTable table({"Metric", "FP32", arm.precision, "Difference"});
    const auto number = [&](const char* name, double from, double to) {
        table.row({name, report_number(from), report_number(to), report_change(from, to)});
    };
    table.row({v.options.metric, report_number(base.metric), report_number(arm.metric),
               report_change(base.metric, arm.metric) + " " + std::string(name_of(arm.verdict))});
    if (v.options.metric != "val_loss") number("val_loss", base.val_loss, arm.val_loss);
    number("Training loss", base.train_loss, arm.train_loss);
    table.row({"Training Time", report_duration(base.train_seconds), report_duration(arm.train_seconds),
               report_change(base.train_seconds, arm.train_seconds)});
    number("Samples/s", base.samples_per_s, arm.samples_per_s);
    number("Largest gradient norm", base.max_grad_norm, arm.max_grad_norm);
    const auto bytes = [&](const std::string& name, std::int64_t from, std::int64_t to) {
        table.row({name, human_bytes(from), human_bytes(to), report_change(double(from), double(to))});
    };
    for (const Purpose purpose : {Purpose::activations, Purpose::weights, Purpose::masters, Purpose::gradients,
                                  Purpose::optimizer, Purpose::workspace, Purpose::data})
        bytes(fmt::format("Memory: {}", name_of(purpose)), base.memory.peak_of(purpose), arm.memory.peak_of(purpose));
    bytes("Memory: total", base.memory.peak_total, arm.memory.peak_total);
    return table.str();
}

std::string each_seed(const Validation& v, const Arm& arm) {
    const auto metric = [&](const RunSummary& run) {
        return v.options.metric == "val_loss" ? run.val_loss : run.val_accuracy;
    };
    MarkdownTable table({"Seed", "FP32", arm.precision, "Difference"});
    for (std::size_t i = 0; i < arm.runs.size() && i < v.baseline.runs.size(); ++i) {
        const double from = metric(v.baseline.runs[i]), to = metric(arm.runs[i]);
        table.row({std::to_string(v.options.base.seed + std::int64_t(i)), report_number(from), report_number(to),
                   report_change(from, to)});
    }
    return table.str();
}

std::string checklist(const Validation& v, const Arm& arm) {
    const TrainerConfig& trainer = v.options.base.trainer;
    std::string text;
    const auto item = [&](bool done, const std::string& what) {
        text += fmt::format("- [{}] {}\n", done ? 'x' : ' ', what);
    };
    const auto plural = [](std::int64_t n, const char* word) {
        return fmt::format("{} {}{}", n, word, n == 1 ? "" : "s");
    };
    const auto length = [&](const Arm& a) {
        if (a.runs.empty()) return std::string("no run finished");
        return fmt::format("{}, {} of {} each", plural(std::int64_t(a.runs.size()), "run"),
                           plural(a.runs.front().steps, "step"), plural(a.runs.front().epochs, "whole epoch"));
    };
    const bool ran = !arm.failed();
    const bool whole = trainer.limit_val_batches == BatchCount::all();
    const auto& base = v.baseline;
    const char* set = whole ? "full validation set" : "part of the validation set: trainer.limit_val_batches";
    item(!base.failed(), fmt::format("Run FP32 baseline ({}; {})", length(base), set));
    item(ran, fmt::format("Run {} test ({}; {})", arm.precision, length(arm), set));
    item(ran && arm.verdict == Verdict::pass,
         fmt::format("Verify {} difference < {:g}% ({})", v.options.metric, 100 * v.options.pass,
                     ran ? fmt::format("measured {:.2f}%", 100 * std::fabs(arm.difference)) : "nothing to compare"));
    item(ran && arm.all_finite,
         fmt::format("Check for NaN/Inf values ({}; {} of {} steps skipped on overflow, final loss scale {:g})",
                     ran && arm.all_finite ? "none in losses and final weights" : "found, or the run broke off",
                     arm.skipped, arm.steps, arm.final_scale));
    const bool norms = ran && arm.grad_norm_ratio >= 1 / kNormFactor && arm.grad_norm_ratio <= kNormFactor;
    item(norms, fmt::format("Validate gradient norms are stable (largest {} against {} in FP32: {:.2f}x, allowed {:g}x "
                            "either way)",
                            report_number(arm.max_grad_norm), report_number(base.max_grad_norm), arm.grad_norm_ratio,
                            kNormFactor));
    item(ran && arm.speed_up > kSpeedUp,
         fmt::format("Confirm speedup > 10% (measured {:.2f}x the samples/s of FP32)", arm.speed_up));
    item(ran && arm.memory.peak_total < base.memory.peak_total,
         fmt::format("Confirm memory is down (total {}, activations {})",
                     report_change(double(base.memory.peak_total), double(arm.memory.peak_total)),
                     report_change(double(base.memory.peak_of(Purpose::activations)),
                                   double(arm.memory.peak_of(Purpose::activations)))));
    item(true, "Document validation results (this report)");
    item(ran && arm.runs.front().epochs >= 10, "Test on full training run (10+ epochs)");
    item(false, "Get team approval (for people to give)");
    item(false, "Monitor production metrics closely (after this report)");
    return text;
}

// What the figures cannot bear, said where they stand.
std::string limits(const Validation& v) {
    std::string text;
    if (v.options.seeds == 1)
        text +=
            "One run a precision cannot tell the effect of the precision from that of the seed: two FP32 runs that "
            "differ "
            "in their seed alone differ too, and by how much was not measured here. A small difference is therefore no "
            "proof of equivalence, and a larger one no proof of harm. Repeat with `--seeds 3` or more before a "
            "decision "
            "that matters.\n";
    else
        text += fmt::format(
            "Means of {} seeds are compared; the differences of the single seeds stand above, and their spread shows "
            "how "
            "much a mean of {} can be trusted.\n",
            v.options.seeds, v.options.seeds);
    text += "\nTimes were measured on one machine in one go, and hold for it alone.\n";
    return text;
}

std::string candidate_section(const Validation& v, const Arm& arm) {
    std::string text = fmt::format("## {}: {}\n\n{}.\n\n", arm.precision, name_of(arm.verdict), arm.reason);
    if (!arm.runs.empty() && !v.baseline.runs.empty()) {
        text += results(v, arm) + "\n";
        if (v.options.seeds > 1) text += "Seed by seed:\n\n" + each_seed(v, arm) + "\n";
    }
    return text + "### Checklist\n\n" + checklist(v, arm) + "\n";
}

}  // namespace

ReportContext report_context(std::string config, std::vector<std::string> overrides) {
    const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
    std::tm utc{};
    gmtime_r(&now, &utc);
    char date[32];
    std::strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", &utc);
    return {std::move(config), std::move(overrides),
            fmt::format("{}, {} thread{}, {}", cpu_model(), threads(), threads() == 1 ? "" : "s", cpu_description()),
            date};
}

std::string validation_report(const Validation& v, const ReportContext& context) {
    const Config& base = v.options.base;
    std::string text = fmt::format("# Mixed-precision validation: {}\n\n", base.exp_name);
    text += fmt::format("**Verdict: {}**: {}.\n\n", name_of(v.verdict), v.reason);
    text += fmt::format("- Date: {}\n- Machine: {}\n- Model: {} on {}, batch {}\n- Configuration: {}\n\n", context.date,
                        context.machine, base.model.name, base.data.name, base.data.batch_size,
                        context.config.empty() ? "the defaults" : "`" + context.config + "`");
    text += "## Results\n\n" + overview(v) + "\n";
    for (const Arm& arm : v.candidates) text += candidate_section(v, arm);
    text += "## What this cannot show\n\n" + limits(v) + "\n";
    text += "## Rollback plan\n\nIf a 16-bit run causes trouble, go back to FP32 at once:\n\n```bash\n" +
            train_command(v, context, v.baseline.precision) + "\n```\n\n";
    text += fmt::format(
        "The settings of the FP32 run of this report lie in `{}`. Note what happened, then look for the "
        "cause: skipped steps, scale and gradient norms are in each run's `metrics.jsonl`.\n\n",
        v.baseline.runs.empty() ? (v.folder / "fp32" / "config.yaml").string()
                                : (v.baseline.runs.front().folder / "config.yaml").string());
    text += "## Reproduce\n\n```bash\n" + validate_command(v, context) + "\n```\n\n";
    text += "Configuration of the runs, but for precision and folder:\n\n```yaml\n" + to_yaml(base) + "```\n";
    return text;
}

std::filesystem::path write_report(const Validation& validation, const ReportContext& context) {
    const std::filesystem::path path = validation.folder / "report.md";
    write_file_atomically(path, validation_report(validation, context));
    return path;
}

}  // namespace invar
