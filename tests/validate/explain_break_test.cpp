// A candidate that breaks is explained: its first bad operation, who is to blame, and the step kept for diagnosis.
#include "invar/validate/explain_break.h"

#include <gtest/gtest.h>

#include "invar/core/error.h"
#include "invar/data/synthetic.h"
#include "invar/diagnose/failure.h"
#include "invar/tasks/registry.h"
#include "invar/validate/begun.h"
#include "invar/validate/validate.h"
#include "tests/io/scratch.h"

namespace invar {
namespace {

namespace fs = std::filesystem;

ValidateOptions tiny(const Scratch& scratch) {
    ValidateOptions options;
    options.base = parse_config(
        "data: {name: synthetic, size: 800, height: 8, width: 8, batch_size: 20, num_workers: 0}\n"
        "model: {name: mlp, hidden: [64]}\n"
        "trainer: {max_epochs: 1, log_every_n_steps: 1, threads: 1}\n"
        "logger: {tensorboard: false}\n",
        "test");
    options.base.output_dir = scratch.path().string();
    options.base.exp_name = "v";
    options.candidates = {"16-mixed"};
    return options;
}

struct Explained {
    Validation validation;
    std::vector<std::string> runs;
};
Explained explained(ValidateOptions options) {
    Explained all;
    options.explains = [&](const fs::path& run) { all.runs.push_back(run.filename().string()); };
    Observer nobody;
    all.validation = validate(options, nobody);
    return all;
}

TEST(BrokenCandidate, IsExplainedByItsFirstBadOperationAndKeptForDiagnosis) {
    const Scratch scratch;
    ValidateOptions options = tiny(scratch);
    options.base.data.as<SyntheticOptions>().std = 1e-7;  // inputs beyond FP16: NaN in every step, each of them skipped
    const Explained all = explained(options);
    const std::string& reason = all.validation.candidates.at(0).reason;
    ASSERT_EQ(all.validation.verdict, Verdict::fail) << reason;
    EXPECT_EQ(all.runs, std::vector<std::string>{"16-mixed"});
    const fs::path run = scratch / "v/16-mixed";
    for (const std::string& part :
         {std::string("seed 0: it broke at step 1 (the loss is NaN): "),
          std::string(
              "in 1, forward, gave Inf in f16; the precision is to blame; from the beginning FP32 goes well; try "),
          "; more: invar diagnose " + run.string()})
        EXPECT_TRUE(has(reason, part)) << part << " is not in: " << reason;
    EXPECT_EQ(reason.find("; more:"), reason.rfind("; more:")) << reason;
    EXPECT_TRUE(has(all.validation.reason, reason));

    // What is kept fails again when it is replayed.
    ASSERT_TRUE(has_failure(run));
    const Failure failure = load_failure(failure_folder(run));
    EXPECT_EQ(failure.progress.step, 0);
    invar::Setup setup(parse_config(failure.config_yaml(), "failure"));
    EXPECT_TRUE(replay_failure(setup, failure).found);
    EXPECT_EQ(scratch.names(), std::vector<std::string>{"v"});
    EXPECT_FALSE(fs::exists(scratch / "v/16-mixed_again"));

    options.resume = true;
    const Explained again = explained(options);
    EXPECT_EQ(again.validation.reason, all.validation.reason);
    EXPECT_TRUE(again.runs.empty()) << "what was found out is known";
}

TEST(BrokenCandidate, IsExplainedWhereItsLossStaysFinite) {
    const Scratch scratch;
    ValidateOptions options = tiny(scratch);
    options.base.scaler.dynamic = false;  // every step is skipped, and nothing is learned
    options.base.scaler.init_scale = 0x1p100;
    const Explained all = explained(options);
    const std::string& reason = all.validation.candidates.at(0).reason;
    ASSERT_EQ(all.validation.verdict, Verdict::fail) << reason;
    for (const char* part : {"val_accuracy differs by ", "; it broke at step 25 (25 steps in a row were skipped",
                             "backward, gave Inf in f16; the loss scale is to blame", "; more: invar diagnose "})
        EXPECT_TRUE(has(reason, part)) << part << " is not in: " << reason;
    EXPECT_TRUE(has_failure(scratch / "v/16-mixed"));
}

TEST(BrokenCandidate, IsLookedIntoAtTheSeedThatBroke) {
    const Scratch scratch;
    ValidateOptions options = tiny(scratch);
    options.base.data.as<SyntheticOptions>().std = 1e-7;
    options.seeds = 2;
    const Explained all = explained(options);
    EXPECT_EQ(all.runs, std::vector<std::string>{"16-mixed_seed0"});
    EXPECT_TRUE(has(all.validation.reason, "seed 0: it broke at step 1")) << all.validation.reason;
}

// It takes as long as a run: a validation that is stopped in the next search need not look again.
TEST(BrokenCandidate, IsWrittenDownBeforeTheNextOneIsLookedInto) {
    const Scratch scratch;
    ValidateOptions options = tiny(scratch);
    options.base.data.as<SyntheticOptions>().std = 1e-7;
    options.base.trainer.max_steps = 4;
    options.candidates = {"16-mixed", "16-true"};
    std::vector<std::map<std::string, std::string>> known;
    options.explains = [&](const fs::path& run) {
        known.push_back(BegunValidation::read(run.parent_path(), make_task(options.base)->metrics()).broke);
    };
    Observer nobody;
    validate(options, nobody);
    ASSERT_EQ(known.size(), 2u);
    EXPECT_TRUE(known[0].empty());
    ASSERT_TRUE(known[1].contains("16-mixed"));
    EXPECT_TRUE(has(known[1].at("16-mixed"), "it broke at step 1 (the loss is NaN)")) << known[1].at("16-mixed");
}

TEST(BrokenCandidate, IsNotOneThatDiffersAndNothingMore) {
    const Scratch scratch;
    ValidateOptions options = tiny(scratch);
    options.candidates = {"bf16-true"};
    options.metric = "val_loss";
    options.limits = {1e-9, 2e-9};
    const Explained all = explained(options);
    EXPECT_EQ(all.validation.verdict, Verdict::fail) << all.validation.reason;
    EXPECT_TRUE(all.runs.empty());
    EXPECT_FALSE(has(all.validation.reason, "broke")) << all.validation.reason;
}

}  // namespace
}  // namespace invar
