// Callbacks that act on a run: early stopping, best checkpoints, and one of a user's own; kept across kills and
// resumes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "invar/core/error.h"
#include "invar/train/best_checkpoints.h"
#include "invar/train/early_stopping.h"
#include "invar/train/find_checkpoint.h"
#include "tests/core/expect_error.h"
#include "tests/tasks/line.h"
#include "tests/train/scratch_run.h"

namespace invar {
namespace {

namespace fs = std::filesystem;

std::set<std::string> checkpoints_in(const fs::path& run) {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(run / "checkpoints")) names.insert(entry.path().filename());
    return names;
}

// All that a run leaves, but for clocks and memory.
void expect_same_run(const fs::path& a, const fs::path& b, const std::string& what) {
    EXPECT_EQ(checkpoints_in(a), checkpoints_in(b)) << what;
    for (const std::string& name : checkpoints_in(b))
        EXPECT_TRUE(file_bytes(a / "checkpoints" / name) == file_bytes(b / "checkpoints" / name))
            << what << ": " << name;
    EXPECT_EQ(lines_of(a), lines_of(b)) << what;
    EXPECT_EQ(summary_of(a), summary_of(b)) << what;
}

// Learns nothing, so that no validation is better than the first.
Config idle_config(const fs::path& output) {
    Config config = small_config(output);
    config.trainer.max_epochs = 8;
    config.optimizer.lr = 0;
    config.early_stopping = {.monitor = "val_loss", .patience = 2};
    return config;
}

TEST(EarlyStopping, EndsARunThatGetsNoBetterAndSaysWhy) {
    const ScratchFolder scratch;
    Stopper observer;
    const RunSummary run = train(idle_config(scratch.path()), observer);
    EXPECT_EQ(run.status, "finished");
    EXPECT_EQ(run.steps, 30) << "the first of three epochs was best";
    const std::string why = "val_loss has not improved in 2 validations since step 10, where it was ";
    EXPECT_TRUE(run.stopped_early.starts_with(why)) << run.stopped_early;
    EXPECT_EQ(nlohmann::json::parse(file_bytes(run.folder / "summary.json")).at("stopped_early"), run.stopped_early);
    EXPECT_EQ(lines_with(run.folder, "val_loss").size(), 3u) << "each validation once";
    EXPECT_EQ(observer.notes.back(), "stopped early at step 30: " + run.stopped_early);
}

TEST(EarlyStopping, LeavesTheLossOfTheLastStepInTheSummary) {
    struct Losses : Observer {
        void step_reported(const ReportedStep& step) override { all.push_back(step.report.loss); }
        std::vector<double> all;
    } observer;
    const ScratchFolder scratch;
    const RunSummary run = train(idle_config(scratch.path()), observer);
    ASSERT_EQ(observer.all.size(), 30u) << "each step once, whether it is logged or not";
    EXPECT_EQ(run.train_loss, observer.all.back());
    EXPECT_NE(run.train_loss, observer.all.front());
}

TEST(EarlyStopping, GoesByTheMetricsOwnDirectionUnlessTold) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.trainer.max_epochs = 6;
    config.optimizer.lr = 0.01;  // learns: the loss falls
    config.early_stopping = {.monitor = "val_loss", .patience = 1};
    EXPECT_EQ(train(config).steps, 60);
    config.early_stopping.mode = "max";
    EXPECT_EQ(train(config).steps, 20);
    config.early_stopping = {.monitor = "val_loss", .patience = 2, .min_delta = 1e6};
    EXPECT_EQ(train(config).steps, 30) << "no improvement is so large";
}

// Takes down what it is asked for.
struct Asked final : RunHandle {
    explicit Asked(const invar::Setup& setup) : setup_(setup) {}
    const invar::Setup& run_setup() const override { return setup_; }
    const Progress& progress() const override { return progress_; }
    const CheckpointFolder& checkpoints() const override { return folder_; }
    void stop(const std::string& reason) override { reasons.push_back(reason); }
    void save_checkpoint() override { ++saves; }
    double learning_rate() const override { return 0; }
    void set_learning_rate(double) override {}
    void note(const std::string&) override {}
    std::vector<std::string> reasons;
    int saves = 0;

  private:
    const invar::Setup& setup_;
    Progress progress_;
    CheckpointFolder folder_{"nowhere", 1};
};

