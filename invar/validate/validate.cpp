#include "invar/validate/validate.h"

#include <algorithm>
#include <optional>

#include "invar/core/error.h"
#include "invar/core/shell.h"
#include "invar/core/version.h"
#include "invar/diagnose/record_failure.h"
#include "invar/kernels/devices.h"
#include "invar/tasks/registry.h"
#include "invar/train/step.h"
#include "invar/validate/begun.h"
#include "invar/validate/candidates.h"
#include "invar/validate/explain_break.h"
#include "invar/validate/learned.h"
#include "invar/validate/run_files.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kLogged = 10;  // steps between the points of a curve, at most

std::int64_t logged_every(const TrainerConfig& trainer) {
    return trainer.log_every_n_steps == 0 ? kLogged : std::min(trainer.log_every_n_steps, kLogged);
}

// A validation while it runs.
struct Work {
    Validation& validation;
    BegunValidation begun;
    Observer& observer;
    std::optional<FolderLock> lock = {};

    void write() const {
        if (world().leads()) begun.write(validation.folder);
    }
};

// A validation of one seed has names without a number, which they keep when seeds are added.
std::string run_name(const Validation& validation, const std::string& precision, std::int64_t seed) {
    const std::string name = precision == kBaseline ? "fp32" : precision;
    const bool first = seed == validation.options.base.seed;
    if (validation.options.seeds == 1 || (first && RunFolder::is_run(validation.folder / name))) return name;
    return fmt::format("{}_seed{}", name, seed);
}

Config config_for(const Validation& validation, const std::string& precision, int seed) {
    Config config = candidate_config(validation.options.base, precision);
    // All arms and seeds are judged on the same data, and whoever looks at such a run again must find them.
    if (seed > 0 && config.data.seed < 0) config.data.seed = config.seed;
    config.seed += seed;
    config.trainer.log_every_n_steps = logged_every(config.trainer);
    config.output_dir = validation.folder.string();
    config.exp_name = run_name(validation, precision, config.seed);
    return config;
}

// The run as anyone would read it from its folder, so that validate and compare cannot disagree.
RunRecord record_in(const fs::path& folder, const Validation& validation, const std::optional<Start>& start) {
    const FoundRun run = read_run(folder);
    const std::string& metric = validation.metric;
    check(run.log.series.contains(metric), "{} holds no {}, though its task measures it", run.log.source, metric);
    RunRecord record = record_of(run, metric, validation.direction, Take::last);
    if (start) record.not_learned = why_not_learned(run.log, *start);
    return record;
}

// Only the baseline is asked: a candidate that learned nothing differs from one that did.
std::optional<Start> start_of(Setup& setup, const Arm& arm) {
    if (arm.name != kBaseline) return std::nullopt;
    const Evaluation before = evaluate(*setup.task, *setup.model, *setup.test_data, setup.precision);
    return Start{before.metrics, before.samples};
}

// Before anything is trained, so that every run of the baseline has one.
std::optional<Start> recorded_start(Work& work, const Arm& arm, const Config& config, Setup* fresh) {
    if (arm.name != kBaseline) return std::nullopt;
    if (const auto found = work.begun.starts.find(config.exp_name); found != work.begun.starts.end())
        return found->second;
    if (fresh == nullptr) {
        Setup setup(work.validation.options.task, config);
        return recorded_start(work, arm, config, &setup);
    }
    const std::optional<Start> start = start_of(*fresh, arm);
    work.begun.starts[config.exp_name] = *start;
    work.write();
    return start;
}

void add_run(Validation& validation, Arm& arm, const fs::path& folder, const BegunRun& ended,
             const std::optional<Start>& start) {
    if (!ended.stopped_early.empty())
        validation.warnings.push_back(fmt::format("{} was stopped early at step {}: {}", folder.filename().string(),
                                                  ended.steps, ended.stopped_early));
    const RunRecord& run = arm.runs.emplace_back(record_in(folder, validation, start));
    if (!run.not_finite.empty()) arm.failure = fmt::format("seed {}: {}", *run.seed, run.not_finite);
}

