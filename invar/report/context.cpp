#include "invar/report/context.h"

#include <fmt/ranges.h>

#include <chrono>
#include <ctime>
#include <fstream>

#include "invar/core/shell.h"
#include "invar/dist/communicator.h"
#include "invar/dist/launcher.h"
#include "invar/kernels/kernels.h"
#include "invar/report/text.h"
#include "invar/validate/command_line.h"

namespace invar {

namespace {

std::string cpu_model() {
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);)
        if (line.starts_with("model name") && line.find(": ") != line.npos) return line.substr(line.find(": ") + 2);
    return "unknown CPU";
}

std::string machine() {
    return fmt::format("{}, {} thread{}, {}", cpu_model(), threads(), threads() == 1 ? "" : "s", cpu_description());
}

std::string now() {
    const std::time_t moment = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
    std::tm utc{};
    gmtime_r(&moment, &utc);
    char date[32];
    std::strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", &utc);
    return date;
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

std::string back_to_fp32(const Validation& v, const std::string& config, const std::vector<std::string>& overrides) {
    std::vector<std::string> words = without_precision(overrides);
    words.push_back("trainer.precision=" + v.baseline.name);
    const TrainerConfig& trainer = v.options.base.trainer;
    if (trainer.amp_level != "auto") words.push_back("trainer.amp_level=auto");
    if (!trainer.precision_overrides.empty()) words.push_back("trainer.precision_overrides=null");
    return words_of(launch_from_environment()) + command_line("train", config, words, v.options.base.plugins);
}

// The words of `invar validate` that ask for all of it.
std::vector<std::string> words_for(const ValidateOptions& options, const std::vector<std::string>& overrides,
                                   std::int64_t seeds) {
    std::vector<std::string> words = overrides;
    words.insert(words.end(), {"--candidates", fmt::format("{}", fmt::join(options.candidates, ","))});
    words.insert(words.end(), {"--seeds", std::to_string(seeds)});
    if (!options.metric.empty()) words.insert(words.end(), {"--metric", options.metric});
    if (const std::string margin = options.limits.word(); margin != Limits{}.word())
        words.insert(words.end(), {"--margin", margin});
    return words;
}

// How many seeds would decide those candidates that some would decide, at most; 0 where none are needed, or would help.
std::int64_t further_seeds(const Validation& v) {
    std::int64_t most = 0;
    for (const Arm& arm : v.candidates)
        if (!arm.failed() && arm.equivalence.tested) most = std::max(most, arm.equivalence.further_seeds.value_or(0));
    return most;
}

}  // namespace

std::string resume_command(const ValidateOptions& options, const std::string& config,
                           const std::vector<std::string>& overrides, std::int64_t seeds) {
    std::vector<std::string> words = words_for(options, overrides, seeds);
    words.emplace_back("--resume");
    return words_of(launch_from_environment()) + command_line("validate", config, words, options.base.plugins);
}

ReportContext validation_context(const Validation& v, const std::string& config,
                                 const std::vector<std::string>& overrides) {
    const Config& base = v.options.base;
    ReportContext context;
    context.title = "Mixed-precision validation: " + base.exp_name;
    context.baseline = "FP32";
    context.facts = {
        {"Date", now()},
        {v.device.empty() ? "Machine" : "Host", machine()},
        {"Model", fmt::format("{} on {}, batch {}", base.model.name(), base.data.name(), base.data.batch_size)},
        {"Configuration", fmt::format("{}{}", config.empty() ? "the defaults" : config,
                                      overrides.empty() ? "" : ", with the keys under Reproduce")}};
    if (!v.device.empty()) context.facts.insert(context.facts.begin() + 1, {"Device", v.device});
    if (!world().alone()) context.facts.push_back({"Ranks", std::to_string(world().size())});
    context.validated_on = base.trainer.limit_val_batches == BatchCount::all()
                               ? "full validation set"
                               : "part of the validation set: trainer.limit_val_batches";
    context.rollback = back_to_fp32(v, config, overrides);
    context.rollback_note = fmt::format(
        "The settings of the FP32 run of this report lie in {}. Note what happened, then look for the cause: "
        "`{} diagnose RUN` names the operation, and skipped steps, scale and gradient norms are in each run's "
        "metrics.jsonl.",
        (v.folder / (v.options.seeds > 1 ? fmt::format("fp32_seed{}", base.seed) : "fp32") / "config.yaml").string(),
        program_name());
    context.reproduce =
        words_of(launch_from_environment()) +
        command_line("validate", config, words_for(v.options, overrides, v.options.seeds), base.plugins);
    if (const std::int64_t further = further_seeds(v); further > 0)
        context.further = resume_command(v.options, config, overrides, v.options.seeds + further);
    context.settings = to_yaml(base);
    context.monitor = base.monitor;
    return context;
}

ReportContext comparison_context(const Comparison& comparison, const std::vector<std::string>& words,
                                 const std::filesystem::path& config) {
    ReportContext context;
    std::vector<std::string> names;
    for (const Arm& arm : comparison.candidates) names.push_back(arm.name);
    context.title = fmt::format("Comparison: {} against {}", fmt::join(names, ", "), comparison.baseline.name);
    context.baseline = "baseline";
    context.facts = {{"Date", now()}};
    const auto add = [&](const std::string& what, const Arm& arm) {
        std::vector<std::string> runs;
        for (const RunRecord& run : arm.runs) runs.push_back(run.name);
        context.facts.emplace_back(what, fmt::format("{}", fmt::join(runs, ", ")));
    };
    add("Baseline", comparison.baseline);
    for (const Arm& arm : comparison.candidates)
        add(comparison.candidates.size() == 1 ? "Candidate" : "Candidate " + arm.name, arm);
    if (!config.empty()) {
        context.rollback = command_line("train", config.string(), {}, {});  // its file names its plug-ins
        context.rollback_note = "This trains as the baseline did.";
    } else {
        context.rollback_note = fmt::format(
            "Train with the settings of the baseline again (Lightning: precision=\"32-true\"); its log is {}.",
            comparison.baseline.runs.empty() ? "missing" : comparison.baseline.runs.front().name);
    }
    context.reproduce = command_line("compare", "", words, {});
    return context;
}

}  // namespace invar