TEST(EarlyStopping, StopsWhereTheMetricIsNotFinite) {
    const ScratchFolder scratch;
    const invar::Setup setup(small_config(scratch.path()));
    const auto validation = [&](std::int64_t step, double loss) {
        return ValidationMetrics{step, 0, {{setup.task->metrics()[0], loss}}};
    };
    for (const bool check : {true, false}) {
        Asked run(setup);
        EarlyStopping stopping({.monitor = "val_loss", .patience = 2, .check_finite = check});
        stopping.setup(setup);
        stopping.on_validation_end(run, validation(5, NAN));
        EXPECT_EQ(run.reasons.size(), check ? 1u : 0u);
        if (check) {
            EXPECT_NE(run.reasons[0].find("val_loss is nan at step 5"), std::string::npos) << run.reasons[0];
        }
        stopping.on_validation_end(run, validation(6, 1.0));
        stopping.on_validation_end(run, validation(7, NAN));
        stopping.on_validation_end(run, validation(8, 2.0));
        EXPECT_EQ(run.reasons.size(), check ? 2u : 1u);
        const char* const why = check ? "val_loss is nan at step 7" : "in 2 validations since step 6";
        EXPECT_NE(run.reasons.back().find(why), std::string::npos) << run.reasons.back();
    }
}

TEST(EarlyStopping, DecidesTheSameWhenTheRunWasKilledAndResumed) {
    const ScratchFolder scratch;
    Config config = idle_config(scratch.path());
    config.trainer.val_check_interval.share = 0.5;
    config.trainer.checkpoint_every_n_steps = 4;
    const fs::path whole = undisturbed(config);
    ASSERT_EQ(summary_of(whole).at("steps"), 15);
    for (const std::int64_t at : {4, 5, 6, 10, 11, 14, 15}) {
        fs::remove_all(scratch.path() / "run");
        train_until(config, at);
        train(config, scratch.path() / "run");
        expect_same_run(scratch.path() / "run", whole, fmt::format("killed at {}", at));
    }
}

TEST(EarlyStopping, AStoppedRunThatIsResumedStaysStoppedUnlessPatienceGrows) {
    const ScratchFolder scratch;
    Config config = idle_config(scratch.path());
    const RunSummary run = train(config);
    const auto checkpoint = file_bytes(last_checkpoint(run.folder));
    const auto lines = lines_of(run.folder);
    const RunSummary again = train(config, run.folder);
    EXPECT_EQ(again.steps, 30);
    EXPECT_EQ(again.steps_now, 0);
    EXPECT_EQ(again.stopped_early, run.stopped_early);
    EXPECT_EQ(lines_of(run.folder), lines);
    EXPECT_EQ(file_bytes(last_checkpoint(run.folder)), checkpoint);
    config.early_stopping.patience = 4;
    EXPECT_EQ(train(config, run.folder).steps, 50);
}

TEST(EarlyStopping, RefusesAMetricThatTheTaskDoesNotHaveBeforeAnythingIsTrained) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.early_stopping.monitor = "val_acc";
    EXPECT_ERROR(Trainer{config}, UsageError,
                 "early_stopping.monitor = val_acc: there is no such metric; there are val_loss, val_accuracy");
    config = small_config(scratch.path());
    config.checkpoint.monitor = "loss";
    EXPECT_ERROR(Trainer{config}, UsageError, "checkpoint.monitor = loss: there is no such metric; there are val_loss");
    config.checkpoint.monitor = "val_loss";
    config.trainer.limit_val_batches = BatchCount::of(0);
    EXPECT_ERROR(Trainer{config}, UsageError, "trainer.limit_val_batches=0 never validates");
    EXPECT_TRUE(fs::is_empty(scratch.path()));
}

// Every validation is better than the one before.
Config learning_config(const fs::path& output) {
    Config config = small_config(output);
    config.trainer.max_epochs = 6;
    config.trainer.keep_checkpoints = 1;
    config.optimizer.lr = 0.01;
    config.checkpoint = {.monitor = "val_loss", .save_top_k = 2};
    return config;
}

// The steps of a run's validations, the best one first.
std::vector<std::int64_t> by_loss(const fs::path& run) {
    std::vector<std::pair<double, std::int64_t>> losses;
    for (const nlohmann::json& line : lines_with(run, "val_loss"))
        losses.emplace_back(line.at("val_loss"), line.at("step"));
    std::ranges::stable_sort(losses, {}, [](const auto& each) { return each.first; });
    std::vector<std::int64_t> steps;
    for (const auto& [loss, step] : losses) steps.push_back(step);
    return steps;
}

