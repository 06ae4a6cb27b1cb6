#include "invar/validate/explain_break.h"

#include <algorithm>
#include <limits>

#include "invar/core/error.h"
#include "invar/diagnose/record_failure.h"
#include "invar/io/jsonl.h"
#include "invar/train/trainer.h"
#include "invar/validate/validate.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

std::string text_of(const RunFailure& failure) {
    const Explanation& why = failure.why;
    std::string text = fmt::format("it broke at step {} ({})", failure.found.at.step(), failure.found.reason);
    text += why.cause.empty() ? ", and nothing is NaN or Inf when that step is replayed" : ": " + why.cause;
    if (failure.advice) text += fmt::format("; try {}", failure.advice.str());
    return text;
}

}  // namespace

bool was_unstable(const fs::path& run) {
    for (const nlohmann::json& line : read_jsonl(RunFolder::metrics_of(run))) {
        const auto alert = line.find("alert");
        if (alert != line.end() &&
            std::ranges::any_of(Instability::kKinds, [&](Instability::Kind kind) { return *alert == name_of(kind); }))
            return true;
    }
    return false;
}

std::string explain_break(const std::shared_ptr<const Task>& task, const Config& config, const fs::path& run,
                          bool up_to_nan) {
    Config again = config;
    again.trainer.on_instability = "stop";
    if (up_to_nan) {
        again.stability.z_score = 1e30;
        again.stability.streak = std::numeric_limits<std::int32_t>::max();
    }
    again.logger.tensorboard = again.logger.wandb = false;
    again.exp_name += "_again";
    const fs::path beside = fs::path(again.output_dir) / again.exp_name;
    Communicator& ranks = world();
    const auto clear = [&] {
        ranks.barrier();
        std::error_code ignored;
        if (ranks.leads()) fs::remove_all(beside, ignored);
    };
    clear();  // of one that was killed
    std::string text;
    try {
        Trainer trainer(task, again);
        trainer.set_diagnosis(explain);
        const RunSummary summary = trainer.fit();
        if (summary.status != "finished")
            throw ValidationStopped(trainer.stop_number(),
                                    fmt::format("validation stopped while it looked for what broke {}", run.string()));
    } catch (const UnstableError& error) {
        text = text_of(error.failure());
        if (ranks.leads() && has_failure(beside)) {
            std::error_code ignored;
            fs::remove_all(failure_folder(run), ignored);
            fs::rename(failure_folder(beside), failure_folder(run), ignored);
        }
    } catch (const ValidationStopped&) {
        throw;
    } catch (const RankError&) {
        throw;
    } catch (const Error& error) {  // which is no reason to lose the verdict
        text = fmt::format("why it broke could not be found out: {}", error.what());
    }
    clear();
    return text;
}

}  // namespace invar
