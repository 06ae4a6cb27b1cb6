// `invar compare`: the verdict of `invar validate` on runs that are finished, whoever trained them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <set>

#include "invar/cli/arm_names.h"
#include "invar/cli/commands.h"
#include "invar/cli/common.h"
#include "invar/cli/console.h"
#include "invar/cli/verdict.h"
#include "invar/core/error.h"
#include "invar/core/shell.h"
#include "invar/core/suggest.h"
#include "invar/validate/comparable.h"
#include "invar/validate/learned.h"
#include "invar/validate/missing_values.h"
#include "invar/validate/run_files.h"

namespace invar::cli {

namespace fs = std::filesystem;

namespace {

struct CompareArguments {
    std::vector<std::string> paths;  // BASELINE CANDIDATE ..., each perhaps several with commas
    std::vector<std::string> baseline, candidate;
    std::string metric, direction, value = "last", report;
    std::string margin = Limits{}.word();
    std::int64_t samples = 0;
    bool json = false, any_length = false;
};

// The runs of one arm, before it is known which metric to look at.
struct FoundArm {
    std::string name;
    std::vector<std::string> paths;
    std::vector<FoundRun> runs;
};

std::string usage() {
    return fmt::format("usage: {0} compare BASELINE CANDIDATE, see {0} compare --help", program_name());
}

FoundArm find_arm(const std::vector<std::string>& paths, const std::string& role) {
    FoundArm arm;
    arm.paths = paths;
    for (const fs::path& run : find_runs(paths)) arm.runs.push_back(read_run(run));
    for (const FoundRun& run : arm.runs) {
        const std::string& first = arm.runs.front().precision;
        check<UsageError>(
            run.precision == first,
            "the {} holds runs in {} ({}) and in {} ({}); an arm is one configuration, so name its runs one by one",
            role, first, arm.runs.front().log.source, run.precision, run.log.source);
    }
    return arm;
}

// What a candidate's table leaves empty where the baseline has a value was computed, and is NaN.
void restore_computed(std::vector<FoundArm>& arms) {
    for (std::size_t i = 1; i < arms.size(); ++i)
        for (FoundRun& run : arms[i].runs)
            for (const FoundRun& baseline : arms.front().runs) invar::restore_computed(run.log, baseline.log);
}

std::vector<std::string> split(const std::vector<std::string>& words, const std::string& role) {
    std::vector<std::string> parts;
    std::error_code ignored;
    for (const std::string& word : words) {
        if (fs::exists(word, ignored)) {  // a comma may stand in a name
            parts.push_back(word);
            continue;
        }
        std::size_t begin = 0;
        while (begin <= word.size()) {
            const std::size_t end = std::min(word.find(',', begin), word.size());
            if (end > begin) parts.push_back(word.substr(begin, end - begin));
            begin = end + 1;
        }
    }
    check<UsageError>(!parts.empty(), "no {} given; {}", role, usage());
    return parts;
}

// Names that every run has; a metric that some lack cannot be compared.
std::vector<std::string> common_names(const std::vector<FoundArm>& arms) {
    std::vector<std::string> names = arms.front().runs.front().log.names();
    for (const FoundArm& arm : arms)
        for (const FoundRun& run : arm.runs)
            std::erase_if(names, [&](const std::string& name) { return !run.log.series.contains(name); });
    return names;
}

// What could be meant by --metric that is not a name of theirs.
std::string meant(const std::string& wanted, const std::vector<std::string>& names) {
    std::vector<std::string> words = names;
    for (const std::string& name : names)
        for (std::size_t at = name.find_first_of("/._-"); at != name.npos; at = name.find_first_of("/._-", at + 1))
            words.push_back(name.substr(at + 1));
    const std::string found = nearest(wanted, words);
    for (const std::string& name : names)
        if (!found.empty() && name.ends_with(found)) return fmt::format(" (did you mean '{}'?)", name);
    return "";
}

std::string choose_metric(const std::string& wanted, const std::vector<FoundArm>& arms) {
    const std::vector<std::string> names = common_names(arms), metrics = metrics_among(names);
    if (wanted.empty()) {
        const std::string metric = default_metric(names);
        if (!metric.empty()) return metric;
        const RunLog &one = arms.front().runs.front().log, &other = arms.back().runs.back().log;
        check<UsageError>(!metrics.empty(), "the runs have no metric in common; {} has {}, {} has {}", one.source,
                          fmt::join(metrics_among(one.names()), ", "), other.source,
                          fmt::join(metrics_among(other.names()), ", "));
        fail<UsageError>("no metric in common looks like one to judge by; name one of {} with --metric",
                         fmt::join(metrics, ", "));
    }
    const std::vector<std::string> found = matching_metrics(wanted, names);
    if (found.size() == 1) return found.front();
    check<UsageError>(found.empty(), "--metric {}: may be {}; give the whole name", wanted, fmt::join(found, " or "));
    for (const FoundArm& arm : arms)
        for (const FoundRun& run : arm.runs) {
            const std::vector<std::string> here = metrics_among(run.log.names());
            if (const auto bad = run.log.spoilt.find(wanted); bad != run.log.spoilt.end())
                throw UsageError(bad->second);
            check<UsageError>(!matching_metrics(wanted, run.log.names()).empty(),
                              "--metric {}: not in {}{}; there {} {}", wanted, run.log.source, meant(wanted, here),
                              here.size() == 1 ? "is" : "are", fmt::join(here, ", "));
        }
    fail<UsageError>("--metric {}: not under the same name in all runs; in all are {}", wanted,
                     fmt::join(metrics, ", "));
}

// A run that counts twice makes a test look surer than it is; one that stopped half-way is judged for what it did not
// do.
void check_runs(const std::vector<FoundArm>& arms, bool any_length, std::vector<std::string>& warnings) {
    std::vector<const FoundRun*> all;
    for (const FoundArm& arm : arms)
        for (const FoundRun& run : arm.runs) all.push_back(&run);
    for (std::size_t i = 0; i < all.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j)
            if (const std::string why = why_one_run(*all[j], *all[i]); !why.empty())
                fail<UsageError>("{}: that is one run, which counts once; leave one of them out", why);
        if (!all[i]->log.note.empty()) warnings.push_back(all[i]->log.note);
        if (const std::string& few = all[i]->hardly_in_last; !few.empty())
            warnings.push_back(fmt::format("{}: {}", all[i]->log.source, few));
        if (all[i]->unfinished.empty()) continue;
        const std::string why = fmt::format("{} is no whole run: {}", all[i]->log.source, all[i]->unfinished);
        check<UsageError>(any_length, "{}; finish it, or judge it as it is with --any-length", why);
        warnings.push_back(why);
    }
}

void check_lengths(Comparison& comparison, bool any_length) {
    const std::string why = why_unequal(comparison);
    if (why.empty()) return;
    check<UsageError>(any_length,
                      "the runs differ in length: {}; give runs of the same length, or judge them as they are with "
                      "--any-length",
                      why);
    comparison.warnings.push_back("the runs differ in length, and so does what is compared: " + why);
}

// Arms are called by their precision where that tells them apart, else by their paths.
void name_arms(std::vector<FoundArm>& arms) {
    std::set<std::string> precisions;
    std::vector<std::vector<std::string>> paths;
    for (const FoundArm& arm : arms) {
        precisions.insert(arm.runs.front().precision);
        paths.push_back(arm.paths);
    }
    const bool distinct = precisions.size() == arms.size() && !precisions.contains("");
    const std::vector<std::string> names = names_by_paths(paths);
    for (std::size_t i = 0; i < arms.size(); ++i) arms[i].name = distinct ? arms[i].runs.front().precision : names[i];
}

Arm arm_of(const FoundArm& found, const Comparison& comparison, Take take) {
    Arm arm;
    arm.name = found.name;
    for (const FoundRun& run : found.runs)
        arm.runs.push_back(record_of(run, comparison.metric, comparison.direction, take));
    return arm;
}

std::vector<std::string> words_of(const CompareArguments& a) {
    std::vector<std::string> words = a.paths;
    for (const std::string& path : a.baseline) words.insert(words.end(), {"--baseline", path});
    for (const std::string& path : a.candidate) words.insert(words.end(), {"--candidate", path});
    if (!a.metric.empty()) words.insert(words.end(), {"--metric", a.metric});
    if (!a.direction.empty()) words.insert(words.end(), {"--direction", a.direction});
    if (a.value != "last") words.insert(words.end(), {"--value", a.value});
    if (a.margin != Limits{}.word()) words.insert(words.end(), {"--margin", a.margin});
    if (a.samples > 0) words.insert(words.end(), {"--samples", std::to_string(a.samples)});
    if (a.any_length) words.emplace_back("--any-length");
    if (!a.report.empty()) words.insert(words.end(), {"--report", a.report});
    return words;
}

int compare_command(const CompareArguments& a) {
    check<UsageError>(a.value == "last" || a.value == "best", "--value {}: must be last or best",
                      a.value.substr(0, 80));
    check<UsageError>(a.samples >= 0, "--samples {}: must be at least 1", a.samples);
    Comparison comparison;
    comparison.limits = Limits::parse(a.margin);

    // The words come first, what is named by an option is added: BASELINE with --candidate works, and so does neither.
    std::vector<std::string> baseline = a.baseline;
    std::vector<std::vector<std::string>> candidates;
    std::size_t used = 0;
    if (baseline.empty() && !a.paths.empty()) baseline.push_back(a.paths[used++]);
    for (; used < a.paths.size(); ++used) candidates.push_back({a.paths[used]});
    if (!a.candidate.empty()) candidates.push_back(a.candidate);
    std::vector<FoundArm> arms = {find_arm(split(baseline, "BASELINE"), "baseline")};
    check<UsageError>(!candidates.empty(), "no CANDIDATE given; {}", usage());
    for (const std::vector<std::string>& paths : candidates)
        arms.push_back(find_arm(split(paths, "CANDIDATE"), "candidate"));
    restore_computed(arms);
    name_arms(arms);
    check_runs(arms, a.any_length, comparison.warnings);

    comparison.metric = choose_metric(a.metric, arms);
    comparison.direction = a.direction.empty() ? need_direction(comparison.metric) : parse_direction(a.direction);
    if (a.metric.empty() && !is_held_out(comparison.metric))
        comparison.warnings.push_back(fmt::format(
            "{} does not look like one on validation data, and the runs have no other in common", comparison.metric));
    const Take take = a.value == "best" ? Take::best : Take::last;
    comparison.baseline = arm_of(arms[0], comparison, take);
    for (std::size_t i = 1; i < arms.size(); ++i) comparison.candidates.push_back(arm_of(arms[i], comparison, take));
    check_lengths(comparison, a.any_length);
    const auto is_share = [](const RunRecord& run) { return run.metric >= 0 && run.metric <= 1; };
    const bool shares = std::ranges::all_of(comparison.baseline.runs, is_share);
    comparison.percent = comparison.metric.ends_with("accuracy") && shares;
    check_unit(comparison.limits, comparison.metric, shares, comparison.baseline.runs.front().metric);
    check<UsageError>(a.samples == 0 || shares, "--samples {}: {} is no share of samples, which lies from 0 to 1",
                      a.samples, comparison.metric);
    comparison.samples = a.samples;
    for (RunRecord& run : comparison.baseline.runs) {
        const Doubt doubt = doubt_learning(run, comparison.metric, comparison.direction);
        if (doubt.certain) run.not_learned = doubt.why;
        if (!doubt.why.empty() && !doubt.certain)
            comparison.warnings.push_back(fmt::format("the baseline {} may not have learned: {}", run.name, doubt.why));
    }
    decide(comparison);

    ReportFiles files;
    if (!a.report.empty())
        files = write_reports(a.report, comparison,
                              comparison_context(comparison, words_of(a), arms[0].runs.front().config));
    if (!a.json) {
        std::size_t runs = 0;
        for (const Arm& arm : comparison.candidates) runs += arm.runs.size();
        const std::size_t several = comparison.candidates.size();
        const bool found = !a.metric.empty() && a.metric != comparison.metric;
        say(fmt::format("{} ({}{} is better), {} baseline and {} candidate run{}{}", comparison.metric,
                        found ? fmt::format("meant by --metric {}, ", a.metric) : "",
                        comparison.direction == Better::higher ? "higher" : "lower", comparison.baseline.runs.size(),
                        runs, runs == 1 ? "" : "s", several > 1 ? fmt::format(" of {} candidates", several) : ""));
    }
    const int code = show_verdict(comparison, files, a.json);
    if (!a.json && shares && comparison.samples == 0 && counts_samples(comparison.metric))
        say(
            fmt::format("how many samples {} is a share of is not known; --samples N says it, and the verdict counts "
                        "them",
                        comparison.metric));
    return code;
}

}  // namespace

