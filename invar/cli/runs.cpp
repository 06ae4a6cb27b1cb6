// `invar runs`: the runs below a folder, side by side, with what differs in their configurations.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "invar/cli/commands.h"
#include "invar/cli/common.h"
#include "invar/cli/console.h"
#include "invar/config/table.h"
#include "invar/config/yaml.h"
#include "invar/core/error.h"
#include "invar/io/file.h"
#include "invar/train/run_folder.h"
#include "invar/train/summary.h"
#include "invar/validate/begun.h"
#include "invar/validate/run_log.h"

namespace invar::cli {

namespace fs = std::filesystem;

namespace {

struct RunsArguments {
    std::string folder = Config{}.output_dir, sort;
    bool json = false;
};

struct FoundRun {
    fs::path folder;
    nlohmann::json summary = nlohmann::json::object();
    std::map<std::string, std::string> settings;  // by key; empty where its configuration cannot be read
};

// Runs of a validation lie in a folder of their own, runs of other commands in theirs.
constexpr int kDeepest = 4;
constexpr std::size_t kLeastOfName = 20;  // letters that a narrow terminal shows

void find_runs(const fs::path& folder, int depth, std::vector<fs::path>& found) {
    if (RunFolder::is_run(folder)) return found.push_back(folder);
    if (depth == kDeepest) return;
    std::error_code error;
    std::vector<fs::path> below;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
        std::error_code ignored;
        if (entry->is_directory(ignored) && !entry->is_symlink(ignored)) below.push_back(entry->path());
    }
    std::ranges::sort(below);
    for (const fs::path& each : below) find_runs(each, depth + 1, found);
}

// Keys that a validation sets by itself in its runs: of those, what it was told counts.
bool is_set_by_validation(const std::string& key) {
    return key == "data.seed" || key == "trainer.log_every_n_steps";
}

// Whether whoever trained there is gone.
bool is_left(const fs::path& folder) {
    std::error_code ignored;
    if (!fs::is_regular_file(folder / FolderLock::kFile, ignored)) return false;
    try {
        return FolderLock::try_lock(folder).has_value();
    } catch (const Error&) {  // a folder of somebody else, or on a disk that is only to be read
        return false;
    }
}

FoundRun look_at(const fs::path& folder) {
    FoundRun run{folder, {}, {}};
    if (nlohmann::json summary = read_summary(RunFolder::summary_of(folder)); summary.is_object())
        run.summary = std::move(summary);
    // A run that was killed, or could not write any more, has not said so.
    if (run.summary.value("status", nlohmann::json()) == "running" && is_left(folder)) run.summary["status"] = "ended";
    try {
        const fs::path file = RunFolder::config_of(folder);
        const Config config = parse_config(read_file(file, kMaxConfigBytes), file.string());
        const fs::path beside = folder.parent_path();
        const Config told =
            is_validation(beside) ? parse_config(BegunValidation::read(beside, {}).config, beside.string()) : config;
        for (const Field& field : config_fields())
            if (field.applies(config))
                run.settings[field.key] = field.print(is_set_by_validation(field.key) ? told : config);
    } catch (const Error&) {  // of a plug-in that is not here, say: the rest is told all the same
    }
    if (run.summary.contains("ranks") && !run.settings.empty()) run.settings["ranks"] = run.summary["ranks"].dump();
    return run;
}

using Usual = std::map<std::string, std::string>;

// Keys of which the runs have more than one value, each with the value that more than half of them have, "" where there
// is none. Where a run lies is no difference.
Usual differing(const std::vector<FoundRun>& runs) {
    std::map<std::string, std::map<std::string, std::size_t>> counts;
    std::size_t known = 0;
    for (const FoundRun& run : runs) {
        known += !run.settings.empty();
        for (const auto& [key, value] : run.settings) ++counts[key][value];
    }
    Usual usual;
    for (const auto& [key, values] : counts) {
        if (key == "exp_name" || key == "output_dir") continue;
        const auto most = std::ranges::max_element(values, {}, [](const auto& entry) { return entry.second; });
        if (most->second < known) usual[key] = 2 * most->second > known ? most->first : "";
    }
    return usual;
}

// What our tasks measure as a share, which the console shows in percent.
bool is_share(const std::string& key) {
    constexpr const char* kShares[] = {"val_accuracy", "val_hmean", "val_precision", "val_recall"};
    return std::ranges::find(kShares, key) != std::end(kShares);
}

std::string text_of(const nlohmann::json& summary, const std::string& key) {
    const auto found = summary.find(key);
    if (found == summary.end() || found->is_null()) return "-";
    if (found->is_string()) return found->get<std::string>();
    if (is_share(key) && found->is_number()) return fmt::format("{:.2f}%", 100 * found->get<double>());
    return found->is_number_float() ? fmt::format("{:.4g}", found->get<double>()) : found->dump();
}

// Whether there is something to put in order: NaN, which a summary has as text, is neither large nor small.
bool has_value(const nlohmann::json& summary, const std::string& key) {
    const auto found = summary.find(key);
    if (found == summary.end() || found->is_null()) return false;
    double number = 0.0;
    return !found->is_string() || !parse_number(found->get_ref<const std::string&>(), number) || !std::isnan(number);
}

// By a key of their summaries; "-key" has the largest first. Who has no such value comes last.
void sort_runs(std::vector<FoundRun>& runs, std::string key) {
    const bool falls = key.starts_with('-');
    if (falls) key.erase(0, 1);
    const auto has = [&](const FoundRun& run) { return has_value(run.summary, key); };
    check<UsageError>(std::ranges::any_of(runs, [&](const FoundRun& run) { return run.summary.contains(key); }),
                      "--sort {}: no run has it in its summary.json; there are val_loss, steps, status and others",
                      key);
    std::ranges::stable_sort(runs, [&](const FoundRun& a, const FoundRun& b) {
        if (!has(a) || !has(b)) return has(a) && !has(b);
        return falls ? b.summary[key] < a.summary[key] : a.summary[key] < b.summary[key];
    });
}

void print_differences(const std::vector<FoundRun>& runs, const Usual& usual) {
    std::vector<std::string> lines;
    for (const FoundRun& run : runs) {
        std::vector<std::string> told;
        for (const auto& [key, value] : usual)
            if (const auto own = run.settings.find(key); own != run.settings.end() && own->second != value)
                told.push_back(key + "=" + own->second);
        if (!told.empty()) lines.push_back(fmt::format("  {}: {}", run.folder.string(), fmt::join(told, " ")));
    }
    if (lines.empty()) return;
    say("");
    say(paint(Colour::bold, "what differs in their configurations from what most have"));
    for (const std::string& line : lines) say(line);
}

void print_runs(const std::vector<FoundRun>& runs, const Usual& usual) {
    std::vector<std::string> metrics;
    for (const FoundRun& run : runs)
        for (const auto& [key, value] : run.summary.items())
            if (key.starts_with("val_") && key != "val_samples" && std::ranges::find(metrics, key) == metrics.end())
                metrics.push_back(key);
    std::vector<std::string> header{"run", "status", "precision", "steps", "loss"};
    header.insert(header.end(), metrics.begin(), metrics.end());
    Table table(header);
    for (const FoundRun& run : runs) {
        std::vector<std::string> cells{run.folder.string()};
        for (std::size_t i = 1; i < header.size(); ++i) cells.push_back(text_of(run.summary, header[i]));
        table.row(cells);
    }
    // Two metrics stay: what most look for.
    std::vector<std::string> dispensable{"steps"};
    if (metrics.size() > 2) dispensable.insert(dispensable.end(), metrics.rbegin(), metrics.rend() - 2);
    dispensable.insert(dispensable.end(), {"loss", "precision"});
    std::vector<std::string> left_out;
    print(table.fitted("", dispensable, kLeastOfName, &left_out));
    if (!left_out.empty())
        say(fmt::format("no room for {}: a wider terminal shows more, a pipe and --json all",
                        fmt::join(left_out, ", ")));
    if (runs.size() > 1 && !usual.empty()) print_differences(runs, usual);
}

void print_json(const std::vector<FoundRun>& runs, const Usual& usual) {
    for (const FoundRun& run : runs) {
        nlohmann::json told = nlohmann::json::object();
        for (const auto& [key, ignored] : usual)
            if (const auto value = run.settings.find(key); value != run.settings.end()) told[key] = value->second;
        say(nlohmann::json({{"run", run.folder.string()}, {"summary", run.summary}, {"told_differently", told}})
                .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    }
}

void list_runs(const RunsArguments& a) {
    std::error_code error;
    check<UsageError>(fs::is_directory(a.folder, error), "{}: there is no such folder; name one with runs in it",
                      a.folder);
    std::vector<fs::path> folders;
    find_runs(a.folder, 0, folders);
    check<UsageError>(!folders.empty(), "{}: there is no run in it", a.folder);
    std::vector<FoundRun> runs;
    for (const fs::path& folder : folders) runs.push_back(look_at(folder));
    if (!a.sort.empty()) sort_runs(runs, a.sort);
    const Usual usual = differing(runs);
    a.json ? print_json(runs, usual) : print_runs(runs, usual);
}

}  // namespace

void add_runs(CLI::App& app, int&) {
    CLI::App* command = app.add_subcommand("runs", "List the runs below a folder, and what differs between them");
    auto arguments = std::make_shared<RunsArguments>();
    command->add_option("FOLDER", arguments->folder, "Where to look; runs/ where none is named")
        ->option_text("[FOLDER]");
    command->add_option("--sort", arguments->sort, "By a key of summary.json; -KEY has the largest first")
        ->option_text("KEY");
    command->add_flag("--json", arguments->json, "Print a JSON object for each run");
    command->footer(example({"invar runs", "invar runs runs --sort -val_accuracy"}));
    command->callback([arguments] { list_runs(*arguments); });
}

}  // namespace invar::cli
