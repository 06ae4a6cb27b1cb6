// `invar validate`: FP32 against lower precisions, and a verdict that a script can act on.
#include "invar/validate/validate.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <utility>

#include "invar/cli/commands.h"
#include "invar/cli/common.h"
#include "invar/cli/progress.h"
#include "invar/cli/signals.h"
#include "invar/cli/start_up.h"
#include "invar/cli/verdict.h"
#include "invar/core/error.h"
#include "invar/dist/communicator.h"
#include "invar/validate/validated.h"

namespace invar::cli {

namespace {

struct ValidateArguments : ConfigArguments {
    std::vector<std::string> candidates;
    std::optional<int> seeds;
    std::string metric = ValidateOptions{}.metric;
    std::optional<std::string> margin;
    bool resume = false, json = false;
};

// A progress line for each run, with the run's precision before it.
class RunsInTurn : public Observer {
  public:
    RunsInTurn(bool quiet, int runs, std::int64_t every) : quiet_(quiet), runs_(runs), every_(every) {}
    void started(const Setup& setup, const RunFolder& folder, const Progress& progress) override {
        finish();
        ++run_;
        if (!quiet_) say(fmt::format("{} {}", numbered(), folder.path().string()));
        if (!quiet_) say(amp_lines(setup));
        if (!quiet_ && !setup.ranks->alone() && !std::exchange(shared_told_, true))
            say("batches of all runs are " + shared_by(setup));
        line_.emplace(setup.precision.name(), quiet_);
        line_->started(setup, folder, progress);
    }
    void step_launched(const Progress& progress, std::int64_t total) override { line_->step_launched(progress, total); }
    void step_reported(const ReportedStep& step) override { line_->step_reported(step); }
    void step_logged(const StepMetrics& m) override {
        StepMetrics shown = m;  // more is logged than need be read
        shown.due = m.step == 1 || m.step == m.total_steps || (every_ > 0 && m.step % every_ == 0);
        if (shown.due || m.skipped_now || on_terminal()) line_->step_logged(shown);
    }
    void validated(const ValidationMetrics& metrics) override { line_->validated(metrics); }
    void noted(const std::string& note) override { line_->noted(note); }
    void alerted(const Alert& alert) override { line_->alerted(alert); }
    void kept(const std::filesystem::path& run) {
        finish();
        ++run_;
        if (!quiet_) say(fmt::format("{} {} is there already", numbered(), run.string()));
    }
    void explains(const std::filesystem::path& run) {
        finish();
        if (!quiet_) say(fmt::format("{} broke: it is trained again up to there, to find out why", run.string()));
    }
    void finish() {
        if (line_) line_->finish();
    }

  private:
    std::string numbered() const { return paint(Colour::bold, fmt::format("run {} of {}", run_, runs_)); }

