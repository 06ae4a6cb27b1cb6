// `invar train`: a run from the command line, with its start-up lines, progress, summary and way to go on.
#include <fmt/ranges.h>

#include <cmath>
#include <memory>

#include "invar/cli/commands.h"
#include "invar/cli/common.h"
#include "invar/cli/progress.h"
#include "invar/cli/ranks.h"
#include "invar/cli/signals.h"
#include "invar/cli/start_up.h"
#include "invar/core/cpu_use.h"
#include "invar/core/error.h"
#include "invar/core/shell.h"
#include "invar/diagnose/record_failure.h"
#include "invar/dist/launcher.h"
#include "invar/io/checkpoint.h"
#include "invar/report/text.h"
#include "invar/train/logged_names.h"
#include "invar/train/review.h"
#include "invar/train/scale_text.h"
#include "invar/validate/begun.h"
#include "invar/validate/benefits.h"
#include "invar/validate/validated.h"

namespace invar::cli {

namespace fs = std::filesystem;

namespace {

struct TrainArguments : ConfigArguments {
    std::string resume, checkpoint;
    bool grad_ckpt = false, debug = false, print_config = false, quiet = false, require_validated = false;
};

// The file of a checkpoint where a run is expected says both.
void find_run_of_checkpoint(TrainArguments& arguments) {
    std::error_code error;
    const fs::path file = arguments.resume, run = file.parent_path().parent_path();
    if (!arguments.checkpoint.empty() || !fs::is_regular_file(file, error) || !RunFolder::is_run(run)) return;
    arguments.checkpoint = file.string();
    arguments.resume = run.string();
}

std::string name_of_folder(const fs::path& folder) {
    return (folder.has_filename() ? folder : folder.parent_path()).filename().string();
}

Config resolve(TrainArguments& arguments) {
    if (arguments.grad_ckpt) arguments.flags.push_back("trainer.recompute=block");
    if (arguments.debug) arguments.flags.push_back("trainer.log_every_n_steps=1");
    check<UsageError>(arguments.checkpoint.empty() || !arguments.resume.empty(),
                      "--checkpoint says where --resume goes on; give the folder of the run too, as in: {} train "
                      "--resume runs/{} --checkpoint {}",
                      program_name(), Config{}.exp_name, arguments.checkpoint);
    if (arguments.resume.empty()) return arguments.load();
    find_run_of_checkpoint(arguments);
    const std::string config = arguments.config();
    check<UsageError>(config.empty(),
                      "--resume takes the configuration of the run itself; leave out '{}' and set keys as key=value",
                      config);
    const fs::path folder = arguments.resume;
    std::error_code error;
    const fs::path below = fs::path(Config{}.output_dir) / folder;
    check<UsageError>(fs::is_directory(folder, error),
                      "--resume {}: there is no such folder; give the folder of a run, such as {}", folder.string(),
                      RunFolder::is_run(below) ? below.string() : "runs/" + Config{}.exp_name);
    check<UsageError>(RunFolder::is_run(folder) || !is_validation(folder),
                      "--resume {}: that is the folder of a validation; to go on with it: {} validate CONFIG --resume "
                      "exp_name={}, with the configuration and the keys that it was begun with",
                      folder.string(), program_name(), shell_word(name_of_folder(folder)));
    return arguments.load_run(folder);
}

// A low precision that nobody has compared with FP32 deserves a word; with --require-validated it does not start.
std::string check_validated(const TrainArguments& arguments, const Config& config) {
    std::string again = words_of(launch_from_environment()) + program_name() + " validate";
    const std::string given =
        arguments.resume.empty() ? arguments.config() : RunFolder::config_of(arguments.resume).string();
    if (!given.empty()) again += " " + shell_word(given);
    for (const std::string& word : arguments.overrides()) again += " " + shell_word(word);
    for (const std::string& word : validating_words(config)) again += " " + shell_word(word);
    const std::string warning = validation_warning(validated_file(), config, again);
    check<UsageError>(warning.empty() || !arguments.require_validated, "--require-validated: {}", warning);
    return warning;
}

// "[AMP] Expected benefits" and a line for each, as start-up lines are set.
void say_benefits(const std::string& title, const std::vector<std::string>& benefits) {
    if (benefits.empty()) return;
    std::string text = fmt::format("{} {}", paint(Colour::cyan, "[AMP]"), title);
    for (const std::string& line : benefits) text += "\n      - " + line;
    say(text);
}

// Why a run that came to its end is nothing to build on; "" where it is.
std::string why_worthless(const RunSummary& summary) {
    if (summary.steps > 0 && summary.skipped == summary.steps)
        return summary.steps == 1 ? "its one step was skipped, nothing was trained"
                                  : fmt::format("all {} steps were skipped, nothing was trained", summary.steps);
    if (2 * summary.skipped > summary.steps)
        return fmt::format("{} of {} steps were skipped", summary.skipped, summary.steps);
    if (!std::isfinite(summary.train_loss)) return "the training loss ends at " + loss_text(summary.train_loss);
    for (const Measured& measured : summary.validation)
        if (!std::isfinite(measured.value))
            return fmt::format("the validation {} ends at {}", measured.metric.name,
                               measured.metric.str(measured.value));
    return "";
}

// Of the settings that bound a run, the one that did.
const char* ended_by(Trainer& trainer, const Config& config, const RunSummary& summary) {
    if (!summary.stopped_early.empty()) return "early_stopping.patience";
    const Setup& setup = trainer.setup();
    const std::int64_t epochs = setup.first_epoch_at + setup.steps_per_epoch * config.trainer.max_epochs;
    return config.trainer.max_steps >= 0 && config.trainer.max_steps < epochs ? "trainer.max_steps"
                                                                              : "trainer.max_epochs";
}

std::string summary_table(const RunSummary& summary, bool scaled) {
    Table table;
    const std::string skipped = summary.skipped > 0 ? fmt::format(" ({} skipped for NaN or Inf)", summary.skipped) : "";
    table.row({"steps", fmt::format("{}{}", summary.steps, skipped)});
    if (summary.precisions.size() > 1) {
        std::string spans = summary.precisions[0].precision;
        for (std::size_t i = 1; i < summary.precisions.size(); ++i)
            spans += fmt::format(", {} after step {}", summary.precisions[i].precision, summary.precisions[i].step);
        table.row({"precision", spans});
    }
    for (const Recovery& r : summary.recoveries)
        table.row({"recovery", fmt::format("at step {}: {}; back to step {}, on in {}", r.failed_at, r.reason,
                                           r.back_to, r.continues_in())});
    if (!summary.stopped_early.empty()) table.row({"stopped early", summary.stopped_early});
    const bool trained = summary.steps > 0;
    if (trained) table.row({logged::kLoss, loss_text(summary.train_loss)});
    if (summary.status == "finished")
        for (const Measured& measured : summary.validation)
            table.row({logged::of_validation(measured.metric.name), measured.metric.str(measured.value)});
    if (const auto& best = summary.best_checkpoint) {
        std::string value = fmt::format("{:.6g}", best->value);
        for (const Measured& measured : summary.validation)
            if (logged::of_validation(measured.metric.name) == best->monitor) value = measured.metric.str(best->value);
        table.row({"best checkpoint", fmt::format("of step {}, {} {}", best->step, best->monitor, value)});
    }
    if (scaled) table.row({logged::kScale, scale_text(summary.final_scale)});
    if (trained) table.row({"time", fmt::format("{} training", human_seconds(summary.train_seconds))});
    if (trained) {
        const std::string left_out =
            summary.unrated_steps > 0 ? fmt::format(", without the first {} steps", summary.unrated_steps) : "";
        table.row({"speed", rate_text(summary.rate) + left_out});
    }
    if (const std::string why = disturbance_of(summary.waited_share, "this run"); trained && !why.empty())
        table.row({"disturbed", why});
    table.row({"peak memory", human_bytes(double(summary.memory.peak_total))});
    for (int i = 0; i < kPurposes; ++i)
        if (const std::int64_t bytes = summary.memory.peak[std::size_t(i)]; bytes > 0)
            table.row({fmt::format("  {}", name_of(Purpose(i))), human_bytes(double(bytes))});
    return table.text("  ");
}

// The run is over, and no worse for want of them.
std::vector<Remark> remarks_on_run(Trainer& trainer, const Config& config) {
    const Setup& setup = trainer.setup();
    const WeightAverage::Applied averaged(setup.average.get(), *setup.optimizer);  // as validations see it
    if (!setup.ranks->leads()) return {};
    try {
        std::unique_ptr<Loader> all;  // ranks have read a part each
        if (!setup.ranks->alone()) all = make_loader(*setup.task, config, Split::test, setup.device);
        return remarks_on(*setup.task, *setup.model, all ? *all : *setup.test_data, setup.precision);
    } catch (const Error& error) {
        return {{fmt::format("nothing more is known of the model: {}", error.what()), true}};
    }
}

// A run that was finished and has no step left: what was asked for beside that was not done.
void tell_nothing_left(const RunSummary& summary, const char* bound, bool quiet) {
    const std::string folder = summary.folder.lexically_normal().string();
    const std::string text = fmt::format(
        "nothing left to train; the run stays as it is (a larger {} goes on){}", bound,
        summary.not_applied.empty() ? "" : fmt::format("; not applied: {}", fmt::join(summary.not_applied, ", ")));
    if (quiet) {
        warn("note: " + text);
        say(folder);
        return;
    }
    say(text);
    say(fmt::format("run folder: {}", folder));
}

// Whatever stops a run after its first step is a failure of the run (1) and no longer trouble with what was asked.
class TrainLine : public ProgressLine {
  public:
    TrainLine(bool quiet, int& exit_code) : ProgressLine("", quiet), exit_code_(exit_code) {}
    void started(const Setup& setup, const RunFolder& folder, const Progress& progress) override {
        log_into(folder.path());
        set_advice_on_lost_rank([path = folder.path()] {
            const std::string word = shell_word(path.lexically_normal().string());
            return CheckpointFolder(path / "checkpoints", 1).steps().empty()
                       ? ""
                       : fmt::format(
                             "; nothing was saved of this step; from the last checkpoint on: {}{} train --resume {}",
                             words_of(launch_from_environment()), program_name(), word);
        });
        if (progress.step > 0) exit_code_ = 1;
        ProgressLine::started(setup, folder, progress);
    }
    void step_launched(const Progress& progress, std::int64_t total_steps) override {
        exit_code_ = 1;
        ProgressLine::step_launched(progress, total_steps);
    }

