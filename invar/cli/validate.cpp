// `invar validate`: FP32 against lower precisions, and a verdict that a script can act on.
#include "invar/safety/validate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <memory>
#include <optional>

#include "invar/cli/commands.h"
#include "invar/cli/common.h"
#include "invar/cli/progress.h"
#include "invar/cli/start_up.h"
#include "invar/report/markdown.h"
#include "invar/report/text.h"

namespace invar {

namespace {

struct ValidateArguments : ConfigArguments {
    std::vector<std::string> candidates = ValidateOptions{}.candidates;
    int seeds = 1;
    std::string metric = ValidateOptions{}.metric;
    bool json = false;
};

// A progress line for each run, with the run's precision before it.
class RunsInTurn : public Observer {
  public:
    RunsInTurn(bool quiet, int runs) : quiet_(quiet), runs_(runs) {}
    void started(const Setup& setup, const RunFolder& folder, const Progress& progress) override {
        finish();
        ++run_;
        if (!quiet_)
            say(fmt::format("{} {}", paint(Colour::bold, fmt::format("run {} of {}", run_, runs_)),
                            folder.path().string()));
        if (!quiet_) say(amp_lines(setup));
        line_.emplace(setup.precision.name(), quiet_);
        line_->started(setup, folder, progress);
    }
    void ticked(const Progress& progress, std::int64_t total) override { line_->ticked(progress, total); }
    void stepped(const StepMetrics& metrics) override { line_->stepped(metrics); }
    void validated(const ValidationMetrics& metrics) override { line_->validated(metrics); }
    void noted(const std::string& note) override { line_->noted(note); }
    void finish() {
        if (line_) line_->finish();
    }

  private:
    bool quiet_;
    int runs_, run_ = 0;
    std::optional<ProgressLine> line_;
};

Colour colour_of(Verdict verdict) {
    constexpr Colour kColours[] = {Colour::green, Colour::yellow, Colour::red};
    return kColours[static_cast<int>(verdict)];
}

// Accuracies as they are spoken of, in percent; losses as they are.
std::string metric_text(const std::string& metric, double value) {
    return metric == "val_accuracy" ? fmt::format("{:.2f}%", 100 * value) : fmt::format("{:.4f}", value);
}

std::string table_of(const Validation& validation) {
    const std::string& metric = validation.options.metric;
    Table table({"precision", metric, "difference", "time", "vs FP32", "peak activations", "total memory", "skipped",
                 "verdict"});
    const auto add = [&](const Arm& arm, bool baseline) {
        const bool ran = !arm.runs.empty();
        const std::string verdict =
            baseline ? (arm.failed() ? "FAIL" : "baseline") : paint(colour_of(arm.verdict), name_of(arm.verdict));
        table.row({arm.precision, ran ? metric_text(metric, arm.metric) : "-",
                   ran && !baseline && !arm.failed() ? fmt::format("{:+.2f}%", 100 * arm.difference) : "-",
                   ran ? human_seconds(arm.train_seconds) : "-",
                   ran && arm.speed_up > 0 ? fmt::format("{:.2f}x", arm.speed_up) : "-",
                   ran ? human_bytes(double(arm.memory.peak_of(Purpose::activations))) : "-",
                   ran ? human_bytes(double(arm.memory.peak_total)) : "-", ran ? std::to_string(arm.skipped) : "-",
                   verdict});
    };
    add(validation.baseline, true);
    for (const Arm& arm : validation.candidates) add(arm, false);
    return table.text("  ");
}

JsonLine json_of(const Arm& arm, bool baseline) {
    JsonLine line;
    line.add("precision", arm.precision).add("role", baseline ? "baseline" : "candidate").add("runs", arm.runs.size());
    if (!arm.runs.empty()) {
        line.add("val_accuracy", arm.val_accuracy).add("val_loss", arm.val_loss).add("train_loss", arm.train_loss);
        line.add("difference", arm.difference)
            .add("train_seconds", arm.train_seconds)
            .add("samples_per_s", arm.samples_per_s);
        line.add("speed_up", arm.speed_up)
            .add("max_grad_norm", arm.max_grad_norm)
            .add("grad_norm_ratio", arm.grad_norm_ratio);
        line.add("steps", arm.steps).add("skipped_steps", arm.skipped).add("final_scale", arm.final_scale);
        line.add("all_finite", arm.all_finite).add("peak_bytes", memory_line(arm.memory.peak, arm.memory.peak_total));
    }
    if (!baseline) line.add("verdict", name_of(arm.verdict)).add("reason", arm.reason);
    return line;
}

void print_json(const Validation& validation, const std::filesystem::path& report) {
    say(json_of(validation.baseline, true).text());
    for (const Arm& arm : validation.candidates) say(json_of(arm, false).text());
    JsonLine verdict;
    verdict.add("verdict", name_of(validation.verdict))
        .add("reason", validation.reason)
        .add("metric", validation.options.metric);
    verdict.add("seeds", validation.options.seeds)
        .add("threads", validation.threads)
        .add("folder", validation.folder.string());
    say(verdict.add("report", report.string()).text());
}

int validate_command(const ValidateArguments& arguments) {
    ValidateOptions options;
    options.base = arguments.load();
    options.candidates = arguments.candidates;
    options.seeds = arguments.seeds;
    options.metric = arguments.metric;
    const StopOnSignal signals;
    RunsInTurn progress(arguments.json, options.seeds * (1 + int(options.candidates.size())));
    const Validation validation = validate(options, progress);
    progress.finish();
    const std::filesystem::path report =
        write_report(validation, report_context(arguments.config(), arguments.overrides()));
    if (arguments.json) {
        print_json(validation, report);
    } else {
        say("");
        fmt::print("{}\n", table_of(validation));
        say(fmt::format("{}: {}", paint(colour_of(validation.verdict), name_of(validation.verdict)),
                        validation.reason));
        say(fmt::format("report: {}", report.string()));
    }
    constexpr int kExitCodes[] = {0, 3, 1};
    return kExitCodes[static_cast<int>(validation.verdict)];
}

}  // namespace

void add_validate(CLI::App& app, int& exit_code) {
    CLI::App* command =
        app.add_subcommand("validate", "Train in FP32 and in lower precisions, and judge the difference");
    auto arguments = std::make_shared<ValidateArguments>();
    ValidateArguments& a = *arguments;
    a.add_to(*command);
    command->add_option("--candidates", a.candidates, "Precisions to judge against FP32")
        ->option_text("NAME,...")
        ->delimiter(',');
    command->add_option("--seeds", a.seeds, "Runs a precision, each with its own seed; their means are compared")
        ->option_text("N");
    command->add_option("--metric", a.metric, "What is compared: val_accuracy or val_loss")->option_text("NAME");
    command->add_flag("--json", a.json, "One JSON object a line: every precision, then the verdict");
    command->footer(
        example({"invar validate fashion_mnist", "invar validate data=synthetic model=mlp trainer=fp16_safe --seeds 3",
                 "invar validate mnist_convnet trainer.max_epochs=3 --candidates 16-mixed --json"}) +
        "\n\nEnds with 0 on PASS (difference below 1%), 3 on MARGINAL (below 2%), 1 on FAIL.");
    command->callback([arguments, &exit_code] { exit_code = validate_command(*arguments); });
}

}  // namespace invar
