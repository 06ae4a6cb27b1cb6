// A run without any YAML: the task and a folder are there already.
#include <gtest/gtest.h>

#include "invar/invar.h"
#include "invar/io/temporary_folder.h"

using namespace ::invar;

RunSummary train(const std::shared_ptr<const Task>& task, const std::string& folder) {
    // BLOCK
    return summary;
}

TEST(DocsLibrary, ARunOfTypedOptionsFinishes) {
    const TemporaryFolder folder;
    const auto set =
        std::make_shared<SyntheticDataset>(SyntheticOptions{.size = 256, .height = 8, .width = 8}, Split::train);
    const auto task = std::make_shared<Classification>(
        TaskParts{set, set, [](const DataInfo& data) { return make_mlp({.hidden = {16}}, data); }});
    const RunSummary summary = train(task, folder.path().string());
    EXPECT_EQ(summary.status, "finished");
    EXPECT_EQ(summary.epochs, 3);
    EXPECT_EQ(summary.precision, "bf16-mixed");
    EXPECT_TRUE(summary.best_checkpoint);
}
