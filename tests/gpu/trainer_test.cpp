// Whole runs on the GPU: the recorded step changes no byte of what a run leaves behind, interrupted or not.
#include "invar/train/trainer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "invar/core/error.h"
#include "invar/io/jsonl.h"
#include "tests/gpu/fixture.h"
#include "tests/train/scratch_run.h"

namespace invar::testing {
namespace {

namespace fs = std::filesystem;

Config gpu_config(const fs::path& output) {
    Config config = small_config(output);  // batches of 16, the last one of an epoch of 6
    config.trainer.device = "cuda";
    config.trainer.precision = "16-mixed";
    config.trainer.max_epochs = 5;
    config.trainer.checkpoint_every_n_steps = 7;
    config.trainer.gradient_clip_val = 1.0;
    config.trainer.ema_decay = 0.9;
    config.scaler.init_scale = 0x1p24;  // the first steps overflow
    config.scaler.growth_interval = 6;
    config.scheduler.choose("cosine");
    return config;
}

// An alert names the bad gradients where they are still those of its step, and what a monitor saw is read when it has
// come, between other lines: both are a matter of time.
std::vector<std::string> sorted_lines_of(const fs::path& run) {
    std::vector<std::string> lines = lines_of(run, "message");
    std::sort(lines.begin(), lines.end());
    return lines;
}

void expect_same_end(const fs::path& a, const fs::path& b, const std::string& what) {
    Checkpoint ours = load_checkpoint(last_checkpoint(a)), theirs = load_checkpoint(last_checkpoint(b));
    ours.state.erase("config"), theirs.state.erase("config");
    EXPECT_EQ(ours.state, theirs.state) << what;
    ASSERT_EQ(ours.tensors.size(), theirs.tensors.size());
    for (const auto& [name, tensor] : theirs.tensors)
        EXPECT_EQ(bytes_of(ours.tensors.at(name)), bytes_of(tensor)) << what << ": " << name;
    EXPECT_EQ(sorted_lines_of(a), sorted_lines_of(b)) << what;
}

TEST_F(Gpu, ARunWithGraphsLeavesTheBytesOfOneWithout) {
    const ScratchFolder scratch;
    for (const std::int64_t accumulate : {1, 3}) {
        Config config = gpu_config(scratch.path());
        config.trainer.accumulate_grad_batches = accumulate;
        config.exp_name = "graphed";
        Stopper watcher;
        const RunSummary graphed = train(config, watcher);
        config.exp_name = "plain";
        config.trainer.cuda_graph = false;
        const RunSummary plain = train(config);
        expect_same_end(graphed.folder, plain.folder, "accumulating " + std::to_string(accumulate));
        EXPECT_GT(graphed.skipped, 0);
        EXPECT_GT(graphed.train_seconds, 0.0);
        ASSERT_EQ(std::int64_t(watcher.steps.size()), graphed.steps) << "every step is heard of";
        for (std::size_t i = 0; i < watcher.steps.size(); ++i) EXPECT_EQ(watcher.steps[i].step, std::int64_t(i + 1));
    }
}

TEST_F(Gpu, AnInterruptedRunEndsAsTheOtherDid) {
    const ScratchFolder scratch;
    Config config = gpu_config(scratch.path());
    config.exp_name = "whole";
    const RunSummary whole = train(config);
    for (const std::int64_t stop : {2, 13, 30}) {
        config.exp_name = "parts" + std::to_string(stop);
        Stopper first(stop), second(stop + 11);
        const RunSummary begun = train(config, first);
        EXPECT_EQ(begun.status, "interrupted");
        EXPECT_EQ(begun.steps, stop);
        EXPECT_EQ(std::int64_t(first.steps.size()), stop) << "nothing that was trained goes unheard";
        train(config, second, begun.folder);
        train(config, begun.folder);
        expect_same_end(begun.folder, whole.folder, "stopped at " + std::to_string(stop));
    }
}

TEST_F(Gpu, AHopelessRunIsStoppedAtTheStepItIs) {
    const ScratchFolder scratch;
    Config config = gpu_config(scratch.path());
    config.trainer.precision = "32-true";
    config.trainer.max_epochs = 100;
    config.optimizer.choose("sgd");
    config.optimizer.lr = 1e10;
    config.trainer.gradient_clip_val = 0;
    Stopper observer;
    try {
        train(config, observer);
        FAIL() << "it went on to the end";
    } catch (const Error& error) {
        ASSERT_FALSE(observer.steps.empty());
        const std::string at =
            fmt::format("stopped at step {}: the loss is NaN, 100 steps in a row", observer.steps.back().step);
        EXPECT_NE(std::string(error.what()).find(at), std::string::npos) << error.what();
    }
}

}  // namespace
}  // namespace invar::testing
