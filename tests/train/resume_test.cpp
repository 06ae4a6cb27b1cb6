// What a run that went on says of the whole of itself, and what it refuses to go on from.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "invar/core/error.h"
#include "invar/io/watch.h"
#include "invar/train/run_config.h"
#include "tests/core/expect_error.h"
#include "tests/io/event_reader.h"
#include "tests/train/scratch_run.h"

namespace invar {
namespace {

namespace fs = std::filesystem;

// The first steps overflow in the forward pass, so that losses are not finite; later ones are in FP32. All gradients
// count as small, so that alerts rest on a count.
Config eventful_config(const fs::path& output) {
    Config config = small_config(output);
    config.trainer.max_epochs = 3;
    config.trainer.precision = "16-mixed";
    config.trainer.precision_schedule = {{false, 2, "32-true"}};
    config.trainer.checkpoint_every_n_steps = 3;
    config.data.std = 1e-7;
    config.optimizer.lr = 1e-9;
    config.monitor.grad_norm_low = 1e30;
    return config;
}

// Under the same name, so that the configuration inside the checkpoint is the same too.
fs::path undisturbed(const Config& config) {
    const fs::path run = train(config).folder, aside = run.parent_path() / "undisturbed";
    fs::rename(run, aside);
    return aside;
}

// Leaves a run as kill -9 would: at this step nothing more is written.
struct Killer : Observer {
    explicit Killer(std::int64_t at) : at_(at) {}
    void ticked(const Progress& progress, std::int64_t) override {
        if (progress.step == at_) throw std::runtime_error("killed");
    }
    std::int64_t at_;
};

void train_until(const Config& config, std::int64_t step, std::optional<fs::path> resume = {}) {
    Killer killer(step);
    EXPECT_THROW(train(config, killer, std::move(resume)), std::runtime_error);
}

TEST(Resumed, RunEndsWithTheWholeFileLinesAndSummaryOfTheUndisturbedOne) {
    const ScratchFolder scratch;
    const Config config = eventful_config(scratch.path());
    const fs::path whole = undisturbed(config), run = scratch.path() / "run";
    EXPECT_FALSE(summary_of(whole).at("all_finite").get<bool>()) << "this test wants losses that are not";
    EXPECT_FALSE(lines_with(whole, "alert").empty());
    for (const std::int64_t kill : {4, 7, 13, 29}) {
        fs::remove_all(run);
        train_until(config, kill);
        train_until(config, kill + 1, run);
        const RunSummary ended = train(config, run);
        EXPECT_FALSE(ended.all_finite);
        EXPECT_EQ(file_bytes(last_checkpoint(run)), file_bytes(last_checkpoint(whole))) << "killed at " << kill;
        EXPECT_EQ(lines_of(run), lines_of(whole)) << "killed at " << kill;
        EXPECT_EQ(summary_of(run), summary_of(whole)) << "killed at " << kill;
    }
}

TEST(Resumed, RunThatWasFinishedKeepsItsSummary) {
    const ScratchFolder scratch;
    const Config config = small_config(scratch.path());
    const RunSummary whole = train(config);
    const auto before = summary_of(whole.folder);
    EXPECT_GT(before.at("train_loss").get<double>(), 0.0);
    const RunSummary again = train(config, whole.folder);
    EXPECT_EQ(summary_of(whole.folder), before);
    EXPECT_EQ(again.steps_now, 0);
    EXPECT_EQ(again.train_seconds, whole.train_seconds);
    EXPECT_DOUBLE_EQ(again.samples_per_s, whole.samples_per_s);
    EXPECT_GE(again.memory.peak_total, whole.memory.peak_total);
}

TEST(Resumed, RunAddsItsTimeToThatOfTheOthers) {
    const ScratchFolder scratch;
    const Config config = small_config(scratch.path());
    Stopper stop(15), second(18);
    const RunSummary first = train(config, stop);
    const RunSummary middle = train(config, second, first.folder);
    const RunSummary last = train(config, first.folder);
    EXPECT_GT(first.train_seconds, 0.0);
    EXPECT_GT(middle.train_seconds, first.train_seconds);
    EXPECT_GT(last.train_seconds, middle.train_seconds);
    EXPECT_EQ(first.steps_now + middle.steps_now + last.steps_now, last.steps);
}

TEST(Resumed, RunThatIsExtendedAndKilledDoesNotSayThatItFinished) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    const fs::path run = train(config).folder;
    EXPECT_EQ(summary_of(run).at("status"), "finished");
    config.trainer.max_epochs = 4;
    train_until(config, 25, run);
    EXPECT_EQ(summary_of(run).at("status"), "running");
    EXPECT_EQ(train(config, run).status, "finished");
    EXPECT_EQ(summary_of(run).at("status"), "finished");
}

TEST(Resuming, RefusesAFolderWhoseCheckpointsAreAllDamagedAndLeavesItAsItWas) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.trainer.checkpoint_every_n_steps = 4;
    config.trainer.keep_checkpoints = 3;
    const fs::path run = train(config).folder;
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(run / "checkpoints")) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    ASSERT_EQ(files.size(), 3u);
    const std::string good = file_bytes(files[0]);
    std::string flipped = file_bytes(files[2]);
    flipped[flipped.size() - 5] ^= 1;
    std::ofstream(files[2], std::ios::binary) << flipped;
    fs::resize_file(files[1], 100);
    fs::resize_file(files[0], 0);
    const auto before = all_files(run);
    std::string message;
    try {
        Trainer(config, run);
        ADD_FAILURE() << "went on";
    } catch (const UsageError& error) {
        message = error.what();
    }
    EXPECT_NE(message.find("none of its 3 checkpoints can be used"), message.npos) << message;
    for (const fs::path& file : files) EXPECT_NE(message.find(file.filename()), message.npos) << message;
    EXPECT_NE(message.find("checksum"), message.npos) << message;
    EXPECT_NE(message.find("truncated"), message.npos) << message;
    EXPECT_EQ(all_files(run), before);

    std::ofstream(files[0], std::ios::binary) << good;  // one is enough, and the run says which
    Stopper observer;
    EXPECT_EQ(train(config, observer, run).status, "finished");
    ASSERT_GE(observer.notes.size(), 3u);
    EXPECT_NE(observer.notes[2].find("resuming at step 12"), std::string::npos) << observer.notes[2];
}

