// `invar diagnose`: where low precision hurts. Some steps with instruments on, or the step that broke a run replayed.
#include "invar/safety/diagnose.h"

#include <fmt/format.h>

#include <memory>

#include "invar/cli/commands.h"
#include "invar/cli/common.h"
#include "invar/cli/console.h"
#include "invar/core/error.h"
#include "invar/core/shell.h"
#include "invar/io/file.h"
#include "invar/report/diagnosis.h"
#include "invar/report/text.h"
#include "invar/safety/failure.h"
#include "invar/train/run_folder.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

struct DiagnoseArguments : ConfigArguments {
    int steps = DiagnoseOptions{}.steps;
    std::string as, html;
    bool json = false;
};

// Without the columns that a narrow terminal has no room for, the least telling first. A pipe gets all.
std::string fitted(std::vector<std::string> header, std::vector<std::vector<std::string>> rows,
                   std::vector<std::size_t> dispensable) {
    const auto width = [&] {
        std::size_t all = 2;
        for (std::size_t c = 0; c < header.size(); ++c) {
            std::size_t widest = header[c].size();
            for (const auto& row : rows) widest = std::max(widest, row[c].size());
            all += widest + 2;
        }
        return all;
    };
    for (const std::size_t column : dispensable) {
        if (!on_terminal() || width() <= std::size_t(terminal_width())) break;
        header.erase(header.begin() + std::ptrdiff_t(column));
        for (auto& row : rows) row.erase(row.begin() + std::ptrdiff_t(column));
    }
    Table table(header);
    for (auto& row : rows) table.row(std::move(row));
    return table.text("  ");
}

void print_finding(const Finding& f) {
    say(paint(Colour::red, fmt::format("first bad operation: {} ({})", f.where(), name_of(f.dtype))));
    for (const Range& range : f.inputs) say("  " + range.str());
    say("  " + f.result.str());
    say(fmt::format("in FP32: this operation is {}, the whole step is {}", f.op_finite ? "finite" : "not finite",
                    f.step_finite ? "finite" : "not finite"));
    say(fmt::format("to blame: {}; {}", paint(Colour::bold, name_of(f.blame)), f.explanation));
    if (!f.remedy.empty())
        say(fmt::format("remedy: {}{}", paint(Colour::green, shell_word(f.remedy)),
                        f.verified ? "   (replayed with it, the step is finite)" : ""));
}

void print_updates(const Diagnosis& d) {
    std::vector<std::vector<std::string>> rows;
    std::int64_t updates = 0, lost = 0;
    for (const LostUpdates& u : d.updates) {
        updates += u.updates, lost += u.lost;
        if (u.lost > 0) rows.push_back({u.parameter, human_count(u.updates), fmt::format("{:.2f}%", 100 * u.share())});
    }
    if (updates == 0) return;
    say(fmt::format("weights kept in {} alone would lose {:.2f}% of their updates to rounding; FP32 masters lose none",
                    name_of(d.format), 100.0 * double(lost) / double(updates)));
    if (!rows.empty()) fmt::print("{}", fitted({"weight", "updates", "lost"}, rows, {1}));
}

void print_diagnosis(const Diagnosis& d, const std::string& name) {
    say(fmt::format("{}: {} step{} in FP32, held against {}", name, d.steps, d.steps == 1 ? "" : "s",
                    name_of(d.format)));
    std::vector<std::vector<std::string>> rows;
    for (const PassageRow& r : passage_rows(d))
        rows.push_back({r.module, r.direction, r.largest, r.smallest, r.overflow, r.subnormal, r.vanish, r.head_room});
    fmt::print("{}",
               fitted({"module", "direction", "largest", "smallest", "overflow", "subnormal", "vanish", "head-room"},
                      rows, {3, 4, 2}));
    say("");
    say(scale_sentence(d));
    if (d.scale_drops > 0)
        say(fmt::format("the loss scale was lowered {} time{}, to {:g}", d.scale_drops, d.scale_drops == 1 ? "" : "s",
                        d.scale_survived));
    print_updates(d);
    say("");
    if (d.finding) print_finding(d.finding);
    for (const Concern& c : d.concerns) {
        say(paint(Colour::yellow, c.text));
        if (!c.remedy.empty()) say(fmt::format("remedy: {}", paint(Colour::green, shell_word(c.remedy))));
    }
    if (d.healthy()) say(paint(Colour::green, "nothing overflows, vanishes or jumps"));
}

