// The folder of a run: whose it is, and what becomes of the run when somebody renames, deletes or replaces it or its
// files.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <functional>
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
    const rlimit few{rlim_t(free) + 2, before.rlim_max};  // enough for the lock, too few to look into the folder
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    EXPECT_ERROR(RunFolder::create(config), IoError, "Too many open files");
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_FALSE(fs::exists(scratch.path() / "run_2"));
}

// A run that moves its folder while `train` is at it ends there as one that stood still.
void expect_followed(
    const std::function<RunSummary(const Config&, Stopper&, const std::function<void()>& move)>& train) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.trainer.checkpoint_every_n_steps = 4;
    config.logger.tensorboard = true;
    const fs::path whole = undisturbed(config), run = scratch.path() / "run", moved = scratch.path() / "moved";
    Stopper observer;
    const RunSummary summary = train(config, observer, [&] { fs::rename(run, moved); });
    EXPECT_EQ(summary.status, "finished");
    EXPECT_EQ(summary.folder, moved);
    EXPECT_FALSE(fs::exists(run));
    EXPECT_EQ(file_bytes(last_checkpoint(moved)), file_bytes(last_checkpoint(whole)));
    EXPECT_EQ(lines_of(moved), lines_of(whole));
    EXPECT_EQ(summary_of(moved), summary_of(whole));
    ASSERT_EQ(observer.notes.size(), 1u);
    EXPECT_NE(observer.notes[0].find("renamed"), std::string::npos) << observer.notes[0];
}

// Does something after a step.
struct Meddler : Stopper {
    Meddler(std::int64_t at, std::function<void()> act) : at_(at), act_(std::move(act)) {}
    void step_launched(const Progress& progress, std::int64_t) override {
        if (progress.step == at_) act_();
    }
    std::int64_t at_;
    std::function<void()> act_;
};

TEST(RunFolder, ThatIsRenamedUnderARunIsFollowed) {
    expect_followed([](const Config& config, Stopper& observer, const std::function<void()>& move) {
        Meddler meddler(6, move);
        const RunSummary summary = train(config, meddler);
        observer.notes = meddler.notes;
        return summary;
    });
}

TEST(RunFolder, ThatIsRenamedWhileItIsBeingWrittenIsFollowed) {
    // At the write of the summary the run has looked where its folder is already; after it comes the checkpoint.
    for (const FileAct at : {FileAct::write, FileAct::rename})
        expect_followed([at](const Config& config, Stopper& observer, const std::function<void()>& move) {
            int summaries = 0;
            const IoWatch watch([&](FileAct act, const fs::path& path) {
                const bool of_summary = path.filename().string().find("summary.json") != std::string::npos;
                if (act == at && of_summary && ++summaries == 3) move();
            });
            return train(config, observer);
        });
}

TEST(RunFolder, ThatIsDeletedUnderARunIsAnErrorAlsoWhereAnotherTookItsPlace) {
    const ScratchFolder scratch;
    const fs::path run = scratch.path() / "run";
    for (const bool replaced : {false, true}) {
        Meddler meddler(12, [&] {
            fs::remove_all(run);
            if (replaced) fs::create_directories(run);
        });
        EXPECT_ERROR(train(small_config(scratch.path()), meddler), IoError, "was deleted while its run was writing");
        EXPECT_FALSE(fs::exists(run / "checkpoints"));
    }
}

TEST(RunFolder, AConfigurationThatIsEmptiedOrCutUnderARunIsWholeAgain) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    for (const std::uintmax_t bytes : {0, 200}) {
        const fs::path run = scratch.path() / "run";
        fs::remove_all(run);
        Meddler meddler(12, [&] { fs::resize_file(run / "config.yaml", bytes); });
        EXPECT_EQ(train(config, meddler).status, "finished");
        EXPECT_EQ(parse_config(read_run_config(run).yaml, "again"), config);
        EXPECT_EQ(read_run_config(run).note, "");
        ASSERT_EQ(meddler.notes.size(), 1u);
        EXPECT_NE(meddler.notes[0].find("it is whole again"), std::string::npos) << meddler.notes[0];
    }
}

// Between the look at its name and the new file something else may take the name.
TEST(RunFolder, ALogReplacedByAFolderIsKeptBesideIt) {
    const ScratchFolder scratch;
    const fs::path run = scratch.path() / "run", file = run / "metrics.jsonl";
    for (const bool late : {false, true}) {
        fs::remove_all(run);
        Meddler meddler(12, [&] {
            fs::remove(file);
            if (!late) fs::create_directory(file);
        });
        const IoWatch watch([&](FileAct, const fs::path& path) {
            const bool of_log = path.filename().string().find("metrics.jsonl") != std::string::npos;
            if (late && of_log && !fs::exists(file)) fs::create_directory(file);
        });
        EXPECT_ERROR(train(small_config(scratch.path()), meddler), IoError, "metrics.jsonl.kept");
        EXPECT_TRUE(fs::exists(run / "metrics.jsonl.kept")) << late;
    }
}