TEST(Resuming, TakesTheCheckpointsConfigurationWhereConfigYamlIsCutOffOrMissing) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.optimizer.lr = 0.0123;
    const fs::path run = train(config).folder, file = run / "config.yaml";
    const std::string whole = file_bytes(file);
    EXPECT_EQ(parse_config(read_run_config(run).yaml, "whole"), config);
    EXPECT_EQ(read_run_config(run).note, "");
    for (std::size_t size = 0; size < whole.size(); size += size < 40 ? 1 : 37) {
        fs::resize_file(file, 0);
        std::ofstream(file) << whole.substr(0, size);
        const RunConfig found = read_run_config(run);
        EXPECT_EQ(parse_config(found.yaml, "cut"), config) << size;
        EXPECT_NE(found.note.find("step_00000020.safetensors"), std::string::npos) << found.note;
    }
    fs::remove(file);
    EXPECT_EQ(parse_config(read_run_config(run).yaml, "missing"), config);
    std::ofstream(file) << whole.substr(0, 100);
    fs::remove_all(run / "checkpoints");
    EXPECT_ERROR(read_run_config(run), UsageError, "cut off");
    fs::remove(file);
    EXPECT_ERROR(read_run_config(run), UsageError, "no config.yaml");
}

TEST(RunFolder, OfAStartThatWasKilledAtOnceIsFreeAgain) {
    const ScratchFolder scratch;
    const Config config = small_config(scratch.path());
    fs::create_directories(scratch.path() / "run");
    std::ofstream(scratch.path() / "run" / ".lock") << "12345";
    std::ofstream(scratch.path() / "run" / ".config.yaml.12345-0.invar-tmp") << "seed: 5";
    const RunFolder first = RunFolder::create(config);
    EXPECT_EQ(first.path(), scratch.path() / "run");
    EXPECT_FALSE(fs::exists(scratch.path() / "run" / ".config.yaml.12345-0.invar-tmp"));
    EXPECT_EQ(RunFolder::create(config).path(), scratch.path() / "run_2");
    std::ofstream(scratch.path() / "run_3") << "a file in the way";
    EXPECT_EQ(RunFolder::create(config).path(), scratch.path() / "run_4");
}

TEST(RunFolder, ThatCannotBeReadIsAnErrorAndNotTakenForAnotherRuns) {
    const ScratchFolder scratch;
    const Config config = small_config(scratch.path());
    const int free = ::dup(STDIN_FILENO);
    ::close(free);
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
    const rlimit one_more{rlim_t(free) + 1, before.rlim_max};  // enough for the lock, too few to look into the folder
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &one_more), 0);
    EXPECT_ERROR(RunFolder::create(config), IoError, "Too many open files");
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_FALSE(fs::exists(scratch.path() / "run_2"));
}

