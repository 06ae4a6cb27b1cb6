#include "invar/diagnose/record_failure.h"

#include <fmt/format.h>

#include <algorithm>

#include "invar/core/error.h"
#include "invar/core/shell.h"
#include "invar/diagnose/find_first_bad.h"
#include "invar/diagnose/rerun.h"
#include "invar/train/run_folder.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

// Whose part of it failed; the first one's stands for a step of which that is not known.
int rank_of(const FailedStep& step) {
    return std::max(0, step.found.at.report.step.bad_rank);
}

void save(Setup& setup, const FailedStep& step) {
    save_failure(failure_folder(step.run), setup, step.group, step.progress(), step.rng(), step.scale(),
                 to_yaml(step.config), rank_of(step));
}

fs::path checkpoint_of(const FailedStep& step) {
    if (step.checkpoint < 0) return {};
    return CheckpointFolder(RunFolder::checkpoints_of(step.run), 1).path_of(step.checkpoint);
}

// A step that was finite has changed the weights, and others have since: they are trained again until just before it.
void save_before(const RerunStart& start, const FailedStep& step) {
    Rerun again(start);
    if (again.train_until(step.progress().step)) return;  // it went another way this time
    save_failure(failure_folder(step.run), again.setup(), step.group, again.progress(), default_generator().state(),
                 again.setup().scaler->get_scale(), to_yaml(step.config));
}

std::string happened(const Finding& f) {
    return fmt::format("{}, gave {} in {}", f.where(), f.result.nans > 0 ? "NaN" : "Inf", name_of(f.dtype));
}

}  // namespace

Finding record_failure(Setup& setup, const FailedStep& step) {
    save(setup, step);
    return find_first_bad(setup, step.group, step.rng(), step.scale());
}

Explanation explain(Setup& setup, const FailedStep& step) {
    Explanation why;
    why.command = program_name() + " diagnose " + shell_word(step.run.string());
    const bool finite = step.found.kind == Instability::Kind::loss_diverged;
    if (!setup.ranks->alone()) {
        // Weights have gone on since, and no rank's part is the one to keep: one process trains the whole step again.
        if (finite) {
            why.command += fmt::format(" --step {}", step.progress().step + 1);
            return why;
        }
        try {
            save(setup, step);
            why.cause = fmt::format("rank {}'s part of the step is kept", rank_of(step));
        } catch (const IoError& error) {  // on all ranks; the run has a reason of its own to tell
            why = {fmt::format("the step could not be kept: {}", error.what())};
        }
        return why;
    }
    const Finding finding = finite ? Finding{} : record_failure(setup, step);
    if (finding) why.remedy = finding.remedy, why.verified = finding.verified;
    const bool elsewhere = finding && (finding.blame == Blame::data || finding.blame == Blame::weights);
    std::string tried;
    try {
        const RerunStart start{setup.task, setup.loss, step.config, checkpoint_of(step)};
        if (finite) save_before(start, step);
        if (!elsewhere) tried = try_in_full_precision(start, step, why);
    } catch (const Error& error) {  // the run has a reason of its own to tell
        tried = fmt::format("its steps could not be tried again: {}", error.what());
    }
    if (finding) why.cause = why.of_any_precision() ? happened(finding) : one_line(finding);
    if (!tried.empty()) why.cause += (why.cause.empty() ? "" : "; ") + tried;
    return why;
}

std::string one_line(const Finding& f) {
    if (!f) return "the step is finite when it is replayed";
    return fmt::format("{}; the {} {} to blame", happened(f), name_of(f.blame),
                       f.blame == Blame::weights ? "are" : "is");
}

}  // namespace invar
