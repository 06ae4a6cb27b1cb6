// Checkpoints that are written beside training, and by several ranks at once: the same bytes as when nothing else goes
// on, whole or not at all.
#include "invar/train/checkpoint_writer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <mutex>
#include <set>
#include <thread>

#include "invar/core/error.h"
#include "invar/io/watch.h"
#include "invar/train/step.h"
#include "tests/dist/thread_ranks.h"
#include "tests/train/scratch_run.h"

namespace invar {
namespace {

namespace fs = std::filesystem;

constexpr Progress kProgress{3, 0, 3};

// Weights whose order in files is not that of memory, running statistics, averages and moments; pieces that end within
// rows.
Config config_for(const std::string& model, const std::string& strategy, const std::string& precision) {
    Config config = small_config("/nowhere");
    config.trainer.strategy = strategy;
    config.trainer.precision = precision;
    config.trainer.bucket_mb = 0.005;
    config.trainer.ema_decay = 0.9;
    config.data.num_workers = 0;
    config.data.as<SyntheticOptions>().width = 6;
    config.model.choose(model);
    if (model == "mlp") config.model.choose("mlp", MlpOptions{.hidden = {65, 33}, .dropout = 0});
    return config;
}

void train_some(Setup& setup, int steps) {
    setup.train_data->start_epoch(0);
    for (int i = 0; i < steps; ++i) step_function(setup)(setup.next_group());
}

void write(Communicator& ranks, const fs::path& file, Setup& setup) {
    CheckpointWriter writer(ranks);
    writer.start(file, take_snapshot_parts(setup, kProgress, "of no matter"));
    EXPECT_TRUE(writer.finish(true));
}

std::vector<std::string> names_in(const fs::path& folder) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
    return names;
}

TEST(CheckpointWriter, WritesTheSameBytesOnAnyNumberOfRanks) {
    for (const std::string model : {"mlp", "convnet"})
        for (const std::string precision : {"32-true", "bf16-mixed", "bf16-true"}) {
            const ScratchFolder scratch;
            const fs::path whole = scratch.path() / "whole";
            invar::Setup setup(config_for(model, "auto", precision));
            train_some(setup, 3);
            save_checkpoint(whole, take_snapshot(setup, kProgress, "of no matter"));
            const std::string expected = file_bytes(whole);
            write(*setup.ranks, scratch.path() / "alone", setup);
            EXPECT_TRUE(file_bytes(scratch.path() / "alone") == expected) << model << " " << precision;
            for (const std::string strategy : {"ddp", "zero1", "zero2"})
                for (const int size : {2, 3, 4}) {
                    const fs::path file = scratch.path() / "ranks";
                    as_ranks(size, [&](Communicator& ranks) {
                        invar::Setup part(config_for(model, strategy, precision));
                        restore_snapshot(part, load_checkpoint(whole));
                        write(ranks, file, part);
                    });
                    EXPECT_TRUE(file_bytes(file) == expected) << model << precision << strategy << size;
                    EXPECT_NO_THROW(verify_checkpoint(file));
                    EXPECT_EQ(names_in(scratch.path()).size(), 3u) << "nothing temporary is left";
                }
        }
}

TEST(CheckpointWriter, KeepsTheStateOfTheSaveWhateverTheNextStepsDo) {
    const ScratchFolder scratch;
    invar::Setup setup(config_for("mlp", "auto", "32-true"));
    train_some(setup, 3);
    const fs::path file = scratch.path() / "file";
    save_checkpoint(scratch.path() / "expected", take_snapshot(setup, kProgress, "of no matter"));
    std::promise<void> trained;
    const std::shared_future<void> go_on = trained.get_future().share();
    CheckpointWriter writer(*setup.ranks);
    const IoWatch slow_disk([go_on](FileAct, const fs::path&) { go_on.wait(); });
    writer.start(file, take_snapshot_parts(setup, kProgress, "of no matter"));
    train_some(setup, 5);
    EXPECT_FALSE(writer.finish(false)) << "it is still being written";
    EXPECT_FALSE(fs::exists(file));
    trained.set_value();
    EXPECT_TRUE(writer.finish(true));
    EXPECT_TRUE(file_bytes(file) == file_bytes(scratch.path() / "expected"));
}

TEST(CheckpointWriter, LeavesNothingWhereOneRankCannotWrite) {
    for (const int bad : {0, 2}) {
        const ScratchFolder scratch;
        const fs::path file = scratch.path() / "file";
        write_file_atomically(file, "the one before");
        std::mutex mutex;
        std::vector<std::string> told;
        as_ranks(3, [&](Communicator& ranks) {
            invar::Setup setup(config_for("mlp", "zero1", "32-true"));
            const IoWatch full_disk([&](FileAct act, const fs::path& path) {
                if (ranks.rank() == bad && act == FileAct::write) fail_with_errno("write", path, ENOSPC);
            });
            CheckpointWriter writer(ranks);
            writer.start(file, take_snapshot_parts(setup, kProgress, ""));
            try {
                writer.finish(true);
            } catch (const IoError& error) {
                const std::lock_guard lock(mutex);
                told.push_back(error.what());
            }
        });
        const std::string expected =
            fmt::format("rank {}: cannot write {}: No space left on device; free space or choose another folder", bad,
                        file.string());
        EXPECT_EQ(told, std::vector<std::string>(3, expected));
        EXPECT_EQ(names_in(scratch.path()), std::vector<std::string>{"file"});
        EXPECT_EQ(file_bytes(file), "the one before");
    }
}

TEST(CheckpointWriter, OfRanksLeavesNothingWhereTheyDoNotAgree) {
    const ScratchFolder scratch;
    as_ranks(2, [&](Communicator& ranks) {
        invar::Setup setup(config_for("mlp", "ddp", "32-true"));
        CheckpointWriter writer(ranks);
        writer.start(scratch.path() / "file", take_snapshot_parts(setup, kProgress, ""));
    });
    EXPECT_TRUE(fs::is_empty(scratch.path()));
}

TEST(CheckpointWriter, RanksNameTheOneThatDoesNotSeeTheFolder) {
    const ScratchFolder scratch;
    fs::create_directory(scratch.path() / "elsewhere");
    const auto told = [&](int blind) {
        std::vector<std::string> all(3);
        as_ranks(3, [&](Communicator& ranks) {
            try {
                check_shared_folder(ranks, ranks.rank() == blind ? scratch.path() / "elsewhere" : scratch.path());
            } catch (const UsageError& error) {
                all[std::size_t(ranks.rank())] = error.what();
            }
        });
        return all;
    };
    EXPECT_EQ(told(-1), std::vector<std::string>(3));
    for (const std::string& each : told(2)) {
        EXPECT_TRUE(each.starts_with("rank 2 does not see in " + (scratch.path() / "elsewhere").string())) << each;
        EXPECT_NE(each.find("output_dir="), std::string::npos) << each;
    }
    EXPECT_EQ(names_in(scratch.path()), std::vector<std::string>{"elsewhere"}) << "the probe is gone";
    fs::remove(scratch.path() / "elsewhere");
    for (const std::string& each : told(0)) EXPECT_TRUE(each.starts_with("rank 0: cannot ")) << each;
}

// Whether a path is a checkpoint or on its way to one.
bool of_checkpoint(const fs::path& path) {
    return path.parent_path().filename() == "checkpoints";
}

// Takes down what training did while a checkpoint was being written.
struct Counter : Observer {
    void step_launched(const Progress&, std::int64_t) override { ++steps; }
    std::atomic<int> steps = 0;
};

TEST(Trainer, TakesStepsWhileACheckpointIsWrittenAndSavesTheSame) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.trainer.checkpoint_every_n_steps = 6;
    config.trainer.keep_checkpoints = 100;
    config.trainer.ema_decay = 0.9;
    const fs::path fast = undisturbed(config);
    Counter counter;
    int begun = 0, beside = 0;
    const std::thread::id here = std::this_thread::get_id();
    {
        // Each checkpoint but the last is written only when two more steps were taken.
        const IoWatch slow_disk([&](FileAct act, const fs::path& path) {
            if (act != FileAct::sync || !of_checkpoint(path) || !is_temporary(path)) return;
            EXPECT_NE(std::this_thread::get_id(), here);
            ++begun;
            int step = 0;
            while (CheckpointFolder::name_of(step) != without_temporary_name(path).filename()) ++step;
            for (int i = 0; i < 2000 && step < 20 && counter.steps < step + 2; ++i)
                std::this_thread::sleep_for(std::chrono::milliseconds(10));
            beside += counter.steps >= step + 2;
        });
        train(config, counter);
    }
    EXPECT_EQ(begun, 5) << "6, 10, 12, 18 and the last";
    EXPECT_EQ(beside, 4);
    const auto slow = all_files(scratch.path() / "run" / "checkpoints");
    EXPECT_TRUE(slow == all_files(fast / "checkpoints"));
    EXPECT_EQ(lines_of(scratch.path() / "run"), lines_of(fast));

