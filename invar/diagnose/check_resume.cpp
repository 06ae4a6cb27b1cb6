// Whether a run that is cut off and resumed ends with the bytes of one that was not.
#include <algorithm>

#include "invar/core/error.h"
#include "invar/diagnose/check_parts.h"
#include "invar/io/file.h"
#include "invar/io/temporary_folder.h"
#include "invar/train/trainer.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kSteps = 4, kCheckpoint = 2, kCut = 3;
constexpr std::int64_t kMostBytes = std::int64_t(1) << 30;  // of a checkpoint

// Ends a run as kill -9 would: nothing more is written.
struct CutOff {};
class Cutter : public Observer {
    void step_launched(const Progress& progress, std::int64_t) override {
        if (progress.step == kCut) throw CutOff{};
    }
};

Config short_run(Config config, const fs::path& folder) {
    config.output_dir = folder.string();
    config.exp_name = "check";
    config.logger.tensorboard = false;
    TrainerConfig& trainer = config.trainer;
    trainer.max_steps = kSteps;
    trainer.max_epochs = std::max(trainer.max_epochs, kSteps);  // an epoch may have a single step
    trainer.checkpoint_every_n_steps = kCheckpoint;
    trainer.keep_checkpoints = kSteps;
    trainer.on_instability = "skip";
    if (trainer.limit_val_batches.among(1) > 0) trainer.limit_val_batches = BatchCount::of(1);
    return config;
}

// The first tensor or entry that differs; "" where none does.
std::string difference_of(const Checkpoint& a, const Checkpoint& b) {
    for (const auto& [name, tensor] : a.tensors) {
        const auto found = b.tensors.find(name);
        if (found == b.tensors.end() || tensor.to_vector<double>() != found->second.to_vector<double>()) return name;
    }
    for (const auto& [key, value] : a.state.items())
        if (!b.state.contains(key) || b.state.at(key) != value) return key;
    return "the file";
}

}  // namespace

namespace {

void run_and_resume(RepeatCheck& result, const std::shared_ptr<const Task>& task, const Config& config) {
    const TemporaryFolder scratch;
    const Config run = short_run(config, scratch.path());
    const fs::path whole = Trainer(task, run).fit().folder, aside = scratch.path() / "whole";
    // Moved aside: a run's name and folder are in its checkpoints.
    fs::rename(whole, aside);
    Cutter cutter;
    try {
        Trainer(task, run).fit(cutter);
    } catch (const CutOff&) {
    }
    Trainer(task, run, whole).fit();
    const auto last = [](const fs::path& folder) {
        const CheckpointFolder checkpoints(RunFolder::checkpoints_of(folder), int(kSteps));
        return checkpoints.path_of(kSteps);
    };
    result.steps = kSteps;
    if (read_file(last(aside)) == read_file(last(whole))) {
        result.text =
            fmt::format("a run cut off after step {} and resumed ends step {} with the same bytes", kCut, kSteps);
        return;
    }
    result.differs = difference_of(load_checkpoint(last(aside)), load_checkpoint(last(whole)));
    result.mark = config.trainer.deterministic ? Mark::fail : Mark::warn;
    result.text =
        fmt::format("a run cut off after step {} and resumed ends step {} with another checkpoint: {} differs", kCut,
                    kSteps, result.differs);
}

}  // namespace

RepeatCheck check_resume(std::shared_ptr<const Task> task, const Config& config) {
    RepeatCheck result;
    const std::int64_t bytes = 12 * task->make_model()->parameter_count();  // weights and two moments
    if (bytes > kMostBytes) {
        result.mark = Mark::warn;
        result.text = fmt::format("not checked: checkpoints of {:.1f} GiB are too large for scratch files",
                                  double(bytes) / (1 << 30));
        return result;
    }
    // That the machine has no room for scratch files says nothing of the task.
    try {
        run_and_resume(result, task, config);
    } catch (const IoError& error) {
        result.mark = Mark::warn;
        result.text = fmt::format("could not be made: {}", error.what());
        if (result.text.find("TMPDIR") == std::string::npos) result.text += "; TMPDIR can name another place for it";
    }
    return result;
}

}  // namespace invar
