// Remembered validations through the program: what counts for which run, and that every command it names counts.
#include <algorithm>

#include "tests/cli/program.h"

namespace invar::cli {
namespace {

class Validated : public CliTest {
  protected:
    // What stands behind "with: " in a warning, as the shell would split it.
    static Words suggested(const std::string& text) {
        const std::size_t at = text.find("with: invar ");
        EXPECT_NE(at, text.npos) << text;
        Words words(1);
        bool quoted = false;
        for (const char c : text.substr(at + 12)) {
            if (c == '\'')
                quoted = !quoted;
            else if (!quoted && (c == ' ' || c == '\n'))
                words.emplace_back();
            else
                words.back() += c;
        }
        std::erase(words, "");
        return words;
    }
};

TEST_F(Validated, EveryCommandThatIsSuggestedCountsWhenItIsRun) {
    // A margin this wide passes whatever rounding gives; it is no part of what is remembered.
    const Words wide = {"--margin", "0.5"};
    int number = 0;
    // None of them is covered by those before it.
    for (const Words& run : std::vector<Words>{{"--mixed_precision", "bf16", "trainer.limit_train_batches=30"},
                                               {"--mixed_precision", "bf16"},
                                               {"--mixed_precision", "bf16", "trainer.max_epochs=2"},
                                               {"--mixed_precision", "fp16", "trainer.max_steps=25"},
                                               {"--mixed_precision", "fp16", "--amp_opt_level", "O2"},
                                               {"trainer.precision_schedule={20: bf16-mixed}"}}) {
        Words words = learner(run);
        words.insert(words.end(), {"--require-validated", "exp_name=r" + std::to_string(++number)});
        const Result refused = invar(words);
        EXPECT_EQ(refused.code, 2) << run.back() << refused.out;
        Words command = suggested(refused.error());
        command.insert(command.end(), wide.begin(), wide.end());
        const Result validated = invar(command);
        EXPECT_EQ(validated.code, 0) << run.back() << validated.out << validated.err;
        EXPECT_EQ(invar(words).code, 0) << run.back() << invar(words).err;
    }
}

TEST_F(Validated, AShortOneSaysNothingOfALongRun) {
    const Words few = {"--candidates", "bf16", "--margin", "0.5", "trainer.limit_train_batches=30"};
    const Result validated = invar(learner(few, {"validate"}));
    ASSERT_EQ(validated.code, 0) << validated.out << validated.err;
    EXPECT_TRUE(has(validated.out, "counts for runs that are limited as much or more: trainer.limit_train_batches=30"))
        << validated.out;
    const auto code = [&](const Words& more) {
        Words words = learner({"--mixed_precision", "bf16", "--require-validated"});
        words.insert(words.end(), more.begin(), more.end());
        return invar(words).code;
    };
    EXPECT_EQ(code({"trainer.limit_train_batches=30"}), 0);
    EXPECT_EQ(code({"trainer.limit_train_batches=3"}), 0);
    EXPECT_EQ(code({}), 2) << "a whole epoch";
    EXPECT_EQ(code({"trainer.limit_train_batches=31"}), 2);
    EXPECT_EQ(code({"trainer.limit_train_batches=30", "trainer.max_epochs=2"}), 2);
}

TEST_F(Validated, TrainWarnsOfAPrecisionThatWasNeverValidatedUntilItIs) {
    const Result fresh = invar(learner({"--mixed_precision", "bf16"}));
    EXPECT_EQ(fresh.code, 0) << fresh.err;
    EXPECT_TRUE(has(fresh.err, "warning: bf16-mixed for mlp on synthetic was never validated here")) << fresh.err;
    EXPECT_EQ(std::count(fresh.err.begin(), fresh.err.end(), '\n'), 1) << fresh.err;
    EXPECT_EQ(invar(learner({})).err, "") << "FP32 needs none";
    const Result refused = invar(learner({"--mixed_precision", "bf16", "--require-validated", "exp_name=no"}));
    EXPECT_EQ(refused.code, 2);
    EXPECT_TRUE(has(refused.error(), "--require-validated: bf16-mixed")) << refused.err;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "runs/no")) << "nothing was started";

    // The command it names makes it known; a margin this wide passes whatever rounding gives.
    const Result validated =
        invar(learner({"--candidates", "bf16-mixed", "--metric", "val_loss", "--margin", "0.5"}, {"validate"}));
    ASSERT_EQ(validated.code, 0) << validated.out << validated.err;
    const Result known = invar(learner({"--mixed_precision", "bf16", "--require-validated"}));
    EXPECT_EQ(known.code, 0) << known.err;
    EXPECT_EQ(known.err, "");
    EXPECT_EQ(invar(learner({"--mixed_precision", "bf16", "--require-validated", "model.hidden=[9]"})).code, 2)
        << "another model";
    EXPECT_EQ(invar(learner({"--require-validated"})).code, 0) << "FP32";
}

// A schedule whose low precision comes after the last step: there is nothing to validate.
TEST_F(Validated, ARunThatReachesNoLowPrecisionNeedsNoValidation) {
    const Result run = invar(small({"trainer.precision_schedule={100: fp16}", "--require-validated"}));
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_EQ(run.err, "");
    EXPECT_EQ(invar(small({"trainer.precision_schedule={9: fp16}", "--require-validated"})).code, 2);
}

}  // namespace
}  // namespace invar::cli
