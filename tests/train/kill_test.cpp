// Runs that die: kill -9 at random moments, and a disk that is full. The dying runs are processes of their own, started
// afresh (threads do not survive a fork): this program again, told by an environment variable what to do.
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "invar/core/error.h"
#include "invar/text/token_file.h"
#include "tests/io/event_reader.h"
#include "tests/train/scratch_run.h"

#ifdef INVAR_TEST_ON_GPU
#include "tests/gpu/fixture.h"
#endif

namespace invar {
namespace {

#ifdef INVAR_TEST_ON_GPU
using GpuDying = testing::Gpu;
#define DYING_TEST(name) TEST_F(GpuDying, name)
constexpr const char* kDevice = "cuda";
#else
#define DYING_TEST(name) TEST(Dying, name)
constexpr const char* kDevice = "cpu";
#endif

namespace fs = std::filesystem;

constexpr const char* kOutput = "INVAR_TEST_DYING_RUN";      // where the run of this process belongs
constexpr const char* kFileLimit = "INVAR_TEST_FILE_LIMIT";  // no file may become larger
constexpr const char* kEpochs = "INVAR_TEST_EPOCHS";
constexpr const char* kRecovers = "INVAR_TEST_RECOVERS";       // the run becomes unstable at its hundredth step
constexpr const char* kStopsEarly = "INVAR_TEST_STOPS_EARLY";  // keeps best checkpoints, and stops at the 150th step
constexpr const char* kTokens = "INVAR_TEST_TOKENS";           // a file of them: a language model is trained
constexpr int kIoError = 42, kOtherError = 43;

Config dying_config(const fs::path& output) {
    Config config = small_config(output);
    config.trainer.device = kDevice;
    config.monitor.enabled = config.trainer.device == "cpu";  // a GPU answers it between other lines: a matter of time
    config.trainer.precision = "16-mixed";
    config.trainer.accumulate_grad_batches = 2;
    config.trainer.max_epochs = std::getenv(kEpochs) ? std::atoi(std::getenv(kEpochs)) : 60;  // of five steps
    config.trainer.checkpoint_every_n_steps = 3;
    config.trainer.limit_val_batches = BatchCount::of(1);
    config.scaler.init_scale = 0x1p24;
    config.scaler.growth_interval = 20;
    config.logger.tensorboard = true;
    config.monitor.grad_norm_low = 10.0;  // above most, so that alerts rest on what came before a kill
    if (std::getenv(kRecovers)) {
        config.trainer.precision = "32-true";
        config.trainer.precision_schedule = {{false, 99, "16-mixed"}};
        config.trainer.on_instability = "recover";
        config.data.as<SyntheticOptions>().std = 1e-7;  // beyond FP16, not beyond BF16
    }
    if (const char* const tokens = std::getenv(kTokens)) {
        config.task.choose("language");
        config.model.choose("llama").set("layers", "1").set("heads", "2").set("kv_heads", "1").set("width", "16");
        config.data.choose("tokens").set("path", tokens).set("vocabulary", "40").set("length", "12");
        config.trainer.recompute = "light";
    }
    if (std::getenv(kStopsEarly)) {
        config.checkpoint = {.monitor = "val_loss", .save_top_k = 2};
        config.early_stopping = {.monitor = "val_loss", .patience = 29, .min_delta = 1e6};
    }
    return config;
}

// Begins the run, or goes on with it where there is one.
int train_here(const fs::path& output) {
    if (const char* limit = std::getenv(kFileLimit)) {
        std::signal(SIGXFSZ, SIG_IGN);
        const rlim_t bytes = rlim_t(std::atoll(limit));
        const rlimit both{bytes, bytes};
        ::setrlimit(RLIMIT_FSIZE, &both);
    }
    try {
        const fs::path folder = output / "run";
        Observer nobody;
        Trainer trainer(dying_config(output), fs::exists(folder) ? std::optional(folder) : std::nullopt);
        trainer.fit(nobody);
        return 0;
    } catch (const IoError&) {
        return kIoError;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "the child says: %s\n", error.what());
        return kOtherError;
    }
}

class ChildMode : public ::testing::Environment {
    void SetUp() override {
        if (const char* output = std::getenv(kOutput)) ::_exit(train_here(output));
    }
};
const auto* const kChildMode = ::testing::AddGlobalTestEnvironment(new ChildMode);

class Child {
  public:
    explicit Child(const fs::path& output, std::optional<std::size_t> file_limit = {}) {
        std::vector<std::string> variables = {std::string(kOutput) + "=" + output.string()};
        if (file_limit) variables.push_back(std::string(kFileLimit) + "=" + std::to_string(*file_limit));
        for (char** variable = environ; *variable; ++variable)  // not which part of the tests this one was told to run
            if (!std::string_view(*variable).starts_with("GTEST_")) variables.emplace_back(*variable);
        std::vector<char*> environment;
        for (std::string& variable : variables) environment.push_back(variable.data());
        environment.push_back(nullptr);
        std::string name = "test_train", filter = "--gtest_filter=*Dying.*", quiet = "--gtest_brief=1";
        char* arguments[] = {name.data(), filter.data(), quiet.data(), nullptr};
        EXPECT_EQ(::posix_spawn(&id_, "/proc/self/exe", nullptr, nullptr, arguments, environment.data()), 0);
    }
    bool running() {
        if (!done_) done_ = ::waitpid(id_, &status_, WNOHANG) == id_;
        return !done_;
    }
    void kill() {
        if (running()) ::kill(id_, SIGKILL);
        wait();
    }
    int wait() {
        if (!done_) ::waitpid(id_, &status_, 0);
        done_ = true;
        return WIFEXITED(status_) ? WEXITSTATUS(status_) : -1;
    }
    bool killed() const { return done_ && WIFSIGNALED(status_); }

