// What is written for Weights & Biases: the same scalars as for TensorBoard, once each, also over a kill.
#include <gtest/gtest.h>

#include "tests/train/scratch_run.h"

namespace invar {
namespace {

Config wandb_config(const ScratchFolder& folder) {
    Config config = small_config(folder.path());
    config.logger.wandb = true;
    config.logger.wandb_project = "ocr";
    config.trainer.checkpoint_every_n_steps = 4;
    return config;
}

// Every line without what depends on the clock and the allocator.
std::vector<std::string> wandb_lines(const std::filesystem::path& run) {
    std::vector<std::string> lines;
    for (nlohmann::json line : read_jsonl(run / "wandb.jsonl")) {
        for (const char* key : {"samples_per_s", "step_ms", "peak_bytes/total", "live_bytes/total", "host_bytes", "gpu_utilization"})
            line.erase(key);
        lines.push_back(line.dump());
    }
    return lines;
}

TEST(WandbFile, HoldsProjectNameConfigurationAndTheScalarsOfEachStep) {
    const ScratchFolder folder;
    const std::filesystem::path run = train(wandb_config(folder)).folder;
    const std::vector<nlohmann::json> lines = read_jsonl(run / "wandb.jsonl");
    EXPECT_EQ(lines[0].at("project"), "ocr");
    EXPECT_EQ(lines[0].at("name"), "run");
    EXPECT_EQ(lines[0].at("config").at("trainer.max_epochs"), 2);
    EXPECT_EQ(lines[0].at("config").at("logger.wandb.enabled"), true);
    EXPECT_EQ(lines[0].at("config").at("trainer.precision"), "32-true");
    int losses = 0, validations = 0;
    const std::vector<nlohmann::json> metrics = lines_with(run, "loss");
    for (const nlohmann::json& line : std::span(lines).subspan(1)) {
        if (line.contains("loss")) {
            EXPECT_EQ(line.at("loss").get<float>(), metrics.at(std::size_t(losses++)).at("loss").get<float>());
        }
        validations += line.contains("val_accuracy");
    }
    EXPECT_EQ(losses, 20);
    EXPECT_EQ(validations, 2);
}

TEST(WandbFile, IsNotThereUnlessItIsAskedFor) {
    const ScratchFolder folder;
    Config config = wandb_config(folder);
    config.logger.wandb = false;
    EXPECT_FALSE(std::filesystem::exists(train(config).folder / "wandb.jsonl"));
}

TEST(WandbFile, OfAKilledAndResumedRunIsThatOfAnUndisturbedOne) {
    const ScratchFolder folder;
    const Config config = wandb_config(folder);
    const std::filesystem::path whole = undisturbed(config), run = whole.parent_path() / "run";
    train_until(config, 11);
    train(config, run);
    EXPECT_EQ(wandb_lines(run), wandb_lines(whole));
}

}  // namespace
}  // namespace invar