TEST(RunFolder, FilesThatAreDeletedUnderARunAreThereAgainAtTheNextCheckpoint) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.logger.tensorboard = true;
    const fs::path whole = undisturbed(config), run = scratch.path() / "run";
    Meddler meddler(12, [&] {
        for (const auto& entry : fs::directory_iterator(run))
            if (entry.is_regular_file() && entry.path().filename() != "summary.json") fs::remove(entry.path());
    });
    EXPECT_EQ(train(config, meddler).status, "finished");
    EXPECT_EQ(lines_of(run), lines_of(whole));
    EXPECT_EQ(shown_by_tensorboard(run).at("loss"), shown_by_tensorboard(whole).at("loss"));
    EXPECT_EQ(parse_config(read_run_config(run).yaml, "again"), config);
    ASSERT_EQ(meddler.notes.size(), 4u);
    const char* const names[] = {".lock", "config.yaml", "metrics.jsonl", "events.out.tfevents"};
    for (std::size_t i = 0; i < 4; ++i) {
        EXPECT_NE(meddler.notes[i].find(names[i]), std::string::npos) << meddler.notes[i];
        EXPECT_NE(meddler.notes[i].find("was deleted while its run was writing"), std::string::npos);
    }
}

TEST(RunFolder, ALogThatIsReplacedUnderARunIsAnErrorThatLeavesBoth) {
    const ScratchFolder scratch;
    const Config config = small_config(scratch.path());
    const fs::path whole = undisturbed(config), run = scratch.path() / "run", log = run / "metrics.jsonl";
    Meddler meddler(12, [&] {
        std::ofstream(run / "other") << "{\"step\":1}\n";
        fs::rename(run / "other", log);
    });
    EXPECT_ERROR(train(config, meddler), IoError, "metrics.jsonl was replaced by another file");
    EXPECT_EQ(file_bytes(log), "{\"step\":1}\n");
    EXPECT_EQ(read_jsonl(run / "metrics.jsonl.kept").size(), 21u) << "twenty steps and a validation";
    EXPECT_EQ(summary_of(run).at("status"), "running");
    fs::rename(run / "metrics.jsonl.kept", log);
    EXPECT_EQ(train(config, run).status, "finished");
    EXPECT_EQ(lines_of(run), lines_of(whole));
}

TEST(RunFolder, ALogThatIsEmptiedUnderARunIsSaidToHaveLostSomething) {
    const ScratchFolder scratch;
    const fs::path log = scratch.path() / "run" / "metrics.jsonl";
    std::uintmax_t size = 0;
    Meddler meddler(12, [&] {
        size = fs::file_size(log);
        fs::resize_file(log, 0);
    });
    EXPECT_EQ(train(small_config(scratch.path()), meddler).status, "finished");
    ASSERT_EQ(meddler.notes.size(), 1u);
    EXPECT_NE(meddler.notes[0].find(fmt::format("was cut while its run was writing into it; {} bytes", size)),
              std::string::npos)
        << meddler.notes[0];
}

TEST(RunFolder, WhoseLockIsDeletedIsStillClosedToASecondRun) {
    const ScratchFolder scratch;
    const Config config = small_config(scratch.path());
    const fs::path run = scratch.path() / "run";
    Meddler meddler(12, [&] {
        fs::remove(run / ".lock");
        EXPECT_ERROR(Trainer(config, run), IoError, "another run");
    });
    EXPECT_EQ(train(config, meddler).status, "finished");
}

TEST(RunFolder, ShowsEveryPointToTensorBoardAsSoonAsItIsLogged) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.logger.tensorboard = true;
    struct Reader : Observer {
        fs::path run;
        std::size_t steps = 0, validations = 0;
        void step_logged(const StepMetrics& m) override {
            const Points points = shown_by_tensorboard(run)["loss"];
            ASSERT_EQ(points.size(), ++steps);
            EXPECT_EQ(points.back(), std::pair(m.step, float(m.loss)));
        }
        void validated(const ValidationMetrics&) override {
            EXPECT_EQ(shown_by_tensorboard(run)["val_loss"].size(), ++validations);
        }
    } reader;
    reader.run = scratch.path() / "run";
    train(config, reader);
    EXPECT_EQ(reader.steps, 20u);
    EXPECT_EQ(reader.validations, 2u);
}

}  // namespace
}  // namespace invar