    bool quiet_, shared_told_ = false;
    int runs_, run_ = 0;
    std::int64_t every_;
    std::optional<ProgressLine> line_;
};

int validate_command(const ValidateArguments& arguments) {
    ValidateOptions options;
    options.base = arguments.load();
    options.candidates = arguments.candidates;
    options.metric = arguments.metric;
    if (arguments.margin) options.limits = Limits::parse(*arguments.margin);
    options.resume = arguments.resume;
    options.seeds = arguments.seeds.value_or(options.resume ? 0 : options.seeds);
    check<UsageError>(!arguments.seeds || *arguments.seeds > 0, "--seeds {}: must be at least 1", options.seeds);
    if (options.resume) take_up(options, arguments.margin.has_value());
    if (options.candidates.empty()) options.candidates = default_candidates(options.base);
    return run_validation(options, arguments.config(), arguments.overrides(), arguments.json);
}

}  // namespace

int run_validation(ValidateOptions options, const std::string& config, const std::vector<std::string>& overrides,
                   bool json) {
    const StopOnSignal signals;
    RunsInTurn progress(json, options.seeds * (1 + int(options.candidates.size())),
                        options.base.trainer.log_every_n_steps);
    options.kept = [&](const std::filesystem::path& run) { progress.kept(run); };
    options.explains = [&](const std::filesystem::path& run) { progress.explains(run); };
    const auto going_on = [&](const char* what) {
        return fmt::format("{}; go on with: {}", what, resume_command(options, config, overrides, options.seeds));
    };
    Validation validation;
    try {
        validation = validate(options, progress);
    } catch (const ValidationStopped& stopped) {
        if (!StopOnSignal::requested() && stopped.signal == 0) throw;
        if (!StopOnSignal::requested()) StopOnSignal::adopt(stopped.signal);  // another rank was told
        progress.finish();
        warn(going_on(stopped.what()));
        return StopOnSignal::exit_code();
    } catch (const Error& error) {
        if (!StopOnSignal::requested()) throw;
        progress.finish();
        warn(error.what());
        return StopOnSignal::exit_code();
    }
    progress.finish();
    JsonLine more;
    more.add("seeds", options.seeds).add("threads", validation.threads).add("folder", validation.folder.string());
    const ReportContext context = validation_context(validation, config, overrides);
    if (!context.further.empty()) more.add("further_command", context.further);
    ReportFiles files;
    if (!world().leads()) return show_verdict(validation, files, json, more);  // another one writes
    try {
        files = write_reports(validation.folder, validation, context);
    } catch (const IoError&) {
        show_verdict(validation, files, json, more);  // it took all these runs, and is not lost for want of room
        throw;
    }
    try {
        const bool known = remember(validated_file(), validation, files.html);
        if (const std::string limits = limits_text(options.base.trainer); known && !json && !limits.empty())
            say(fmt::format("for --require-validated this counts for runs that are limited as much or more: {}",
                            limits));
    } catch (const IoError& error) {
        warn(fmt::format("warning: this validation will not be remembered: {}", error.what()));
    }
    if (!json) say("");
    const int code = show_verdict(validation, files, json, more);
    if (!json && !context.further.empty()) say("to add the seeds that would decide it: " + context.further);
    return code;
}

void add_validate(CLI::App& app, int& exit_code) {
    CLI::App* command =
        app.add_subcommand("validate", "Train in FP32 and in lower precisions, and judge the difference");
    auto arguments = std::make_shared<ValidateArguments>();
    ValidateArguments& a = *arguments;
    a.add_to(*command);
    command
        ->add_option("--candidates", a.candidates,
                     "Precisions to judge against FP32, or configured for its own precision_schedule or overrides; "
                     "what the configuration trains in unless set, 16-mixed,bf16-mixed where that is FP32")
        ->option_text("PRECISION|configured,...")
        ->delimiter(',')
        ->allow_extra_args(false);  // what follows is for the configuration
    command
        ->add_option("--seeds", a.seeds,
                     "Runs a precision, each with its own seed; with several, equivalence is tested")
        ->option_text("N");
    command
        ->add_option("--metric", a.metric,
                     "What is compared: val_loss or another the runs log; the task's own unless set")
        ->option_text("NAME");
    command->add_option("--margin", a.margin, kMarginHelp)->option_text("0.01|0.5pp|abs:0.005");
    command->add_flag("--resume", a.resume,
                      "Go on with the validation of this name: finished runs stay, --seeds may add to them");
    command->add_flag("--json", a.json, "One JSON object a line: every precision, then the verdict");
    command->footer(
        example({"invar validate fashion_mnist", "invar validate data=synthetic model=mlp trainer=fp16_safe --seeds 3",
                 "invar validate mnist_convnet trainer.max_epochs=3 --candidates 16-mixed --json",
                 "invar validate fashion_mnist --seeds 8 --resume", "mpirun -n 4 invar validate fashion_mnist"}) +
        "\n\nWrites report.md, report.json and report.html. Ends with 0 on PASS (one seed: difference below 1%; "
        "several: "
        "equivalence\nestablished), 3 on MARGINAL, 1 on FAIL (above 2%, or established), 4 on INVALID (FP32 itself "
        "learned "
        "nothing, or\nbroke down), 2 where something keeps it from judging." +
        read_more("VALIDATION.md", "tells more"));
    command->callback([arguments, &exit_code] { exit_code = validate_command(*arguments); });
}

}  // namespace invar::cli
