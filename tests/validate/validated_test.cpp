// What is remembered of validations: by what a configuration is known, and a file that others write and damage.
#include "invar/validate/validated.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "invar/core/error.h"
#include "invar/io/file.h"
#include "tests/core/expect_error.h"
#include "tests/io/scratch.h"

namespace invar {
namespace {

namespace fs = std::filesystem;

Config config_with(const std::string& yaml) {
    return parse_config(yaml, "test");
}

Validation validation_of(const Config& base, Verdict verdict, const std::string& precision = "16-mixed") {
    Validation v;
    v.options.base = base;
    v.metric = "val_accuracy";
    v.candidates.emplace_back().name = precision;
    v.candidates[0].verdict = verdict;
    return v;
}

TEST(ValidationKey, KnowsAConfigurationByModelDataAndPrecision) {
    const std::string key = validation_key(config_with("trainer: {precision: 16-mixed}"));
    EXPECT_EQ(key.size(), 16u);
    for (const char* same : {"trainer: {precision: fp16}", "trainer: {precision: 16-mixed, max_epochs: 7}\nseed: 3",
                             "trainer: {precision: 16-mixed}\ndata: {root: elsewhere, num_workers: 0}",
                             "trainer: {precision: 16-mixed}\noptimizer: {lr: 0.5}\nexp_name: other"})
        EXPECT_EQ(validation_key(config_with(same)), key) << same;
    for (const char* other :
         {"trainer: {precision: bf16-mixed}", "trainer: {precision: 16-mixed, amp_level: O2}",
          "trainer: {precision: 16-mixed}\nmodel: {name: mlp}", "trainer: {precision: 16-mixed}\ndata: {name: mnist}",
          "trainer: {precision: 16-mixed, gradient_clip_val: 5.0}",
          "trainer: {precision: 16-mixed}\nscaler: {init_scale: 8}"})
        EXPECT_NE(validation_key(config_with(other)), key) << other;
}

TEST(ValidatedFile, FollowsTheStateFolder) {
    const char* old = std::getenv("XDG_STATE_HOME");
    const std::string before = old != nullptr ? old : "";
    ::setenv("XDG_STATE_HOME", "/somewhere", 1);
    EXPECT_EQ(validated_file(), "/somewhere/invar/validated.jsonl");
    ::setenv("XDG_STATE_HOME", "relative", 1);
    EXPECT_NE(validated_file(), "relative/invar/validated.jsonl");
    old != nullptr ? ::setenv("XDG_STATE_HOME", before.c_str(), 1) : ::unsetenv("XDG_STATE_HOME");
}

TEST(Remember, IsRecalledWithTheLastVerdict) {
    const Scratch scratch;
    const fs::path file = scratch / "state/invar/validated.jsonl";
    const Config base;
    Config fp16 = base, bf16 = base;
    fp16.trainer.precision = "fp16", bf16.trainer.precision = "bf16";
    EXPECT_FALSE(recall(file, fp16).has_value());
    remember(file, validation_of(base, Verdict::fail), "out/report.html");
    ASSERT_TRUE(recall(file, fp16).has_value());
    EXPECT_EQ(recall(file, fp16)->verdict, Verdict::fail);
    EXPECT_TRUE(has(recall(file, fp16)->report, "/out/report.html"));
    EXPECT_FALSE(recall(file, bf16).has_value());
    remember(file, validation_of(base, Verdict::pass), "out/report.html");
    EXPECT_EQ(recall(file, fp16)->verdict, Verdict::pass);
    Validation failed = validation_of(base, Verdict::fail);
    failed.verdict = Verdict::invalid;
    EXPECT_FALSE(remember(file, failed, "x"));
    EXPECT_EQ(recall(file, fp16)->verdict, Verdict::pass) << "a baseline that fails says nothing of the candidate";
}

TEST(Remember, WarnsUnlessAllIsWell) {
    const Scratch scratch;
    const fs::path file = scratch / "validated.jsonl";
    Config fp16;
    fp16.trainer.precision = "16-mixed";
    EXPECT_EQ(validation_warning(file, Config{}, "x"), "") << "FP32 needs none";
    EXPECT_EQ(validation_warning(file, fp16, "invar validate x"),
              "16-mixed for convnet on fashion_mnist was never validated here for runs of this length (1 epoch); find "
              "out first with: invar validate x");
    remember(file, validation_of({}, Verdict::marginal), "r.html");
    EXPECT_TRUE(has(validation_warning(file, fp16, "x"), "was validated as MARGINAL on 20"));
    remember(file, validation_of({}, Verdict::pass), "r.html");
    EXPECT_EQ(validation_warning(file, fp16, "x"), "");
    EXPECT_NE(validation_warning({}, fp16, "x"), "") << "without a place to remember in";
    remember({}, validation_of({}, Verdict::pass), "r.html");
}

TEST(Remember, AsksForEveryWayIntoALowPrecision) {
    const Scratch scratch;
    const auto on_made_up_data = [](const std::string& yaml) {
        return config_with(yaml + "\ndata: {name: synthetic}");
    };
    for (const char* low :
         {"trainer: {precision_schedule: {5: 16-mixed}}", "trainer: {precision_overrides: {'*': bf16-mixed}}",
          "trainer: {precision_schedule: {0: bf16-mixed, 5: 32-true}}"})
        EXPECT_NE(validation_warning(scratch / "none", on_made_up_data(low), "x"), "") << low;
    for (const char* full : {"trainer: {precision_schedule: {5: 32-true}}", "trainer: {precision: fp16, amp_level: O0}",
                             "trainer: {precision: fp16, precision_overrides: {'*': 32-true}}"})
        EXPECT_EQ(validation_warning(scratch / "none", on_made_up_data(full), "x"), "") << full;
}

TEST(Remember, CountsForRunsThatAreNoLonger) {
    const auto counts = [](const std::string& validated, const std::string& run) {
        const Scratch scratch;
        const fs::path file = scratch / "validated.jsonl";
        EXPECT_TRUE(
            remember(file, validation_of(config_with("trainer: {" + validated + "}"), Verdict::pass), "r.html"));
        return recall(file, config_with("trainer: {precision: 16-mixed, " + run + "}")).has_value();
    };
    EXPECT_TRUE(counts("max_epochs: 3", "max_epochs: 3"));
    EXPECT_TRUE(counts("max_epochs: 3", "max_epochs: 2, limit_train_batches: 5, max_steps: 7"));
    EXPECT_FALSE(counts("max_epochs: 1", "max_epochs: 2"));
    EXPECT_FALSE(counts("limit_train_batches: 3", "max_epochs: 1"));
    EXPECT_FALSE(counts("limit_train_batches: 3", "limit_train_batches: 300"));
    EXPECT_FALSE(counts("limit_train_batches: 3", "limit_train_batches: 0.5")) << "nobody knows how many those are";
    EXPECT_TRUE(counts("limit_train_batches: 300", "limit_train_batches: 300"));
    EXPECT_TRUE(counts("limit_train_batches: 0.5", "limit_train_batches: 0.25"));
    EXPECT_FALSE(counts("max_steps: 3", "max_epochs: 1"));
    EXPECT_FALSE(counts("max_steps: 3", "max_steps: 4"));
    EXPECT_TRUE(counts("max_steps: 4", "max_steps: 3"));
    EXPECT_FALSE(counts("limit_val_batches: 1", "max_epochs: 1"));
    EXPECT_TRUE(counts("max_epochs: 1", "limit_val_batches: 1"));
}

// A file cannot ask for it, a program can: no step at all is a limit too.
TEST(Remember, CountsForARunOfNoSteps) {
    const Scratch scratch;
    const fs::path file = scratch / "validated.jsonl";
    remember(file, validation_of(config_with("trainer: {max_steps: 3}"), Verdict::pass), "r.html");
    Config none = config_with("trainer: {precision: 16-mixed}");
    EXPECT_FALSE(recall(file, none)) << "as many steps as there are";
    none.trainer.max_steps = 0;
    EXPECT_TRUE(recall(file, none));
}

TEST(Remember, ForgetsWhatDoesNotSayHowLongItWas) {
    const Scratch scratch;
    const Config fp16 = config_with("trainer: {precision: 16-mixed}");
    put(scratch / "old.jsonl", "{\"key\": \"" + validation_key(fp16) + "\", \"verdict\": \"PASS\"}\n");
    EXPECT_FALSE(recall(scratch / "old.jsonl", fp16).has_value());
}

TEST(ValidatingWords, NameWhatCountsForTheRun) {
    using Words = std::vector<std::string>;
    EXPECT_EQ(validating_words(config_with("trainer: {precision: fp16}")), (Words{"--candidates", "16-mixed"}));
    EXPECT_EQ(validating_words(config_with("trainer: {precision: fp16, amp_level: O2}")),
              (Words{"--candidates", "16-mixed"}));
    EXPECT_EQ(validating_words(config_with("trainer: {precision: bf16, limit_val_batches: 0.0}")),
              (Words{"trainer.limit_val_batches=1.0", "--candidates", "bf16-mixed"}));
    EXPECT_EQ(validating_words(config_with("trainer: {precision_schedule: {5: 16-mixed}}")),
              (Words{"--candidates", "configured"}));
    Config mine = config_with("trainer: {precision: fp16}");
    mine.plugins = {"/opt/libmine.so"};
    EXPECT_EQ(validating_words(mine), (Words{"--candidates", "16-mixed", "--plugin", "/opt/libmine.so"}));
}

TEST(Remember, SurvivesHostileContent) {
    const Scratch scratch;
    const fs::path file = scratch / "validated.jsonl";
    Config fp16;
    fp16.trainer.precision = "16-mixed";
    const std::string key = validation_key(fp16);
    std::string junk(100, '\0');
    junk += "\n{\"key\": \"" + key + "\"}\n{\"key\": \"" + key + "\", \"verdict\": 7}\n[\"" + key + "\"]\n";
    junk += std::string(50'000, '[') + key + "\n{\"key\": {\"a\": \"" + key + "\"}, \"verdict\": \"PASS\"}\n";
    put(file, junk + "{\"key\": \"" + key + "\", \"verd");  // torn by a crash
    EXPECT_FALSE(recall(file, fp16).has_value());
    remember(file, validation_of({}, Verdict::pass), "r.html");
    ASSERT_TRUE(recall(file, fp16).has_value()) << "the torn line spoils itself alone";
    put(file, "{\"key\": \"" + key +
                  "\", \"verdict\": \"FAIL\", \"date\": \"\\u001b[31m\\n\", \"report\": 5, \"max_epochs\": 9, "
                  "\"max_steps\": -1, \"limit_train_batches\": \"1.0\", \"limit_val_batches\": \"1.0\"}\n");
    const std::string warning = validation_warning(file, fp16, "x");
    EXPECT_EQ(warning.find_first_of("\x1b\n"), warning.npos) << "nothing of the file reaches the terminal unseen";
    fs::remove(file);
    fs::create_directories(file);
    EXPECT_FALSE(recall(file, fp16).has_value());
    EXPECT_THROW(remember(file, validation_of({}, Verdict::pass), "r"), IoError);
}

TEST(Remember, KeepsTheLinesOfWritersAtTheSameTime) {
    const Scratch scratch;
    const fs::path file = scratch / "validated.jsonl";
    constexpr int kWriters = 4, kLines = 25;
    std::vector<pid_t> children;
    for (int w = 0; w < kWriters; ++w) {
        const pid_t child = ::fork();
        if (child == 0) {
            for (int i = 0; i < kLines; ++i) remember(file, validation_of({}, Verdict::pass), "r.html");
            ::_exit(0);
        }
        children.push_back(child);
    }
    for (const pid_t child : children) {
        int status = 0;
        ::waitpid(child, &status, 0);
        EXPECT_EQ(status, 0);
    }
    const std::string text = read_file(file);
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), kWriters * kLines);
    for (std::size_t begin = 0; begin < text.size(); begin = text.find('\n', begin) + 1)
        EXPECT_EQ(text.substr(begin, 8), "{\"key\":\"");
}

}  // namespace
}  // namespace invar
