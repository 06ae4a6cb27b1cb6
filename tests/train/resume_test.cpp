// What a run that went on says of the whole of itself, and what it refuses to go on from.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "invar/core/error.h"
#include "invar/train/run_config.h"
#include "tests/core/expect_error.h"
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
    config.data.as<SyntheticOptions>().std = 1e-7;
    config.optimizer.lr = 1e-9;
    config.monitor.grad_norm_low = 1e30;
    return config;
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
    EXPECT_GT(before.at("loss").get<double>(), 0.0);
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

// A run that was stopped after step 12, its last checkpoint there; what it says when it goes on after `damage`, beside
// where it goes on from.
std::vector<std::string> notes_after(const Config& config, const std::function<void(const fs::path& run)>& damage) {
    const fs::path run = fs::path(config.output_dir) / config.exp_name;
    fs::remove_all(run);
    Stopper stop(12), observer;
    train(config, stop);
    damage(run);
    EXPECT_EQ(train(config, observer, run).status, "finished");
    EXPECT_NE(observer.notes.at(0).find("resuming at step 12"), std::string::npos) << observer.notes[0];
    return {observer.notes.begin() + 1, observer.notes.end()};
}

std::vector<std::string> text_lines(const fs::path& file) {
    std::vector<std::string> lines;
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
}

TEST(Resuming, SaysWhichLinesOfTheLogCannotBeReadAndKeepsThem) {
    const ScratchFolder scratch;
    const Config config = small_config(scratch.path());
    const fs::path whole = undisturbed(config), run = scratch.path() / "run";
    std::string damaged;
    const auto notes = notes_after(config, [&](const fs::path&) {
        std::vector<std::string> lines = text_lines(run / "metrics.jsonl");
        lines.insert(lines.begin() + 3, "{\"step\":4,\"lo");
        lines.insert(lines.begin() + 5, "");
        lines.insert(lines.begin() + 7, "not ours");
        for (const std::string& line : lines) damaged += line + "\n";
        std::ofstream(run / "metrics.jsonl") << damaged;
    });
    ASSERT_EQ(notes.size(), 1u);
    EXPECT_NE(notes[0].find("metrics.jsonl:4: 2 lines that cannot be read are left out"), std::string::npos)
        << notes[0];
    EXPECT_NE(notes[0].find("metrics.jsonl.damaged"), std::string::npos) << notes[0];
    EXPECT_EQ(file_bytes(run / "metrics.jsonl.damaged"), damaged);
    EXPECT_EQ(lines_of(run), lines_of(whole));
}

TEST(Resuming, SaysHowManyLoggedStepsAreGone) {
    const ScratchFolder scratch;
    const Config config = small_config(scratch.path());
    const auto expect = [&](const char* held, const std::function<void(const fs::path&)>& damage) {
        const auto notes = notes_after(config, damage);
        ASSERT_EQ(notes.size(), 1u) << held;
        EXPECT_NE(notes[0].find(held), std::string::npos) << notes[0];
    };
    expect("metrics.jsonl holds 0 of the 12 steps that were logged until step 12",
           [](const fs::path& run) { fs::resize_file(run / "metrics.jsonl", 0); });
    expect("holds 0 of the 12 steps", [](const fs::path& run) { fs::remove(run / "metrics.jsonl"); });
    expect("holds 5 of the 12 steps", [](const fs::path& run) {
        std::ostringstream some;
        for (const std::string& line : text_lines(run / "metrics.jsonl"))
            if (some.tellp() == 0 || nlohmann::json::parse(line).at("step") > 8) some << line << "\n";
        std::ofstream(run / "metrics.jsonl") << some.str();
    });
}

TEST(Resuming, HasNothingToSayOfALineThatAKillHasTorn) {
    const ScratchFolder scratch;
    const Config config = small_config(scratch.path());
    const auto notes = notes_after(config, [](const fs::path& run) {
        std::ofstream(run / "metrics.jsonl", std::ios::app) << "{\"step\":13,\"lo";
    });
    EXPECT_EQ(notes, std::vector<std::string>{});
    EXPECT_FALSE(fs::exists(scratch.path() / "run/metrics.jsonl.damaged"));
}

