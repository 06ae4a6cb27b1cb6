#include "invar/train/find_checkpoint.h"

#include "invar/core/error.h"
#include "invar/train/run_folder.h"
#include "invar/train/summary.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

std::int64_t step_in(const fs::path& file) {
    try {
        return load_checkpoint(file).state.at("progress").at("step");
    } catch (const nlohmann::json::exception&) {
        fail("{}: the checkpoint's state lacks what a run needs to go on; it was written by something else",
             file.string());
    }
}

}  // namespace

LatestCheckpoint find_checkpoint(const fs::path& run, const std::string& which) {
    const CheckpointFolder checkpoints(RunFolder::checkpoints_of(run), 1);
    if (which == "last") return checkpoints.latest();
    LatestCheckpoint found;
    std::error_code ignored;
    if (which == "best") {
        const nlohmann::json summary = read_summary(RunFolder::summary_of(run));
        const nlohmann::json best =
            summary.is_object() ? summary.value("best_checkpoint", nlohmann::json()) : nlohmann::json();
        check<UsageError>(best.is_object() && best.contains("step") && best["step"].is_number_integer(),
                          "{}: no checkpoint is known to be its best; a run keeps one where checkpoint.monitor names a "
                          "metric, and the newest is called last",
                          run.string());
        found.step = best["step"];
        found.path = checkpoints.path_of(found.step);
        verify_checkpoint(found.path);
        return found;
    }
    check<UsageError>(fs::is_regular_file(which, ignored), "checkpoint '{}': say best, last, or the file of one",
                      which);
    found.path = which;
    found.step = step_in(found.path);
    return found;
}

LatestCheckpoint find_whole_checkpoint(const fs::path& run, const std::string& which) {
    LatestCheckpoint found = find_checkpoint(run, which);
    found.check_usable(run);
    check(bool(found), "{}: the run has no whole checkpoint yet", run.string());
    return found;
}

}  // namespace invar