  private:
    pid_t id_ = -1;
    int status_ = 0;
    bool done_ = false;
};

// Both runs lie under the same name, so that the configuration inside the checkpoint is the same too.
struct Undisturbed {
    explicit Undisturbed(const fs::path& output) {
        EXPECT_EQ(Child(output).wait(), 0);
        fs::rename(output / "run", output / "undisturbed");
        folder = output / "undisturbed";
    }
    fs::path folder;
};

void expect_same_end(const fs::path& run, const fs::path& undisturbed) {
    ASSERT_EQ(last_checkpoint(run).filename(), last_checkpoint(undisturbed).filename());
    EXPECT_EQ(file_bytes(last_checkpoint(run)), file_bytes(last_checkpoint(undisturbed)));
    const auto ours = read_jsonl(run / "metrics.jsonl"), theirs = read_jsonl(undisturbed / "metrics.jsonl");
    ASSERT_EQ(ours.size(), theirs.size());
    const std::vector<std::string> lines = lines_of(run), wanted = lines_of(undisturbed);
    for (std::size_t i = 0; i < lines.size(); ++i) ASSERT_EQ(lines[i], wanted[i]) << "line " << i + 1;
    EXPECT_EQ(summary_of(run), summary_of(undisturbed));
    // Every logged loss is shown by TensorBoard once, with its value.
    Points losses;
    for (const nlohmann::json& line : ours)
        if (line.contains("loss")) losses.emplace_back(line.at("step"), float(number_of(line.at("loss"))));
    const Points shown = shown_by_tensorboard(run)["loss"];
    ASSERT_EQ(shown.size(), losses.size());
    for (std::size_t i = 0; i < shown.size(); ++i) {
        EXPECT_EQ(shown[i].first, losses[i].first);
        EXPECT_EQ(std::memcmp(&shown[i].second, &losses[i].second, sizeof(float)), 0) << "step " << losses[i].first;
    }
}

std::uintmax_t size_of_metrics(const fs::path& run) {
    std::error_code none;
    const std::uintmax_t size = fs::file_size(run / "metrics.jsonl", none);
    return none ? 0 : size;
}

void expect_nothing_lost(int wanted_kills) {
    ::unsetenv(kEpochs);
    const ScratchFolder scratch;
    const Undisturbed undisturbed(scratch.path());
    const fs::path run = scratch.path() / "run";
    std::mt19937 random(std::random_device{}());
    int kills = 0;
    for (int attempt = 0; attempt < 20 && kills < wanted_kills; ++attempt) {
        Child child(scratch.path());
        if (attempt % 3 == 0) {  // while it starts, or soon after
            ::usleep(useconds_t(random() % 120000));
        } else {  // some logged steps later, at any point of a step or of a checkpoint
            const std::uintmax_t enough = size_of_metrics(run) + 400 * (4 + random() % 20);
            while (child.running() && size_of_metrics(run) < enough) ::usleep(500);
            ::usleep(useconds_t(random() % 4000));
        }
        child.kill();
        kills += child.killed();
        // A checkpoint that the summary calls the best is there, whenever the run was killed.
        const std::string text = fs::exists(run / "summary.json") ? file_bytes(run / "summary.json") : "";
        const nlohmann::json summary = nlohmann::json::parse(text, nullptr, false);
        if (summary.is_object() && summary.contains("best_checkpoint")) {
            EXPECT_TRUE(fs::exists(run / summary["best_checkpoint"].at("file").get<std::string>()));
        }
    }
    EXPECT_GE(kills, 2 * wanted_kills / 3) << "the runs ended before they could be killed";
    ASSERT_EQ(Child(scratch.path()).wait(), 0);
    expect_same_end(run, undisturbed.folder);
    const auto ours = all_files(run / "checkpoints"), theirs = all_files(undisturbed.folder / "checkpoints");
    EXPECT_TRUE(ours == theirs) << "other checkpoints";
}

DYING_TEST(ByKillNineAtAnyMomentLosesNothing) {
    expect_nothing_lost(9);
}

// The half-written file is there when it is killed, and is gone when the run goes on.
DYING_TEST(WhileACheckpointIsBeingWrittenLosesNothing) {
    ::setenv(kEpochs, "30", 1);
    const ScratchFolder scratch;
    const Undisturbed undisturbed(scratch.path());
    const fs::path run = scratch.path() / "run";
    const auto half_written = [&] {
        std::error_code none;
        for (fs::directory_iterator entry(run / "checkpoints", none), end; !none && entry != end; entry.increment(none))
            if (is_temporary(entry->path())) return true;
        return false;
    };
    std::mt19937 random(std::random_device{}());
    int torn = 0;
    for (int attempt = 0; attempt < 8; ++attempt) {
        Child child(scratch.path());
        const std::uintmax_t enough = size_of_metrics(run) + 400 * (1 + random() % 10);
        while (child.running() && (size_of_metrics(run) < enough || !half_written())) {
        }
        child.kill();
        torn += half_written();
        if (fs::exists(run / "checkpoints")) {
            EXPECT_TRUE(CheckpointFolder(run / "checkpoints", 3).latest().passed_over.empty());
        }
    }
    EXPECT_GE(torn, 2) << "none was killed at the right moment";
    ASSERT_EQ(Child(scratch.path()).wait(), 0);
    expect_same_end(run, undisturbed.folder);
    EXPECT_FALSE(half_written());
    ::unsetenv(kEpochs);
}

DYING_TEST(ByKillNineKeepsTheBestCheckpointsAndStopsAtTheSameStep) {
    ::setenv(kStopsEarly, "1", 1);
    expect_nothing_lost(6);
    ::unsetenv(kStopsEarly);
}

// In the middle of epochs of shuffled tokens; a row is read once in each, whoever reads it.
DYING_TEST(WhileItReadsTokensLosesNothing) {
    const ScratchFolder scratch;
    const fs::path file = scratch.path() / "tokens.bin";
    text::TokenWriter writer(file, text::TokenFormat::uint16, 40);
    std::vector<text::TokenId> tokens;
    for (text::TokenId i = 0; i < 1800; ++i) tokens.push_back(i * i % 37);
    writer.write(tokens);
    writer.commit();
    ::setenv(kTokens, file.c_str(), 1);
    expect_nothing_lost(6);
    ::unsetenv(kTokens);
}

// Once more from shortly before the instability, killed at any moment while it is found and set right.
DYING_TEST(DuringARecoveryLosesNothing) {
    ::setenv(kRecovers, "1", 1);
    ::unsetenv(kEpochs);
    const ScratchFolder scratch;
    const Undisturbed undisturbed(scratch.path());
    const auto summary = nlohmann::json::parse(file_bytes(undisturbed.folder / "summary.json"));
    EXPECT_EQ(summary.at("recoveries"), 1);
    EXPECT_EQ(summary.at("precision"), "bf16-mixed");
    const fs::path run = scratch.path() / "run", before = scratch.path() / "before";
    ::setenv(kEpochs, "19", 1);
    ASSERT_EQ(Child(scratch.path()).wait(), 0);
    ::unsetenv(kEpochs);
    fs::rename(run, before);
    std::mt19937 random(std::random_device{}());
    int kills = 0, undecided = 0, decided = 0;
    for (int attempt = 0; attempt < 12; ++attempt) {
        fs::remove_all(run);
        fs::copy(before, run, fs::copy_options::recursive);
        Child child(scratch.path());
        // Step 96 is written soon after it has started; then the recovery is a few milliseconds away.
        while (child.running() && !fs::exists(run / "checkpoints" / "step_00000096.safetensors")) ::usleep(200);
        ::usleep(useconds_t(random() % 12000));
        child.kill();
        kills += child.killed();
        const Checkpoint latest = load_checkpoint(CheckpointFolder(run / "checkpoints", 3).latest().path);
        (latest.state.at("watch").at("recoveries").empty() ? undecided : decided) += 1;
        ASSERT_EQ(Child(scratch.path()).wait(), 0);
        expect_same_end(run, undisturbed.folder);
        EXPECT_EQ(nlohmann::json::parse(file_bytes(run / "summary.json")).at("precision"), "bf16-mixed");
    }
    EXPECT_GE(kills, 6) << undecided << " killed before it was decided, " << decided << " after";
    ::unsetenv(kRecovers);
}

DYING_TEST(OfAFullDiskIsAnErrorAndKeepsEarlierCheckpoints) {
    ::setenv(kEpochs, "10", 1);
    const ScratchFolder scratch;
    const Undisturbed undisturbed(scratch.path());
    const fs::path run = scratch.path() / "run";
    {
        Child child(scratch.path());
        while (child.running() && size_of_metrics(run) < 3000) ::usleep(500);
        child.kill();
    }
    const auto before = all_files(run / "checkpoints");
    ASSERT_FALSE(before.empty());
    const std::size_t needed = before.rbegin()->second.size();
    EXPECT_EQ(Child(scratch.path(), needed - 1000).wait(), kIoError);
    const auto after = all_files(run / "checkpoints");
    for (const auto& [name, bytes] : after) EXPECT_TRUE(before.contains(name) && before.at(name) == bytes) << name;
    EXPECT_TRUE(after.contains(last_checkpoint(run).filename().string()));
    ASSERT_EQ(Child(scratch.path()).wait(), 0);
    expect_same_end(run, undisturbed.folder);
}

}  // namespace
}  // namespace invar