TEST(BestCheckpoints, KeepsTheBestOnesBesideTheNewest) {
    const ScratchFolder scratch;
    Config config = learning_config(scratch.path());
    config.checkpoint.mode = "max";  // so that the best one is not the newest
    const RunSummary run = train(config);
    std::vector<std::int64_t> steps = by_loss(run.folder);
    std::ranges::reverse(steps);
    ASSERT_EQ(steps.size(), 6u);
    EXPECT_EQ(steps[0], 10) << "this test wants a run that learns";
    std::set<std::string> expected;
    for (const std::int64_t step : {steps[0], steps[1], std::int64_t(60)})
        expected.insert(CheckpointFolder::name_of(step));
    EXPECT_EQ(checkpoints_in(run.folder), expected);
    ASSERT_TRUE(run.best_checkpoint);
    EXPECT_EQ(run.best_checkpoint->step, steps[0]);
    const auto best = nlohmann::json::parse(file_bytes(run.folder / "summary.json")).at("best_checkpoint");
    EXPECT_EQ(best.at("step"), steps[0]);
    EXPECT_EQ(best.at("monitor"), "val_loss");
    EXPECT_EQ(best.at("file"), "checkpoints/" + CheckpointFolder::name_of(steps[0]));
    EXPECT_EQ(find_checkpoint(run.folder, "best").step, steps[0]);
    EXPECT_EQ(find_checkpoint(run.folder, "last").step, 60);
}

TEST(BestCheckpoints, SavesOneWhereNoneWasDueAndAllOfThemWhereAsked) {
    const ScratchFolder scratch;
    Config config = learning_config(scratch.path());
    config.trainer.max_epochs = 2;
    config.trainer.val_check_interval.share = 0.3;
    config.checkpoint.save_top_k = -1;
    const RunSummary run = train(config);
    EXPECT_EQ(checkpoints_in(run.folder).size(), lines_with(run.folder, "val_loss").size());
    EXPECT_TRUE(checkpoints_in(run.folder).contains("step_00000003.safetensors"));
    config.checkpoint = {.monitor = "val_accuracy", .save_top_k = 1, .save_last = false};
    const RunSummary alone = train(config);
    EXPECT_EQ(checkpoints_in(alone.folder), std::set{CheckpointFolder::name_of(alone.best_checkpoint->step)});
}

TEST(BestCheckpoints, AreTheSameWhenTheRunWasKilledAndResumed) {
    const ScratchFolder scratch;
    Config config = learning_config(scratch.path());
    config.trainer.val_check_interval.share = 0.5;
    const fs::path whole = undisturbed(config);
    for (const std::int64_t at : {5, 6, 10, 11, 16, 27, 31, 45, 59}) {
        fs::remove_all(scratch.path() / "run");
        train_until(config, at);
        train(config, scratch.path() / "run");
        expect_same_run(scratch.path() / "run", whole, fmt::format("killed at {}", at));
    }
}

TEST(Resume, GoesOnFromTheBestCheckpointAndPutsLaterOnesAside) {
    const ScratchFolder scratch;
    Config config = learning_config(scratch.path());
    config.checkpoint.mode = "max";
    const RunSummary whole = train(config);
    const std::int64_t best = whole.best_checkpoint->step;
    Stopper observer;
    Trainer trainer(config, Resume(whole.folder, "best"));
    const RunSummary again = trainer.fit(observer);
    EXPECT_EQ(again.steps_now, 60 - best);
    EXPECT_EQ(again.val("loss"), whole.val("loss"));
    EXPECT_TRUE(fs::exists(whole.folder / "checkpoints/step_00000060.safetensors.aside"));
    EXPECT_EQ(lines_with(whole.folder, "loss").size(), 60u) << "each step once";
    EXPECT_TRUE(std::ranges::any_of(observer.notes,
                                    [](const std::string& note) { return note.find("put aside") != note.npos; }));
}

TEST(Resume, GoesOnFromAFileOfAnotherFolder) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.trainer.checkpoint_every_n_steps = 4;
    const fs::path whole = undisturbed(config), kept = scratch.path() / "kept.safetensors";
    fs::copy(whole / "checkpoints/step_00000016.safetensors", kept);
    train_until(config, 7);
    const RunSummary run = Trainer(config, Resume(scratch.path() / "run", kept)).fit();
    EXPECT_EQ(run.steps_now, 4);
    EXPECT_EQ(file_bytes(last_checkpoint(run.folder)), file_bytes(last_checkpoint(whole)));
}