// Trains a run to its end; its folder, or "" where it broke down.
fs::path train(Work& work, Arm& arm, const Config& config, bool begun, std::optional<Start>& start) {
    Validation& validation = work.validation;
    const fs::path folder = validation.folder / config.exp_name;
    RunSummary summary;
    int signal = 0;
    try {
        if (begun) start = recorded_start(work, arm, config, nullptr);
        Trainer trainer(validation.options.task, config, begun ? std::optional<Resume>(folder) : std::nullopt);
        trainer.set_diagnosis(explain);
        if (!begun) start = recorded_start(work, arm, config, &trainer.setup());
        summary = trainer.fit(work.observer);
        signal = trainer.stop_number();
        trainer.setup().ranks->barrier();  // the one who writes has written all that the others read now
        validation.threads = threads();
    } catch (const UsageError&) {
        throw;
    } catch (const IoError&) {
        throw;
    } catch (const RankError&) {  // says nothing of the precision
        throw;
    } catch (const UnstableError& error) {
        arm.failure = error.what();
        arm.names_command = !error.failure().why.command.empty();
        return {};
    } catch (const Error& error) {
        arm.failure = error.what();
        return {};
    }
    if (summary.status != "finished")
        throw ValidationStopped(signal, fmt::format("validation stopped in {} at step {}; what there is lies in {}",
                                                    arm.name, summary.steps, validation.folder.string()));
    return summary.folder;
}

void run_once(Work& work, Arm& arm, int seed) {
    Validation& validation = work.validation;
    const Config config = config_for(validation, arm.name, seed);
    fs::path folder = validation.folder / config.exp_name;
    const BegunRun before = look_at_run(folder, config);
    validation.one_go = validation.one_go && before.state == BegunRun::State::none;
    if (validation.options.resume) world().barrier();  // all have looked before one goes on
    if (before.state == BegunRun::State::unstable) {
        arm.failure = before.failure;
        arm.names_command = before.names_command;
    }
    const bool ended = before.state == BegunRun::State::unstable || before.state == BegunRun::State::finished;
    if (ended && validation.options.kept) validation.options.kept(folder);
    std::optional<Start> start;
    if (before.state == BegunRun::State::finished)
        start = recorded_start(work, arm, config, nullptr);
    else if (!ended)
        folder = train(work, arm, config, before.state == BegunRun::State::begun, start);
    if (arm.failed()) return;
    add_run(validation, arm, folder, look_at_run(folder, config), start);
}

// A run that skipped what was not finite and went on has not said what was wrong: it is trained again up to there.
void look_into(Work& work, Arm& arm) {
    Validation& validation = work.validation;
    if (arm.verdict != Verdict::fail || validation.options.base.trainer.on_instability != "skip") return;
    const auto broken = std::ranges::find_if(arm.runs, [](const RunRecord& run) { return !run.not_finite.empty(); });
    const bool not_finite = broken != arm.runs.end();
    const auto unstable = std::ranges::find_if(arm.runs, [](const RunRecord& run) { return was_unstable(run.folder); });
    const auto run = not_finite ? broken : unstable;
    if (run == arm.runs.end()) return;
    const auto [entry, is_new] = work.begun.broke.try_emplace(run->folder.filename().string());
    std::string& found = entry->second;
    if (is_new) {
        if (validation.options.explains) validation.options.explains(run->folder);
        const Config config = config_for(validation, arm.name, int(*run->seed - validation.options.base.seed));
        found = explain_break(validation.options.task, config, run->folder, not_finite);
        work.write();
    }
    const std::string seed = arm.runs.size() > 1 || not_finite ? fmt::format("seed {}: ", *run->seed) : "";
    if (found.empty()) {
        arm.broke = "it did not break when it was trained again";
    } else if (not_finite) {
        arm.failure = seed + found;
        arm.names_command = false;  // the command is added anew
    } else {
        arm.broke =
            fmt::format("{}{}; more: {} diagnose {}", seed, found, program_name(), shell_word(run->folder.string()));
    }
}