bool is_run(const std::string& word) {
    std::error_code ignored;
    return !word.empty() && fs::is_regular_file(RunFolder::config_of(word), ignored);
}

int replay_run(const DiagnoseArguments& a, const fs::path& run) {
    const Failure failure = load_failure(failure_folder(run));
    Config config = parse_config(failure.config_yaml(), (failure_folder(run) / "state.safetensors").string());
    if (!a.overrides().empty()) {
        ConfigArguments keys = a;
        std::erase_if(keys.words, [](const std::string& word) { return word.find('=') == word.npos; });
        config = keys.load_over_text(failure.config_yaml());
    }
    Setup setup(config);
    const Finding finding = replay_failure(setup, failure);
    if (a.json) {
        say(finding.json().text());
    } else {
        say(fmt::format("{}: step {} replayed in {} at loss scale {:g}", run.string(), failure.progress.step,
                        setup.precision.name(), failure.scale));
        finding ? print_finding(finding) : say(paint(Colour::green, "the step is finite"));
    }
    return finding ? 1 : 0;
}

int diagnose_command(DiagnoseArguments& a) {
    const std::string word = a.config();
    if (is_run(word) && has_failure(word)) return replay_run(a, word);
    Config config;
    std::optional<Checkpoint> checkpoint;
    if (is_run(word)) {
        std::erase(a.words, word);
        config = a.load_over(RunFolder::config_of(word));
        const LatestCheckpoint latest = CheckpointFolder(RunFolder::checkpoints_of(word), 1).latest();
        if (latest) checkpoint = load_checkpoint(latest.path);
    } else {
        config = a.load();
    }
    DiagnoseOptions options = diagnose_options(config, a.as);
    options.steps = a.steps;
    LiveLine line;
    options.progress = [&](double share) {
        if (!a.json && line.due()) line.show({fmt::format("{} {:3.0f}%", bar(share, 24), 100 * share)});
    };
    Setup setup(config);
    if (checkpoint) restore_snapshot(setup, *checkpoint);
    const Diagnosis diagnosis = diagnose(setup, options);
    line.clear();
    const fs::path file = !a.html.empty() ? fs::path(a.html)
                          : is_run(word)  ? fs::path(word) / "diagnosis.html"
                                          : fs::path(config.output_dir) / (config.exp_name + "_diagnosis.html");
    if (file.has_parent_path()) make_folders(file.parent_path());
    write_file_atomically(file, html_diagnosis(diagnosis, "Diagnosis of " + config.exp_name));
    if (a.json) {
        say(json_diagnosis(diagnosis));
    } else {
        print_diagnosis(diagnosis, config.exp_name);
        say(fmt::format("heat maps: {}", file.string()));
    }
    return diagnosis.finding ? 1 : 0;
}

}  // namespace

void add_diagnose(CLI::App& app, int& exit_code) {
    CLI::App* command = app.add_subcommand("diagnose", "Show where low precision hurts a model, or why a run broke");
    auto arguments = std::make_shared<DiagnoseArguments>();
    DiagnoseArguments& a = *arguments;
    a.add_to(*command, "[CONFIG|RUN] [key=value ...]");
    command->add_option("--steps", a.steps, "Steps to watch")->option_text("N");
    command
        ->add_option("--as", a.as, "Format to hold values against: fp16, bf16, e4m3 or e5m2; the run's own, else fp16")
        ->option_text("FORMAT");
    command->add_option("--html", a.html, "Where the heat maps go")->option_text("FILE");
    command->add_flag("--json", a.json, "Print one JSON object");
    command->footer(example({"invar diagnose fashion_mnist", "invar diagnose fashion_mnist --as bf16 --steps 50",
                             "invar diagnose runs/fashion_mnist"}) +
                    "\n\nA run that broke keeps the step that did it: `invar diagnose RUN` replays that. Exits with 1 "
                    "where NaN or Inf is found.\ndocs/DIAGNOSE.md tells how to read the table.");
    command->callback([arguments, &exit_code] { exit_code = diagnose_command(*arguments); });
}

}  // namespace invar
