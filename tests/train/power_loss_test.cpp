// What a power loss leaves is decided by the order in which things are synced: whatever a checkpoint rests on must be
// on the disk before the checkpoint has its name.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "invar/io/watch.h"
#include "tests/train/scratch_run.h"

namespace invar {
namespace {

namespace fs = std::filesystem;

// Keeps account of what would be lost now: contents that were not synced since they were written, and names whose
// folder was not.
class Disk {
  public:
    void see(FileAct act, const fs::path& path) {
        const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
        switch (act) {
            case FileAct::write:
                if (known_.insert(path).second) unnamed_[folder].insert(path);
                unsynced_.insert(path);
                break;
            case FileAct::rename:  // what was written under another name was synced under it
                known_.insert(path);
                unnamed_[folder].insert(path);
                break;
            case FileAct::make_folder:
                unnamed_[folder].insert(path);
                break;
            case FileAct::sync:
                unsynced_.erase(path);
                unnamed_.erase(path);
                break;
        }
    }
    const std::set<fs::path>& unsynced() const { return unsynced_; }
    std::set<fs::path> would_lose() const {
        std::set<fs::path> lost = unsynced_;
        for (const auto& [folder, names] : unnamed_) lost.insert(names.begin(), names.end());
        return lost;
    }

  private:
    std::set<fs::path> known_, unsynced_;
    std::map<fs::path, std::set<fs::path>> unnamed_;
};

bool is_checkpoint(const fs::path& path) {
    return path.parent_path().filename() == "checkpoints" && path.extension() == ".safetensors";
}

// Where the run goes on meanwhile, what it logs then may be lost: the checkpoint rests on what was there before, and
// all of that is synced when the summary is.
void expect_nothing_lost(bool async) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path() / "new" / "folders");
    config.logger.tensorboard = true;
    config.trainer.checkpoint_every_n_steps = 4;
    config.trainer.async_checkpoint = async;
    std::mutex mutex;
    Disk disk;
    int checkpoints = 0;
    std::set<std::string> seen;
    std::set<fs::path> lost_at_summary;
    bool summary_named = false;
    const IoWatch watch([&](FileAct act, const fs::path& path) {
        const std::lock_guard lock(mutex);
        if (act == FileAct::write || act == FileAct::rename) seen.insert(path.filename().string());
        if (act == FileAct::rename && is_checkpoint(path)) {
            ++checkpoints;
            for (const fs::path& lost : async ? lost_at_summary : disk.would_lose())
                // The temporary of the checkpoint itself is named for good by this rename.
                EXPECT_TRUE(lost.parent_path().filename() == "checkpoints" && lost.filename().string()[0] == '.')
                    << lost << " would be lost at " << path;
            for (const fs::path& unsynced : disk.unsynced())
                EXPECT_NE(unsynced.parent_path(), path.parent_path()) << "named before it is on the disk";
        }
        disk.see(act, path);
        summary_named = summary_named || (act == FileAct::rename && path.filename() == "summary.json");
        if (summary_named && act == FileAct::sync && fs::is_directory(path)) {
            lost_at_summary = disk.would_lose();
            summary_named = false;
        }
    });
    Stopper stop(14);
    const fs::path run = train(config, stop).folder;
    const int first = checkpoints;
    EXPECT_GE(first, 4);
    train(config, run);
    EXPECT_GT(checkpoints, first);
    for (const char* name : {"config.yaml", "metrics.jsonl", "summary.json"}) EXPECT_TRUE(seen.contains(name)) << name;
    EXPECT_TRUE(std::ranges::any_of(seen, [](const auto& name) { return name.starts_with("events.out.tfevents"); }));
}

TEST(PowerLoss, AtACheckpointLosesNothingThatItRestsOn) {
    expect_nothing_lost(false);
    expect_nothing_lost(true);
}

TEST(PowerLoss, AfterTheEndLosesNothing) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path() / "new");
    config.logger.tensorboard = true;
    std::mutex mutex;
    Disk disk;
    const IoWatch watch([&](FileAct act, const fs::path& path) {
        const std::lock_guard lock(mutex);
        disk.see(act, path);
    });
    train(config);
    for (const fs::path& lost : disk.would_lose())
        EXPECT_TRUE(lost.filename().string().ends_with(".invar-tmp")) << lost << " would be lost";
}

}  // namespace
}  // namespace invar
