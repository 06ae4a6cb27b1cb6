// A callback, given to a run that cannot learn.
#include <gtest/gtest.h>

#include "invar/invar.h"
#include "invar/io/temporary_folder.h"

using namespace ::invar;

// BLOCK

TEST(DocsLibrary, ACallbackLowersTheRateAndStopsTheRun) {
    const TemporaryFolder folder;
    const auto set =
        std::make_shared<SyntheticDataset>(SyntheticOptions{.size = 256, .height = 8, .width = 8}, Split::train);
    const auto task = std::make_shared<Classification>(
        TaskParts{set, set, [](const DataInfo& data) { return make_mlp({.hidden = {16}}, data); }});
    Config config{.output_dir = folder.path().string(),
                  .trainer = {.max_epochs = 100, .device = "cpu"},
                  .logger = {.tensorboard = false}};
    config.optimizer.choose("sgd");
    Trainer trainer(task, config);
    trainer.setup().clip = {ClipSpec::Kind::value, 1e-30f};  // nothing moves
    trainer.add(std::make_shared<OnPlateau>());
    const RunSummary summary = trainer.fit();
    EXPECT_EQ(summary.stopped_early, "the learning rate has become too small to matter");
    EXPECT_LT(summary.epochs, 20);
}
