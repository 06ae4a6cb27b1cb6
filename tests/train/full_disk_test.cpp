// A run on a disk that fills up: its log waits for room, and no checkpoint goes ahead of the log.
#include "tests/io/full_disk.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "invar/core/error.h"
#include "tests/io/event_reader.h"
#include "tests/train/scratch_run.h"

namespace invar {
namespace {

namespace fs = std::filesystem;

// Lets no file grow any more once `first` is logged, where only the log has grown so far already, until `last` is.
struct DiskFiller : Stopper {
    DiskFiller(fs::path run, std::int64_t first, std::int64_t last)
        : run_(std::move(run)), first_(first), last_(last) {}
    void step_logged(const StepMetrics& m) override {
        Stopper::step_logged(m);
        if (m.step == first_) full_.emplace(fs::file_size(run_ / "metrics.jsonl"));
        if (m.step == last_) full_.reset();
    }
    std::int64_t notes_of_waiting() const {
        return std::ranges::count_if(notes, [](const std::string& n) { return n.find("waits in memory") != n.npos; });
    }

  private:
    fs::path run_;
    std::int64_t first_, last_;
    std::optional<FullDisk> full_;
};

// Six epochs of ten steps, whose log grows past the size of a checkpoint.
Config long_config(const fs::path& output) {
    Config config = small_config(output);
    config.trainer.max_epochs = 6;
    config.model.as<MlpOptions>().hidden = {2};
    config.logger.tensorboard = true;
    return config;
}

TEST(AFullDisk, CostsARunNothingWhereThereIsRoomAgainBeforeTheNextCheckpoint) {
    const ScratchFolder scratch;
    const fs::path undisturbed = train(long_config(scratch.path() / "undisturbed")).folder;
    const Config config = long_config(scratch.path() / "full");
    DiskFiller filler(fs::path(config.output_dir) / config.exp_name, 42, 47);
    const fs::path run = train(config, filler).folder;
    EXPECT_EQ(filler.notes_of_waiting(), 1);
    EXPECT_EQ(lines_of(run), lines_of(undisturbed));
    EXPECT_EQ(shown_by_tensorboard(run).at("loss"), shown_by_tensorboard(undisturbed).at("loss"));
    EXPECT_EQ(summary_of(run), summary_of(undisturbed));
}

TEST(AFullDisk, LeavesNoFolderOfARunThatCannotBegin) {
    const ScratchFolder scratch;
    const Config config = long_config(scratch.path() / "full");
    {
        const FullDisk full(0);
        EXPECT_THROW(train(config), IoError);
    }
    EXPECT_FALSE(fs::exists(fs::path(config.output_dir) / config.exp_name));
}

TEST(AFullDisk, EndsARunBeforeACheckpointWhoseLogHasNoRoom) {
    const ScratchFolder scratch;
    const fs::path undisturbed = train(long_config(scratch.path() / "undisturbed")).folder;
    const Config config = long_config(scratch.path() / "full");
    const fs::path run = fs::path(config.output_dir) / config.exp_name;
    {
        DiskFiller filler(run, 42, -1);
        try {
            train(config, filler);
            ADD_FAILURE() << "the log lacks lines, and nobody said so";
        } catch (const IoError& error) {
            EXPECT_NE(std::string(error.what()).find("metrics.jsonl"), std::string::npos) << error.what();
        }
        EXPECT_EQ(filler.notes_of_waiting(), 1);
        EXPECT_EQ(filler.steps.back().step, 50) << "the steps until the checkpoint are taken";
    }
    EXPECT_EQ(last_checkpoint(run).filename(), "step_00000040.safetensors");
    EXPECT_LT(fs::file_size(last_checkpoint(run)), fs::file_size(run / "metrics.jsonl")) << "it would have had room";
    EXPECT_EQ(nlohmann::json::parse(file_bytes(run / "summary.json")).at("status"), "running");
    train(config, run);
    EXPECT_EQ(lines_of(run), lines_of(undisturbed)) << "without a gap";
    EXPECT_EQ(shown_by_tensorboard(run).at("loss"), shown_by_tensorboard(undisturbed).at("loss"));
    EXPECT_EQ(summary_of(run), summary_of(undisturbed));
}

}  // namespace
}  // namespace invar