    fs::remove_all(scratch.path() / "run");
    config.trainer.async_checkpoint = false;
    Counter waiting;
    const IoWatch watch([&](FileAct act, const fs::path& path) {
        if (act == FileAct::rename && of_checkpoint(path)) {
            EXPECT_EQ(path.filename(), CheckpointFolder::name_of(waiting.steps)) << "a step was taken meanwhile";
        }
    });
    train(config, waiting);
    for (const auto& [name, bytes] : slow) {
        const Checkpoint ours = load_checkpoint(scratch.path() / "run" / "checkpoints" / name),
                         theirs = parse_checkpoint(bytes, name);
        for (const auto& [tensor, value] : theirs.tensors)
            EXPECT_EQ(ours.tensors.at(tensor).to_vector<float>(), value.to_vector<float>()) << name << tensor;
    }
}

TEST(Trainer, NamesTheBestCheckpointOnlyWhenItIsThere) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.trainer.max_epochs = 3;
    config.checkpoint.monitor = "val_loss";
    std::set<std::string> named;
    const IoWatch slow_disk([&](FileAct act, const fs::path& path) {
        if (act == FileAct::sync && of_checkpoint(path)) std::this_thread::sleep_for(std::chrono::milliseconds(20));
        if (act != FileAct::rename || path.filename() != "summary.json") return;
        const nlohmann::json summary = nlohmann::json::parse(file_bytes(path));
        if (!summary.contains("best_checkpoint")) return;
        const std::string file = summary["best_checkpoint"].at("file");
        named.insert(file);
        EXPECT_TRUE(fs::exists(path.parent_path() / file)) << file;
    });
    train(config);
    EXPECT_GE(named.size(), 2u) << "it got better";
}

TEST(Trainer, LetsTheCopyGoWhenTheCheckpointIsWritten) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.trainer.checkpoint_every_n_steps = 4;
    config.model.choose("mlp", MlpOptions{.hidden = {300, 300}, .dropout = 0});
    Trainer trainer(config);
    const std::int64_t before = memory_stats(trainer.setup().device).live[int(Purpose::workspace)];
    reset_peak_memory(trainer.setup().device);
    trainer.fit();
    const MemoryStats stats = memory_stats(trainer.setup().device);
    const std::int64_t copy = trainer.setup().optimizer->store().weights().bytes() * 3;
    EXPECT_GE(stats.peak_of(Purpose::workspace) - before, copy) << "weights and two moments are counted";
    EXPECT_LT(stats.live[int(Purpose::workspace)] - before, copy / 2);
}

}  // namespace
}  // namespace invar