  private:
    int& exit_code_;
};

int train(TrainArguments& arguments, int& exit_code) {
    const Config config = resolve(arguments);
    if (arguments.print_config) {
        print(to_yaml(config));
        return 0;
    }
    const std::string warning = check_validated(arguments, config);
    const bool quiet = arguments.quiet;
    if (arguments.debug && !quiet) say(to_yaml(config));
    const StopOnSignal signals;
    std::optional<Resume> resume;
    if (!arguments.resume.empty())
        resume.emplace(arguments.resume, arguments.checkpoint.empty() ? "last" : arguments.checkpoint);
    Trainer trainer(config, std::move(resume));
    const bool starts = !trainer.nothing_left();
    Communicator& ranks = *trainer.setup().ranks;
    const std::optional<Benefits> known = recall_benefits(validated_file(), config, machine_of(trainer.setup()));
    if (starts && !quiet && !warning.empty()) warn("warning: " + warning);
    if (starts && !quiet) {
        say(amp_lines(trainer.setup()));
        if (known)
            say_benefits(
                fmt::format("Expected benefits, as a validation measured them against FP32 on {}", known->date),
                expected_benefits(*known));
        say(run_lines(trainer.setup(), config));
        if (config.trainer.max_steps > trainer.setup().total_steps)
            warn(fmt::format("note: trainer.max_epochs={} ends the run after {} steps, before trainer.max_steps={}",
                             config.trainer.max_epochs, trainer.setup().total_steps, config.trainer.max_steps));
        std::vector<Remark> remarks;
        if (ranks.leads()) remarks = trainer.setup().task->remarks_on_data(StopOnSignal::requested);
        if (!StopOnSignal::requested()) say_remarks(remarks);
    }
    trainer.set_diagnosis(explain);
    TrainLine progress(quiet, exit_code);
    const RunSummary summary = trainer.fit(progress);
    progress.finish();
    const bool finished = summary.status == "finished";
    if (!finished) StopOnSignal::adopt(trainer.stop_number());
    const std::string folder = summary.folder.lexically_normal().string();
    if (summary.nothing_left) {
        tell_nothing_left(summary, ended_by(trainer, config, summary), quiet);
    } else if (quiet) {
        say(folder);
        if (output_error() != 0)
            warn(fmt::format("warning: standard output is lost ({}); the run folder is {}", output_error_text(),
                             folder));
    } else {
        say(finished ? paint(Colour::bold, "finished")
                     : paint(Colour::yellow, fmt::format("interrupted by {}", StopOnSignal::name())));
        print(summary_table(summary, trainer.setup().scaler->enabled()));
        if (known && finished && summary.steps_now > 0)
            say_benefits("Measured benefits, against FP32 in that validation", measured_benefits(*known, summary));
        // Of weights that have seen NaN, other thresholds would not be the remedy.
        if (finished && summary.steps_now > 0 && summary.all_finite) say_remarks(remarks_on_run(trainer, config));
        say(fmt::format("run folder: {}", folder));
        if (finished && summary.steps_now == 0)
            say(fmt::format("there was nothing left to train; a larger {} goes on",
                            ended_by(trainer, config, summary)));
        if (!summary.all_finite) warn("warning: some losses or weights were NaN or infinite; see metrics.jsonl");
    }
    if (const std::string why = finished ? why_worthless(summary) : ""; !why.empty()) {
        warn(fmt::format("error: {}; find out why with: {} diagnose {}", why, program_name(), shell_word(folder)));
        return 1;
    }
    if (finished) return 0;
    warn(fmt::format("interrupted by {} at step {}; go on with: {}{} train --resume {}", StopOnSignal::name(),
                     summary.steps, words_of(launch_from_environment()), program_name(), shell_word(folder)));
    return StopOnSignal::exit_code();
}

}  // namespace

void add_train(CLI::App& app, int& exit_code) {
    CLI::App* command = app.add_subcommand("train", "Train a model in any precision");
    auto arguments = std::make_shared<TrainArguments>();
    TrainArguments& a = *arguments;
    a.add_to(*command);
    a.flag_for(*command, "--mixed_precision", "trainer.precision", "no, fp16, bf16 or any other spelling",
               "no|fp16|bf16|PRECISION");
    a.flag_for(*command, "--amp_opt_level", "trainer.amp_level",
               "O0 casts nothing, O1 goes by operation, O2 almost all low, O3 so and 16-bit weights", "LEVEL");
    a.flag_for(*command, "--grad_scaler_init", "scaler.init_scale", "Loss scale at the start", "SCALE");
    a.flag_for(*command, "--grad_scaler_growth_interval", "scaler.growth_interval",
               "Steps without overflow until the scale grows", "N");
    a.flag_for(*command, "--grad_scaler_backoff", "scaler.backoff_factor", "Factor of the scale on overflow", "FACTOR");
    a.flag_for(*command, "--batch_size", "data.batch_size", "Samples to a batch", "N");
    a.flag_for(*command, "--grad_accum_steps", "trainer.accumulate_grad_batches", "Batches to a step", "N");
    command->add_flag("--grad_ckpt", a.grad_ckpt, "Recompute activations in backward instead of keeping them");
    command
        ->add_option_function<std::string>(
            "--resume",
            [&a](const std::string& folder) {
                check<UsageError>(!folder.empty(), "--resume has no value; give the folder of a run, such as runs/{}",
                                  Config{}.exp_name);
                a.resume = folder;
            },
            "Go on with the run of this folder; keys may be changed")
        ->type_name("FOLDER");
    command
        ->add_option("--checkpoint", a.checkpoint,
                     "Where --resume goes on (best by checkpoint.monitor): last, best or the file of a checkpoint")
        ->type_name("WHICH");
    command->add_flag("--require-validated", a.require_validated,
                      "Refuse a precision that `invar validate` has not passed for this model and data");
    command->add_flag("--debug", a.debug, "Print the configuration and log every step");
    command->add_flag("--print-config", a.print_config, "Print the resolved configuration and leave");
    command->add_flag("--quiet", a.quiet, "Print only the folder of the run");
    command->footer(example({"invar train mnist_convnet --mixed_precision bf16 trainer.max_epochs=3",
                             "invar train data=synthetic trainer=fp16_safe optimizer.lr=3e-4",
                             "invar train --resume runs/mnist_convnet",
                             "invar train --resume runs/mnist_convnet --checkpoint best optimizer.lr=1e-4",
                             "mpirun -n 4 invar train fashion_mnist trainer.strategy=zero1"}) +
                    read_more("RANKS.md", "tells how several processes train together, under mpirun or Slurm"));
    command->callback([arguments, &exit_code] { exit_code = train(*arguments, exit_code); });
}

}  // namespace invar::cli