TEST(Resuming, SaysThatTimesAreOfThisProcessAloneWhereTheSummaryIsNoUse) {
    const ScratchFolder scratch;
    const Config config = small_config(scratch.path());
    const auto missing = notes_after(config, [](const fs::path& run) { fs::remove(run / "summary.json"); });
    ASSERT_EQ(missing.size(), 1u);
    EXPECT_NE(missing[0].find("summary.json is missing; time, speed"), std::string::npos) << missing[0];
    const auto torn = notes_after(config, [](const fs::path& run) { fs::resize_file(run / "summary.json", 30); });
    ASSERT_EQ(torn.size(), 1u);
    EXPECT_NE(torn[0].find("summary.json cannot be made sense of"), std::string::npos) << torn[0];
}

TEST(Resuming, DeletesTheCheckpointThatAKilledSaveLeftTooMany) {
    const ScratchFolder scratch;
    Config config = small_config(scratch.path());
    config.trainer.checkpoint_every_n_steps = 5;
    config.trainer.keep_checkpoints = 2;
    const fs::path run = train(config).folder, folder = run / "checkpoints";
    const auto steps = [&] { return CheckpointFolder(folder, 2).steps(); };
    ASSERT_EQ(steps(), (std::vector<std::int64_t>{15, 20}));
    fs::copy_file(folder / "step_00000015.safetensors", folder / "step_00000010.safetensors");
    fs::copy_file(folder / "step_00000015.safetensors", folder / "step_00000005.safetensors");
    std::string summary = file_bytes(run / "summary.json");
    summary.replace(summary.find("\"finished\""), 10, "\"running\"");  // as a killed run leaves it
    std::ofstream(run / "summary.json") << summary;
    train(config, run);
    EXPECT_EQ(steps(), (std::vector<std::int64_t>{15, 20}));
}

TEST(Resuming, CallsAConfigYamlThatIsAPipeOrAFolderByWhatItIs) {
    const ScratchFolder scratch;
    const Config config = small_config(scratch.path());
    const fs::path run = train(config).folder, file = run / "config.yaml";
    for (const bool pipe : {true, false}) {
        fs::remove(file);
        if (pipe)
            ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
        else
            fs::create_directory(file);
        EXPECT_TRUE(RunFolder::is_run(run));
        const RunConfig found = read_run_config(run);
        EXPECT_EQ(parse_config(found.yaml, "checkpoint"), config);
        EXPECT_NE(found.note.find("config.yaml is not an ordinary file; taking"), std::string::npos) << found.note;
    }
    fs::remove_all(run / "checkpoints");
    EXPECT_TRUE(RunFolder::is_run(run));
    EXPECT_ERROR(read_run_config(run), UsageError, "config.yaml is not an ordinary file");
}

TEST(Resuming, AFinishedRunMendsADamagedConfigYamlAndLeavesAnEditedOneAlone) {
    const ScratchFolder scratch;
    const Config config = small_config(scratch.path());
    const fs::path run = train(config).folder, file = run / "config.yaml";
    const std::string whole = file_bytes(file), edited = "# mine\n" + whole;
    std::ofstream(file) << whole.substr(0, 100);
    EXPECT_TRUE(train(config, run).nothing_left);
    EXPECT_EQ(file_bytes(file), whole);
    std::ofstream(file) << edited;
    EXPECT_TRUE(train(config, run).nothing_left);
    EXPECT_EQ(file_bytes(file), edited);
}

TEST(Resuming, SaysWhereACheckpointHoldsNoConfigurationInPlaceOfTheOneThatIsGone) {
    const ScratchFolder scratch;
    const CheckpointFolder checkpoints(scratch.path() / "checkpoints", 2);
    Checkpoint checkpoint;
    for (const nlohmann::json& state : {nlohmann::json::object(), nlohmann::json{{"config", 5}}}) {
        checkpoint.state = state;
        checkpoints.save(1, checkpoint);
        EXPECT_ERROR(read_run_config(scratch.path()), IoError, "the checkpoint holds no configuration");
    }
}

}  // namespace
}  // namespace invar