void add_compare(CLI::App& app, int& exit_code) {
    CLI::App* command =
        app.add_subcommand("compare", "Judge finished runs, ours or anyone's, as validate judges its own");
    auto arguments = std::make_shared<CompareArguments>();
    CompareArguments& a = *arguments;
    command
        ->add_option("paths", a.paths,
                     "Run folders of ours, Lightning's, Hugging Face's, TensorBoard's, W&B's or MLflow's, CSV or JSON "
                     "lines; several runs of an arm with commas, or a folder that holds them")
        ->option_text("BASELINE CANDIDATE [CANDIDATE ...]");
    command->add_option("--baseline", a.baseline, "One more run of the baseline; may be repeated")
        ->option_text("PATH")
        ->allow_extra_args(false);
    command->add_option("--candidate", a.candidate, "One more run of the candidate; may be repeated")
        ->option_text("PATH")
        ->allow_extra_args(false);
    command
        ->add_option("--metric", a.metric, "What is compared; left out, the first that looks like a validation metric")
        ->option_text("NAME");
    command
        ->add_option("--direction,--better", a.direction,
                     "Which way is better: higher or lower; left out, as the metric's name says")
        ->option_text("lower|higher");
    command->add_option("--value", a.value, "Which value stands for a run: last or best")->option_text("last|best");
    command->add_option("--margin", a.margin, kMarginHelp)->option_text("0.01|0.5pp|abs:0.005");
    command
        ->add_option("--samples", a.samples,
                     "How many samples the metric is a share of, as an accuracy is; left out, as our run folders say")
        ->option_text("N");
    command->add_flag("--any-length", a.any_length, "Judge runs of different length, or cut short, as they are");
    command->add_option("--report", a.report, "Write report.md, report.json and report.html into this folder")
        ->option_text("DIR");
    command->add_flag("--json", a.json, "One JSON object a line: every arm, then the verdict");
    command->footer(
        example({"invar compare runs/fp32 runs/fp16 --report report",
                 "invar compare logs/fp32/version_0/metrics.csv logs/fp16/version_0/metrics.csv --metric val/hmean",
                 "invar compare a_seed0.jsonl,a_seed1.jsonl b_seed0.jsonl,b_seed1.jsonl --metric eval_loss",
                 "invar compare 'export.csv:fp32*' 'export.csv:bf16*'"}) +
        "\n\nEnds with 0 on PASS, 3 on MARGINAL, 1 on FAIL, 4 on INVALID (the baseline learned nothing, "
        "broke\ndown, or its metric is 0), 2 where the runs cannot be compared.");
    command->callback([arguments, &exit_code] { exit_code = compare_command(*arguments); });
}

}  // namespace invar::cli