TEST(RunFolder, ThatIsRenamedUnderARunIsFollowed) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.trainer.checkpoint_every_n_steps = 4;
    config.logger.tensorboard = true;
    const fs::path whole = undisturbed(config), run = scratch.path() / "run", moved = scratch.path() / "moved";
    struct Mover : Stopper {
        fs::path from, to;
        void ticked(const Progress& progress, std::int64_t) override {
            if (progress.step == 6) fs::rename(from, to);
        }
    } mover;
    mover.from = run, mover.to = moved;
    const RunSummary summary = train(config, mover);
    EXPECT_EQ(summary.status, "finished");
    EXPECT_EQ(summary.folder, moved);
    EXPECT_FALSE(fs::exists(run));
    EXPECT_EQ(file_bytes(last_checkpoint(moved)), file_bytes(last_checkpoint(whole)));
    EXPECT_EQ(lines_of(moved), lines_of(whole));
    EXPECT_EQ(summary_of(moved), summary_of(whole));
    ASSERT_EQ(mover.notes.size(), 1u);
    EXPECT_NE(mover.notes[0].find("renamed"), std::string::npos) << mover.notes[0];
}

TEST(RunFolder, ThatIsRenamedWhileItIsBeingWrittenIsFollowed) {
    // At the write of the summary the run has looked where its folder is already; after it comes the checkpoint.
    for (const FileAct at : {FileAct::write, FileAct::rename}) {
        const ScratchFolder scratch;
        Config config = small_config(scratch.path());
        config.trainer.checkpoint_every_n_steps = 4;
        const fs::path whole = undisturbed(config), run = scratch.path() / "run", moved = scratch.path() / "moved";
        int summaries = 0;
        const IoWatch watch([&](FileAct act, const fs::path& path) {
            const bool of_summary = path.filename().string().find("summary.json") != std::string::npos;
            if (act == at && of_summary && ++summaries == 3) fs::rename(run, moved);
        });
        Stopper observer;
        const RunSummary summary = train(config, observer);
        EXPECT_EQ(summary.status, "finished");
        EXPECT_EQ(summary.folder, moved);
        EXPECT_FALSE(fs::exists(run));
        EXPECT_EQ(file_bytes(last_checkpoint(moved)), file_bytes(last_checkpoint(whole)));
        EXPECT_EQ(lines_of(moved), lines_of(whole));
        EXPECT_EQ(summary_of(moved), summary_of(whole));
        EXPECT_EQ(observer.notes.size(), 1u);
    }
}

TEST(RunFolder, ThatIsDeletedUnderARunIsAnErrorAlsoWhereAnotherTookItsPlace) {
    const ScratchFolder scratch;
    for (const bool replaced : {false, true}) {
        struct Deleter : Observer {
            fs::path run;
            bool replace = false;
            void ticked(const Progress& progress, std::int64_t) override {
                if (progress.step != 12) return;
                fs::remove_all(run);
                if (replace) fs::create_directories(run);
            }
        } deleter;
        deleter.run = scratch.path() / "run";
        deleter.replace = replaced;
        EXPECT_ERROR(train(small_config(scratch.path()), deleter), IoError, "was deleted while its run was writing");
        EXPECT_FALSE(fs::exists(scratch.path() / "run" / "checkpoints"));
    }
}

TEST(RunFolder, ShowsEveryPointToTensorBoardAsSoonAsItIsLogged) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.logger.tensorboard = true;
    struct Reader : Observer {
        fs::path run;
        std::size_t steps = 0, validations = 0;
        void stepped(const StepMetrics& m) override {
            const Points points = shown_by_tensorboard(run)["train/loss"];
            ASSERT_EQ(points.size(), ++steps);
            EXPECT_EQ(points.back(), std::pair(m.step, float(m.loss)));
        }
        void validated(const ValidationMetrics&) override {
            EXPECT_EQ(shown_by_tensorboard(run)["val/loss"].size(), ++validations);
        }
    } reader;
    reader.run = scratch.path() / "run";
    train(config, reader);
    EXPECT_EQ(reader.steps, 20u);
    EXPECT_EQ(reader.validations, 2u);
}

}  // namespace
}  // namespace invar