TEST(Resume, SaysWhatIsMissingWhereThereIsNoSuchCheckpoint) {
    const ScratchFolder scratch;
    const Config config = small_config(scratch.path());
    const fs::path run = train(config).folder;
    EXPECT_ERROR(Trainer(config, Resume(run, "best")), UsageError, "checkpoint.monitor names a metric");
    EXPECT_ERROR(Trainer(config, Resume(run, "beast")), UsageError, "say best, last, or the file of one");
}

// Halves the rate after every fifth step, asks for a checkpoint when it has done so twice, and stops at the
// seventeenth.
struct Acting : Callback {
    std::string name() const override { return "acting"; }
    std::int64_t every_n_steps() const override { return 1; }
    void on_step_end(RunHandle& run, const ReportedStep& step) override {
        ++calls;
        EXPECT_EQ(step.step(), run.progress().step);
        if (step.step() % 5 == 0) run.set_learning_rate(run.learning_rate() / 3), ++changes;
        if (changes == 2 && step.step() == 11) run.save_checkpoint();
        if (step.step() == 17) run.stop("that is enough");
    }
    void on_validation_end(RunHandle&, const ValidationMetrics&) override { ++validations; }
    void on_epoch_end(RunHandle&) override { ++epochs; }
    void on_checkpoint(RunHandle&, const fs::path& file) override { EXPECT_TRUE(fs::exists(file)); }
    nlohmann::json state_dict() const override {
        return {{"calls", calls}, {"changes", changes}, {"validations", validations}, {"epochs", epochs}};
    }
    void load_state_dict(const nlohmann::json& state) override {
        calls = state.at("calls"), changes = state.at("changes");
        validations = state.at("validations"), epochs = state.at("epochs");
    }
    int calls = 0, changes = 0, validations = 0, epochs = 0;
};

RunSummary act(const Config& config, Observer& observer, std::optional<Resume> resume = {}) {
    Trainer trainer(config, std::move(resume));
    trainer.add(std::make_shared<Acting>());
    return trainer.fit(observer);
}

TEST(Callback, StopsTheRunSavesACheckpointAndChangesTheRate) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    Stopper observer;
    const RunSummary run = act(config, observer);
    EXPECT_EQ(run.status, "finished");
    EXPECT_EQ(run.steps, 17);
    EXPECT_EQ(run.stopped_early, "that is enough");
    EXPECT_TRUE(checkpoints_in(run.folder).contains("step_00000011.safetensors"));
    EXPECT_EQ(lines_with(run.folder, "val_loss").size(), 2u) << "after the epoch, and at the end";
    for (const StepMetrics& m : observer.steps)
        EXPECT_NEAR(m.lr, config.optimizer.lr / std::pow(3, (m.step - 1) / 5), 1e-12) << m.step;
    const nlohmann::json state = load_checkpoint(last_checkpoint(run.folder)).state.at("watch").at("callbacks");
    EXPECT_EQ(state.at("acting"), (nlohmann::json{{"calls", 17}, {"changes", 3}, {"validations", 1}, {"epochs", 1}}));
}

TEST(Callback, ActsTheSameWhenTheRunWasKilledAndResumed) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.trainer.checkpoint_every_n_steps = 3;
    Stopper nobody;
    fs::rename(act(config, nobody).folder, scratch.path() / "whole");
    const fs::path run = scratch.path() / "run";
    for (const std::int64_t at : {3, 5, 6, 10, 11, 12, 14, 16}) {
        fs::remove_all(run);
        Killer killer(at);
        EXPECT_THROW(act(config, killer), std::runtime_error);
        act(config, nobody, run);
        expect_same_run(run, scratch.path() / "whole", fmt::format("killed at {}", at));
    }
}

TEST(Callback, HasANameOfItsOwn) {
    const ScratchFolder scratch;
    Trainer trainer(small_config(scratch.path()));
    trainer.add(std::make_shared<Acting>());
    EXPECT_ERROR(trainer.add(std::make_shared<Acting>()), UsageError, "'acting'");
}

