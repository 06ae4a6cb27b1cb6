// `invar tune`: the smallest set of modules to keep in FP32, what it costs, and whether training bears it out.
#include "invar/diagnose/tune.h"

#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "invar/cli/commands.h"
#include "invar/cli/common.h"
#include "invar/cli/console.h"
#include "invar/cli/start_up.h"
#include "invar/cli/verdict.h"
#include "invar/core/cpu_use.h"
#include "invar/core/error.h"
#include "invar/core/shell.h"
#include "invar/diagnose/diagnose.h"
#include "invar/formats/inspect.h"
#include "invar/io/jsonl.h"
#include "invar/report/text.h"
#include "invar/train/bench.h"
#include "invar/train/low_precision.h"
#include "invar/validate/command_line.h"

namespace invar::cli {

namespace {

struct TuneArguments : ConfigArguments {
    std::string as;
    TuneTarget target;
    int batches = TuneOptions{}.batches, steps = 10, seeds = 1;
    bool json = false, leave_unvalidated = false;
};

std::string percent(double value) {
    return std::isfinite(value) ? fmt::format("{:.3g}%", 100 * value) : "-";
}

void add_error(Table& table, const std::string& name, const GradientError& e) {
    if (!e.finite)
        table.row({name, "not finite", "", "", ""});
    else
        table.row({name, percent(e.overall), fmt::format("{:.6f}", e.cosine), percent(e.worst),
                   e.worst == 0             ? "-"
                   : e.worst_module.empty() ? "(model)"
                                            : e.worst_module});
}

JsonLine json_of(const GradientError& e) {
    JsonLine line;
    line.add("finite", e.finite).add("overall", e.overall).add("cosine", e.cosine);
    return line.add("worst", e.worst).add("worst_module", e.worst_module);
}

// The configuration with what was found.
Config tuned(Config config, const Tuning& tuning) {
    for (const std::string& module : tuning.modules) config.trainer.precision_overrides.emplace_back(module, "32-true");
    if (tuning.scaler) config.scaler.enabled = config.scaler.dynamic = true;
    return config;
}

// One figure a way of running: FP32, the candidate, the candidate with the modules kept.
std::vector<std::pair<std::string, BenchResult>> costs(const Config& config, const TuneArguments& a,
                                                       const Precision& candidate, const Tuning& tuning) {
    BenchOptions options;
    options.base = config;
    options.base.trainer.precision_overrides.clear();
    options.precisions = {"32-true", candidate.name()};
    options.steps = a.steps;
    std::vector<std::pair<std::string, BenchResult>> all;
    for (const BenchResult& result : run_bench(options)) all.emplace_back(result.precision, result);
    if (!tuning.changes()) return all;
    options.base = tuned(config, tuning);
    options.precisions = {candidate.name()};
    all.emplace_back("tuned", run_bench(options).front());
    return all;
}

// Gradients on a few batches are evidence; the verdict is validate's.
int validate_tuned(const Config& given, const TuneArguments& a, const Precision& candidate, const Tuning& tuning) {
    ValidateOptions options;
    options.base = tuned(given, tuning);
    options.candidates = {candidate.name()};
    options.seeds = a.seeds;
    std::vector<std::string> overrides = a.overrides();
    if (tuning.scaler && !given.scaler.enabled) overrides.emplace_back("scaler.enabled=true");
    if (tuning.scaler && !given.scaler.dynamic) overrides.emplace_back("scaler.dynamic=true");
    if (!tuning.modules.empty()) overrides.push_back("trainer.precision_overrides=" + tuning.overrides());
    if (!a.leave_unvalidated) return run_validation(options, a.config(), overrides, a.json);
    if (a.json) return 0;
    overrides.insert(overrides.end(), {"--candidates", candidate.name()});
    say("to validate it: " + command_line("validate", a.config(), overrides, given.plugins));
    return 0;
}

int tune_command(const TuneArguments& a) {
    const Config given = a.load();
    Config config = given;  // becomes an FP32 one
    for (const Dtype format : a.as.empty() ? std::vector<Dtype>() : parse_formats(a.as))
        check<UsageError>(is_sixteen_bit(format), "--as {}: gradients can be compared in fp16 and bf16 only", a.as);
    const DiagnoseOptions chosen = diagnose_options(config, a.as);
    const std::string other = changed_by_level(given.trainer, chosen.candidate.name());
    check<UsageError>(other.empty(), "tuning for {}: {}; leave trainer.amp_level out", chosen.candidate.name(), other);
    TuneOptions options;
    options.candidate = chosen.candidate;
    options.scale = chosen.scale;
    options.scaling = chosen.scaling;
    options.target = a.target;
    options.batches = a.batches;
    LiveLine line;
    options.progress = [&](int trials) {
        if (!a.json && line.due()) line.show({fmt::format("{} sets of modules tried", trials)});
    };
    Tuning tuning;
    {
        Setup setup(config);
        tuning = tune(setup, options);
    }
    line.clear();
    const bool gains = tuning.met && tuning.modules.size() < std::size_t(tuning.candidates);
    const auto measured = a.steps > 0 && gains ? costs(given, a, options.candidate, tuning)
                                               : std::vector<std::pair<std::string, BenchResult>>{};
    if (a.json) {
        JsonLine json, cost;
        json.add("met", gains).add("candidate", options.candidate.name()).add("overrides", tuning.overrides());
        json.add("scaler", tuning.scaler)
            .add("before", json_of(tuning.before))
            .add("after", json_of(tuning.after))
            .add("trials", tuning.trials);
        for (const auto& [name, r] : measured)
            cost.add(name, JsonLine().add("ms_per_step", r.ms_per_step).add("peak_bytes", r.memory.peak_total));
        say(json.add("costs", cost).text());
        return gains ? validate_tuned(given, a, options.candidate, tuning) : 1;
    }
    say_why_on_cpu(given);
    say(fmt::format("gradients in {} against FP32, {} batch{}, {} modules, sets tried: {}", options.candidate.name(),
                    a.batches, a.batches == 1 ? "" : "es", tuning.candidates, tuning.trials));
    Table errors({"", "error", "cosine", "worst", "in"});
    add_error(errors, options.candidate.name(), tuning.before);
    if (tuning.changes()) add_error(errors, "tuned", tuning.after);
    say(errors.text("  "));
    if (!tuning.met) {
        say(paint(Colour::red,
                  fmt::format("no set of modules meets the target, not even all of them; try --as bf16, or "
                              "`{} diagnose` to see why",
                              program_name())));
        return 1;
    }
    if (!gains) {
        say(paint(Colour::red, fmt::format("the target holds with every module in FP32 alone, where {} is FP32; try a "
                                           "larger --target, or `{} diagnose` to see why",
                                           options.candidate.name(), program_name())));
        return 1;
    }
    if (tuning.modules.empty())
        say(paint(Colour::green, tuning.scaler ? "the target holds with a loss scale that moves: no module needs FP32"
                                               : "the target holds as it is: no module needs FP32"));
    if (tuning.changes()) say(tuning.yaml());
    if (!measured.empty()) {
        Table table({"", "ms/step", "samples/s", "peak memory"});
        for (const auto& [name, r] : measured)
            table.row({name, fmt::format("{:.2f}", r.ms_per_step), human_rate(r.samples_per_s),
                       human_bytes(double(r.memory.peak_total))});
        print(table.text("  "));
        if (const std::string why = disturbance_of(measured.front().second.waited_share, "this program"); !why.empty())
            say(fmt::format("times were disturbed: {}", why));
        say("");
    }
    return validate_tuned(given, a, options.candidate, tuning);
}

}  // namespace

void add_tune(CLI::App& app, int& exit_code) {
    CLI::App* command = app.add_subcommand("tune", "Find the fewest modules to keep in FP32");
    auto arguments = std::make_shared<TuneArguments>();
    TuneArguments& a = *arguments;
    a.add_to(*command);
    command->add_option("--as", a.as, "Precision to tune for: fp16 or bf16; the configuration's own, else fp16")
        ->option_text("FORMAT");
    command->add_option("--target", a.target.error, "Largest relative error of any module's gradient")
        ->option_text("SHARE");
    command->add_option("--cosine", a.target.cosine, "Least cosine between the gradients")->option_text("COSINE");
    command->add_option("--batches", a.batches, "Batches to compare gradients on")->option_text("N");
    command->add_option("--steps", a.steps, "Steps to time each way of running; 0: none")->option_text("N");
    command->add_option("--seeds", a.seeds, "Runs a precision to validate the result with")->option_text("N");
    command->add_flag("--no-validate", a.leave_unvalidated,
                      fmt::format("Leave that to `{} validate`, and print how", program_name()));
    command->add_flag("--json", a.json, "One JSON object a line: what was found, then the validation's");
    command->footer(example({"invar tune fashion_mnist", "invar tune fashion_mnist --as bf16 --target 0.05",
                             "invar tune fashion_mnist init_from=runs/fashion_mnist"}) +
                    "\n\nTrains the result against FP32 at the end. Exits with 1 where the target is met by no set of "
                    "modules\nshort of "
                    "all of them, else with the validation's verdict: 0 PASS, 3 MARGINAL, 1 FAIL, 4 INVALID." +
                    read_more("TUNE.md", "tells how it searches"));
    command->callback([arguments, &exit_code] { exit_code = tune_command(*arguments); });
}

}  // namespace invar::cli
