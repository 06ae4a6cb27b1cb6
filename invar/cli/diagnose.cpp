// `invar diagnose`: where low precision hurts. Some steps with instruments on, or the step that broke a run replayed.
#include "invar/diagnose/diagnose.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "invar/cli/commands.h"
#include "invar/cli/common.h"
#include "invar/cli/console.h"
#include "invar/cli/diagnose_probe.h"
#include "invar/cli/start_up.h"
#include "invar/core/error.h"
#include "invar/core/printable.h"
#include "invar/core/shell.h"
#include "invar/diagnose/failure.h"
#include "invar/diagnose/probe.h"
#include "invar/diagnose/rerun.h"
#include "invar/diagnose/step_again.h"
#include "invar/io/file.h"
#include "invar/ops/to.h"
#include "invar/report/diagnosis.h"
#include "invar/report/text.h"
#include "invar/tasks/registry.h"
#include "invar/train/low_precision.h"
#include "invar/train/run_folder.h"
#include "invar/train/summary.h"

namespace invar::cli {

namespace fs = std::filesystem;

namespace {

struct DiagnoseArguments : ConfigArguments {
    int steps = DiagnoseOptions{}.steps;
    std::int64_t step = 0;  // of a run, to be replayed; 0: the one it kept, or the first that was not finite
    std::string as, html, patch;
    bool json = false;
};

void print_finding(const Finding& f) {
    say(paint(Colour::red, fmt::format("first bad operation: {} ({})", f.where(), name_of(f.dtype))));
    for (const Range& range : f.inputs) say("  " + range.str());
    say("  " + f.result.str());
    say(f.in_fp32());
    say(fmt::format("to blame: {}; {}", paint(Colour::bold, name_of(f.blame)), f.explanation));
    if (f.remedy)
        say(fmt::format("remedy: {}   {}", paint(Colour::green, shell_word(f.remedy.str())), f.remedy_tried()));
}

void print_updates(const Diagnosis& d) {
    for (const StillAverage& a : d.averages)
        say(fmt::format("moving average {}, kept in {}: {:.2f}% of its {} values stand still where they should not",
                        a.buffer, name_of(a.dtype), 100 * a.share(), human_count(a.values)));
    std::int64_t updates = 0, lost = 0, decays = 0, decays_lost = 0;
    for (const LostUpdates& u : d.updates)
        updates += u.updates, lost += u.lost, decays += u.decays, decays_lost += u.decays_lost;
    const bool decay = !d.masters && decays > 0;  // with masters nothing of it is at stake
    if (updates == 0) return;
    if (decay)
        say(fmt::format("of the weight decay alone {:.2f}% would round to nothing",
                        100.0 * double(decays_lost) / double(decays)));
    say(fmt::format("weights kept in {} alone would lose {:.2f}% of their updates to rounding; FP32 masters lose none",
                    name_of(d.format), 100.0 * double(lost) / double(updates)));
    if (lost == 0 && (!decay || decays_lost == 0)) return;
    std::vector<std::string> columns = {"weight", "updates", "lost"};
    if (decay) columns.emplace_back("decay lost");
    Table table(columns);
    for (const LostUpdates& u : d.updates) {
        if (u.lost == 0 && (!decay || u.decays_lost == 0)) continue;
        std::vector<std::string> row = {u.parameter, human_count(u.updates), fmt::format("{:.2f}%", 100 * u.share())};
        if (decay) row.push_back(u.decays == 0 ? "-" : fmt::format("{:.2f}%", 100 * u.decay_share()));
        table.row(row);
    }
    print(table.fitted("  ", {"updates"}));
}

void print_concerns(const Diagnosis& d) {
    for (const Concern& c : d.concerns) {
        say(paint(Colour::yellow, c.text));
        if (c.remedy) say(fmt::format("remedy: {}", paint(Colour::green, shell_word(c.remedy.str()))));
    }
}

// Of a run in FP32: what no precision has to do with, and FP32's own NaN and Inf.
void leave_to_fp32(Diagnosis& d) {
    std::erase_if(d.concerns, [](const Concern& c) { return is_of_precision(c.kind); });
    if (d.finding && d.finding.step_finite) d.finding = {};
}

void print_diagnosis(const Diagnosis& d, const std::string& name) {
    say(fmt::format("{}: {} step{} in FP32, held against {}", name, d.steps, d.steps == 1 ? "" : "s",
                    name_of(d.format)));
    if (d.layers.empty() && d.finding) {  // it broke in the first step, before anything was counted
        say("");
        print_finding(d.finding);
        return;
    }
    Table table(
        {"module", "direction", "largest", "smallest", "overflow", "subnormal", "vanish", "head-room", "off FP32"});
    for (const PassageRow& r : passage_rows(d))
        table.row(
            {r.module, r.direction, r.largest, r.smallest, r.overflow, r.subnormal, r.vanish, r.head_room, r.off});
    print(table.fitted("  ", {"smallest", "subnormal", "largest"}));
    if (const std::string note = rows_note(d); !note.empty()) say("  " + paint(Colour::dim, note));
    say("");
    say(scale_sentence(d));
    if (const std::string sentence = overflow_sentence(d); !sentence.empty()) say(sentence);
    print_updates(d);
    say("");
    if (d.finding) print_finding(d.finding);
    print_concerns(d);
    if (d.healthy()) say(paint(Colour::green, healthy_sentence(d)));
}

// NaN or Inf, in a step or in the data.
int exit_code_of(const Diagnosis& d) {
    const auto in_data = [](const Concern& c) { return c.kind == Concern::Kind::data; };
    return d.finding || std::ranges::any_of(d.concerns, in_data) ? 1 : 0;
}

bool is_run(const std::string& word) {
    return !word.empty() && RunFolder::is_run(word);
}

// Writes the page; where it lies.
fs::path write_page(const DiagnoseArguments& a, const Diagnosis& diagnosis, const Config& config, const fs::path& run) {
    const fs::path file = !a.html.empty() ? fs::path(a.html)
                          : !run.empty()  ? run / "diagnosis.html"
                                          : fs::path(config.output_dir) / (config.exp_name + "_diagnosis.html");
    if (file.has_parent_path()) make_folders(file.parent_path());
    write_file_atomically(file, html_diagnosis(diagnosis, "Diagnosis of " + config.exp_name));
    return file;
}

// In FP32, from a state where there is one; the first step is on `first`, where that holds something.
Diagnosis watch(const DiagnoseArguments& a, Config& config, int steps, const Checkpoint* state,
                const std::vector<Batch>& first = {}) {
    DiagnoseOptions options = diagnose_options(config, a.as);
    options.steps = steps;
    LiveLine line;
    options.progress = [&](double share) {
        if (!a.json && line.due()) line.show({fmt::format("{} {:3.0f}%", bar(share, 24), 100 * share)});
    };
    Setup setup(config);
    if (state != nullptr) {
        check_same_data(*state, setup.train_data->dataset(), config.exp_name);
        restore_snapshot(setup, *state);
    }
    if (!first.empty())
        options.before_step = [&](int step, std::vector<Batch>& group) {
            if (step == 1) group = on_device(first, setup.device);
        };
    return diagnose(setup, options);
}

// Why the run says it stopped; "" where it does not say. A folder of an earlier version has only the whole message,
// which also names this command.
std::string reason_of(const fs::path& run) {
    const nlohmann::json summary = read_summary(RunFolder::summary_of(run));
    for (const char* key : {"failure_reason", "failure"})
        if (summary.is_object() && summary.contains(key) && summary[key].is_string()) return summary[key];
    return "";
}

// The run trained again until just before the step.
Failure go_to_step(const DiagnoseArguments& a, const fs::path& run, Config config, const WayToStep& way) {
    if (!a.json)
        warn(fmt::format("step {} of {}: {} step{} trained again from {}", way.step, run.string(), way.again(),
                         way.again() == 1 ? " is" : "s are",
                         way.checkpoint.empty() ? "the beginning" : way.checkpoint.filename().string()));
    LiveLine line;
    return state_before(way, config, [&](double share) {
        if (!a.json && line.due()) line.show({fmt::format("{} {:3.0f}%", bar(share, 24), 100 * share)});
    });
}

// One step alone does not tell whether a precision is to blame: FP32 may go astray from the same weights on.
void judge_from_before(Finding& finding, const fs::path& run, const Config& config, const Failure& failure) {
    if (!finding || finding.blame == Blame::data || finding.blame == Blame::weights) return;
    const Explanation why = tried_from_before(run, config, failure);
    if (!why.of_any_precision()) return;
    finding.blame = why.remedy ? Blame::learning_rate : Blame::model;
    finding.explanation = why.full_precision == Explanation::FullPrecision::fails
                              ? "from before the trouble on FP32 goes the same way"
                              : "from before the trouble on FP32 is thrown off too, though it stays finite";
    finding.remedy = why.remedy, finding.verified = why.verified;
}

// A step that was gone back to is that of the run only where its loss is.
void say_whether_it_is_the_same(const fs::path& run, std::int64_t step, double loss) {
    constexpr double kRounding = 1e-5;
    const std::optional<double> logged = logged_loss(run, step);
    if (!logged || !std::isfinite(*logged) || !std::isfinite(loss)) return;
    if (std::fabs(loss - *logged) <= kRounding * std::max(std::fabs(loss), std::fabs(*logged))) return;
    warn(
        fmt::format("warning: the run's own loss at step {} was {:.6g}, and trained again it is {:.6g}: the run was "
                    "changed on its way (resumed with other settings, on other data, on ranks that round or normalise "
                    "by themselves), and what follows is of a run that only resembles it",
                    step, *logged, loss));
}

int replay_step(const DiagnoseArguments& a, const fs::path& run, const Failure& failure) {
    Config config = parse_config(failure.config_yaml(), (failure_folder(run) / "state.safetensors").string());
    if (!a.overrides().empty()) {
        ConfigArguments keys = a;
        std::erase_if(keys.words, [](const std::string& word) { return !is_override(word); });
        config = keys.load_over_text(failure.config_yaml());
    }
    config.init_from.clear();  // the weights are kept with the failure
    Finding finding;
    Replayed step, in_full;
    std::string precision;
    bool low = false;
    {
        Setup setup(config);
        precision = setup.precision.name();
        finding = replay_failure(setup, failure);
        const std::vector<Batch> group = on_device(failure.group, setup.device);
        step = replay(*setup.model, *setup.optimizer, {group, failure.rng},
                      {setup.precision, failure.scale, true, setup.loss, nullptr});
        in_full = replay(*setup.model, *setup.optimizer, {group, failure.rng},
                         {kFullPrecision, 1.0, false, setup.loss, nullptr});
        low = computes_low(*setup.model, setup.precision);
    }
    if (a.overrides().empty()) judge_from_before(finding, run, config, failure);
    Diagnosis diagnosis = watch(a, config, finding ? 1 : a.steps, &failure.state, failure.group);
    // What another precision would have met is no reason for what this one did.
    if (!low && a.as.empty()) leave_to_fp32(diagnosis);
    if (finding) diagnosis.finding = finding;
    const fs::path page = write_page(a, diagnosis, config, run);
    const std::int64_t number = failure.progress.step + 1;  // progress counts the steps before it
    const std::string reason = reason_of(run);
    if (a.overrides().empty() && failure.ranks == 1) say_whether_it_is_the_same(run, number, step.loss);
    if (a.json && finding) {
        say(finding.json().text());
    } else if (a.json) {
        const nlohmann::json all = {
            {"found", false},    {"step", number},
            {"loss", step.loss}, {"loss_in_fp32", in_full.loss},
            {"stopped", reason}, {"diagnosis", nlohmann::json::parse(json_diagnosis(diagnosis))}};
        say(all.dump());
    } else {
        say_why_on_cpu(config);
        const std::string whose =
            failure.rank < 0 ? "" : fmt::format(", the part of rank {} of {}", failure.rank, failure.ranks);
        say(fmt::format("{}: step {}{} replayed in {} at loss scale {:g}", run.string(), number, whose, precision,
                        failure.scale));
        if (finding) {
            print_finding(finding);
        } else {
            say(fmt::format("the step is finite, its loss is {:.6g}{}", step.loss,
                            low ? fmt::format("; in FP32 it is {:.6g}", in_full.loss) : ""));
            if (!reason.empty()) say("the run stopped: " + reason);
            if (low || !a.as.empty()) {
                say("");
                print_diagnosis(diagnosis, config.exp_name);
            } else {
                say("the run was computed in FP32: no other precision is to blame, and none would mend it");
                print_concerns(diagnosis);
            }
        }
        say(fmt::format("{}: {}", diagnosis.layers.empty() ? "page" : "heat maps", page.string()));
    }
    return exit_code_of(diagnosis);
}

// Nothing where the words name no probe.
std::optional<int> diagnose_words_of_probes(const DiagnoseArguments& a) {
    ProbeArguments probes{{}, a.steps, a.step, a.as, a.html, a.patch, a.json};
    bool any = false;
    for (const std::string& word : a.words)
        if (!is_override(word)) probes.folders.push_back(word), any = any || is_probe(word);
    check<UsageError>(any || a.patch.empty(), "--patch is for a probe of a PyTorch run");
    if (!any) return {};
    for (const std::string& key : a.overrides())
        fail<UsageError>("{}: a probe is read as it is; it has no keys to set", key);
    return diagnose_probes(probes);
}

// The step that is asked for, or the first that was not finite in a run that went on all the same. Nothing where there
// is none, or where it is too far to be gone to unasked.
std::optional<int> diagnose_step(const DiagnoseArguments& a, const std::string& run) {
    const std::int64_t step = a.step != 0 ? a.step : first_bad_step(run).value_or(0);
    if (step == 0) return {};
    ConfigArguments as_it_was;
    as_it_was.flags = a.flags;
    const Config config = as_it_was.load_run(run);
    std::optional<WayToStep> way;
    try {
        way = way_to_step(run, config, step);
    } catch (const UsageError&) {
        if (a.step != 0) throw;
        return {};
    }
    if (a.step == 0 && way->again() > kMostStepsAgain) {
        warn(
            fmt::format("note: the loss of step {} was not finite; `{} diagnose {} --step {}` trains the {} steps "
                        "before it again, and looks into it",
                        step, program_name(), shell_word(run), step, way->again()));
        return {};
    }
    return replay_step(a, run, go_to_step(a, run, config, *way));
}

// A rate is advised only where the steps were seen to go well with it; `config` is that of the steps in FP32.
void try_rate(Diagnosis& d, const Config& config, const LatestCheckpoint& from) {
    const auto untried = [](const Remedy& remedy) { return remedy.kind == Remedy::Kind::learning_rate; };
    const bool in_concern = std::ranges::any_of(d.concerns, untried, &Concern::remedy);
    if (!in_concern && !untried(d.finding.remedy)) return;
    const Remedy tried =
        slower_rate({make_task(config), {}, config, from.path}, (from ? from.step : 0) + d.steps + kStepsAfter);
    if (untried(d.finding.remedy)) d.finding.remedy = tried, d.finding.verified = bool(tried);
    for (Concern& concern : d.concerns)
        if (untried(concern.remedy)) concern.remedy = tried;
}

int diagnose_command(DiagnoseArguments& a) {
    if (const std::optional<int> code = diagnose_words_of_probes(a)) return *code;
    const std::string word = a.config();
    const bool of_run = is_run(word);
    check<UsageError>(of_run || a.step == 0, "--step is for the folder of a run, or for a probe: {}",
                      word.empty() ? "here is none" : fmt::format("{} is neither", printable(word)));
    if (of_run && a.step == 0 && has_failure(word)) return replay_step(a, word, load_failure(failure_folder(word)));
    Config config;
    std::optional<Checkpoint> checkpoint;
    LatestCheckpoint latest;
    if (of_run) {
        if (const std::optional<int> code = diagnose_step(a, word)) return *code;
        std::erase(a.words, word);
        config = a.load_run(word);
        latest = CheckpointFolder(RunFolder::checkpoints_of(word), 1).latest();
        latest.check_usable(word);
        for (const std::string& reason : latest.passed_over) warn("note: passed over a checkpoint: " + reason);
        if (latest) checkpoint = load_checkpoint(latest.path), config.init_from.clear();
    } else {
        config = a.load();
    }
    const bool of_fp32 = of_run && a.as.empty() && !is_sixteen_bit(config.trainer.resolved_precision().compute_dtype());
    Diagnosis diagnosis = watch(a, config, a.steps, checkpoint ? &*checkpoint : nullptr);
    if (of_fp32) leave_to_fp32(diagnosis);
    try_rate(diagnosis, config, latest);
    const fs::path page = write_page(a, diagnosis, config, of_run ? fs::path(word) : fs::path());
    if (a.json) {
        say(json_diagnosis(diagnosis));
    } else {
        say_why_on_cpu(config);
        print_diagnosis(diagnosis, config.exp_name);
        if (of_fp32)
            say("the run was computed in FP32: what another precision would meet is told where one is named (--as "
                "fp16)");
        say(fmt::format("{}: {}", diagnosis.layers.empty() ? "page" : "heat maps", page.string()));
    }
    return exit_code_of(diagnosis);
}

}  // namespace

void add_diagnose(CLI::App& app, int& exit_code) {
    CLI::App* command = app.add_subcommand("diagnose", "Show where low precision hurts a model, or why a run broke");
    auto arguments = std::make_shared<DiagnoseArguments>();
    DiagnoseArguments& a = *arguments;
    a.add_to(*command, "[CONFIG|RUN|PROBE [PROBE]] [key=value ...]",
             "An experiment, a YAML file, the folder of a run, or one or two probes of PyTorch runs");
    command->add_option("--steps", a.steps, "Steps to watch")->option_text("N");
    command->add_option("--step", a.step, "Step of a run to go back to and replay; of a probe, the one to look at")
        ->option_text("N")
        ->check(CLI::PositiveNumber);
    command
        ->add_option("--as", a.as, "Format to hold values against: fp16, bf16, e4m3 or e5m2; the run's own, else fp16")
        ->option_text("FORMAT");
    command->add_option("--html", a.html, "Where the heat maps go")->option_text("FILE");
    command->add_option("--patch", a.patch, "Where the patch goes that keeps a probe's modules in FP32")
        ->option_text("FILE");
    command->add_flag("--json", a.json, "Print one JSON object");
    command->footer(example({"invar diagnose fashion_mnist", "invar diagnose fashion_mnist --as bf16 --steps 50",
                             "invar diagnose runs/fashion_mnist", "invar diagnose runs/fashion_mnist --step 300",
                             "invar diagnose probe", "invar diagnose probe_fp32 probe_bf16"}) +
                    fmt::format("\n\nA run that broke keeps the step that did it: `{} diagnose RUN` replays that. Any "
                                "other step is trained to "
                                "again. A probe is what "
                                "invar_probe.py wrote of a PyTorch run. Exits with 1 where NaN or Inf is found or two "
                                "probes part, with 2 where it cannot look.",
                                program_name()) +
                    read_more("DIAGNOSE.md", "tells how to read the table") +
                    read_more("PROBE.md", "tells how to probe a PyTorch run"));
    command->callback([arguments, &exit_code] { exit_code = diagnose_command(*arguments); });
}

}  // namespace invar::cli