TEST(Callback, OfALibrarysUserNeedsNoYaml) {
    const ScratchFolder scratch;
    Config options;
    options.output_dir = scratch.path().string();
    options.trainer.max_epochs = 50;
    options.trainer.device = "cpu";
    options.logger.tensorboard = false;
    Trainer trainer(std::make_shared<Regression>(Line(200).task()), options);
    trainer.add(
        std::make_shared<EarlyStopping>(EarlyStoppingConfig{.monitor = "val_r2", .patience = 2, .min_delta = 1}));
    const RunSummary run = trainer.fit();
    EXPECT_EQ(run.epochs, 3);
    EXPECT_TRUE(run.stopped_early.starts_with("val_r2 has not improved in 2 validations")) << run.stopped_early;
}

// Somebody else may take the best file away; then nothing else is deleted for its sake, and nobody is told that it is
// there.
TEST(BestCheckpoints, ThatAreGoneOrDamagedCostNoOther) {
    for (const bool cut : {false, true}) {
        const ScratchFolder scratch;
        Config config = small_config(scratch.path());
        config.trainer.max_epochs = 3;
        config.checkpoint.monitor = "val_loss";
        config.checkpoint.mode = "max";  // the first is the best
        config.checkpoint.save_last = false;
        Trainer trainer(config);
        struct Thief : Callback {
            std::string name() const override { return "thief"; }
            void on_checkpoint(RunHandle& run, const fs::path&) override {
                const fs::path best = run.checkpoints().path_of(10);
                if (run.progress().step < 20 || !fs::exists(best)) return;
                if (cut)
                    fs::resize_file(best, 1000);
                else
                    fs::remove(best);
            }
            bool cut = false;
        };
        auto thief = std::make_shared<Thief>();
        thief->cut = cut;
        trainer.add(thief);
        Stopper observer;
        const RunSummary run = trainer.fit(observer);
        EXPECT_EQ(run.status, "finished");
        EXPECT_FALSE(run.best_checkpoint);
        EXPECT_TRUE(checkpoints_in(run.folder).contains("step_00000030.safetensors")) << "the last is kept";
        EXPECT_TRUE(std::ranges::any_of(observer.notes, [](const std::string& note) {
            return note.starts_with("the best checkpoint is of no use");
        }));
    }
}

// Damaged while nobody trained: it is told of, and the next best one is the best.
TEST(BestCheckpoints, ThatWereDamagedBetweenTwoProcessesNoLongerCount) {
    const ScratchFolder scratch;
    Config config = learning_config(scratch.path());
    config.checkpoint.mode = "max";  // the first is the best
    Stopper stop(25), observer;
    const fs::path run = train(config, stop).folder;
    fs::resize_file(run / "checkpoints" / CheckpointFolder::name_of(10), 1000);
    const RunSummary whole = train(config, observer, run);
    ASSERT_TRUE(whole.best_checkpoint);
    EXPECT_EQ(whole.best_checkpoint->step, 20);
    EXPECT_TRUE(std::ranges::any_of(observer.notes, [](const std::string& note) {
        return note.starts_with("one of the best checkpoints no longer counts: ");
    }));
}

TEST(BestCheckpoints, OfARunThatGoesBackAreThoseOfTheCheckpointItGoesBackTo) {
    BestCheckpoints best(CheckpointConfig{.monitor = "val_loss", .save_top_k = 2});
    best.load_state_dict({{"kept", {{30, 0.25}, {20, 0.5}}}});
    best.load_state_dict({{"kept", {{20, 0.5}}}});
    EXPECT_EQ(best.kept_checkpoints(), std::vector<std::int64_t>{20});
}

// The copy is of step 8, as is a checkpoint of the run's own, which is another file.
TEST(Resume, FromAFileOfAnotherFolderPutsTheRunsOwnOfThatStepAsideToo) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.trainer.max_epochs = 1;
    config.trainer.checkpoint_every_n_steps = 4;
    config.trainer.keep_checkpoints = 9;
    const fs::path run = train(config).folder, copy = scratch.path() / "copy.safetensors";
    fs::copy(run / "checkpoints" / CheckpointFolder::name_of(8), copy);
    EXPECT_EQ(Trainer(config, Resume(run, copy)).fit().steps_now, 2);
    std::set<std::string> expected;
    for (const std::int64_t step : {4, 8, 10}) expected.insert(CheckpointFolder::name_of(step));
    for (const std::int64_t step : {8, 10}) expected.insert(CheckpointFolder::name_of(step) + ".aside");
    EXPECT_EQ(checkpoints_in(run), expected);
}

}  // namespace
}  // namespace invar