// The folder, and what is known of it so far.
Work begin(Validation& validation, Observer& observer) {
    const ValidateOptions& options = validation.options;
    Work work{validation, {}, observer};
    Communicator& ranks = world();
    BegunValidation& begun = work.begun;
    std::string folder;
    if (ranks.leads()) {
        folder = (options.resume ? find_validation(options.base) : make_validation_folder(options.base)).string();
        work.lock.emplace(folder);  // before anything is read that another process may be about to change
    }
    validation.folder = ranks.broadcast_text(folder);
    if (options.resume) {
        begun = BegunValidation::read(validation.folder, options.task->metrics());
        check_same(begun, options, validation.folder);
        if (begun.version != INVAR_VERSION)
            validation.warnings.push_back(fmt::format("runs that were there are of version {}, this is version {}",
                                                      begun.version, INVAR_VERSION));
        int before = 0;
        for (const auto& [seeds, verdict] : begun.judged)
            if (seeds < options.seeds) before = std::max(before, seeds);
        if (before > 1)
            validation.warnings.push_back(
                fmt::format("there was a verdict on {} seeds before: each look gives chance another try, and the error "
                            "of {:g}% is that of the first",
                            before, 100 * options.limits.level));
    } else {
        begun.config = to_yaml(options.base);
        begun.version = INVAR_VERSION;
    }
    begun.seeds = options.seeds;
    begun.candidates = options.candidates;
    begun.metric = validation.metric;
    begun.margin = options.limits.word();
    ranks.barrier();  // all have read the file as it was
    work.write();
    return work;
}

}  // namespace

void take_up(ValidateOptions& options, bool margin_asked) {
    if (!options.task) options.task = make_task(options.base);
    const BegunValidation begun = BegunValidation::read(find_validation(options.base), options.task->metrics());
    if (options.seeds == 0) options.seeds = begun.seeds;
    if (options.candidates.empty()) options.candidates = begun.candidates;
    if (options.metric.empty()) options.metric = begun.metric;
    if (!margin_asked) options.limits = Limits::parse(begun.margin);
}

Validation validate(const ValidateOptions& options, Observer& observer) {
    Validation validation;
    validation.options = options;
    if (!validation.options.task) validation.options.task = make_task(options.base);
    choose_metric(validation);
    check_options(validation.options);
    validation.limits = options.limits;
    set_rank_timeout(options.base.trainer.rank_timeout);
    validation.baseline.name = kBaseline;
    for (const std::string& name : validation.options.candidates) validation.candidates.emplace_back().name = name;

    if (const Device device = resolve_device(options.base.trainer.device); !device.is_cpu())
        validation.device = fmt::format("{}: {}", device.str(), kernels_for(device).description());
    Work work = begin(validation, observer);

    // Seed by seed, so that a machine that slows down or warms up in the meantime does so for all precisions alike.
    Arm& baseline = validation.baseline;
    bool learned = true;
    validation.one_go = true;
    for (int seed = 0; seed < options.seeds && !baseline.failed(); ++seed) {
        run_once(work, baseline, seed);
        if (!baseline.failed() && baseline.runs.back().metric == 0)
            baseline.failure = fmt::format("its {} is 0; train longer, or compare another --metric", validation.metric);
        learned = learned && !baseline.failed() && baseline.runs.back().not_learned.empty();
        for (Arm& arm : validation.candidates)
            if (learned && !arm.failed()) run_once(work, arm, seed);
    }
    if (validation.threads == 0) {  // nothing was left to train
        set_threads(int(options.base.trainer.threads));
        validation.threads = threads();
    }
    decide(validation);
    for (Arm& arm : validation.candidates) look_into(work, arm);
    decide(validation);  // with what was found
    work.begun.judged[options.seeds] = validation.verdict;
    work.write();
    return validation;
}

}  // namespace invar
