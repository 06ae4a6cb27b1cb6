// What `compare` and `validate` have in common: exit codes that scripts can trust, and the table.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/cli/program.h"

namespace invar::cli {
namespace {

class VerdictCommands : public CliTest {
  protected:
    void put(const std::string& name, const std::string& text) const {
        std::filesystem::create_directories((folder_ / name).parent_path());
        std::ofstream(folder_ / name) << text;
    }
    // A run of ours as far as `compare` looks: its log and its summary.
    void put_run(const std::string& name, const std::string& precision, double accuracy) const {
        std::ostringstream log;
        log << "{\"step\":1,\"loss\":0.5}\n{\"step\":1,\"val_accuracy\":" << accuracy << "}\n";
        put(name + "/metrics.jsonl", log.str());
        put(name + "/summary.json", "{\"precision\":\"" + precision +
                                        "\",\"train_seconds\":2,\"samples_per_s\":10,\"skipped\":0,\"steps\":1,"
                                        "\"peak_bytes\":{\"activations\":1000,\"total\":3000}}\n");
    }
};

TEST_F(VerdictCommands, EndWithTwoWhateverKeepsThemFromJudging) {
    put("base.csv", "step,val_acc\n1,0.9\n");
    put("empty.csv", "");
    put("header.csv", "step,val_acc\n");
    put("garbled.jsonl", "{\"step\": 1, \"val_acc\": 0.9}\n{\"step\": \n{\"step\": 3, \"val_acc\": 0.9}\n");
    put("ragged.csv", "step,val_acc\n1,0.9,7\n2,0.9\n");
    for (const char* bad : {"empty.csv", "header.csv", "garbled.jsonl", "ragged.csv", "/proc/self/mem"}) {
        const Result result = invar({"compare", "base.csv", bad});
        EXPECT_EQ(result.code, 2) << bad;
        EXPECT_TRUE(has(result.error(), bad)) << result.err;
    }
    put("other.csv", "step,val_acc\n1,0.901\n");
    EXPECT_EQ(invar({"compare", "base.csv", "other.csv", "--report", "/proc/report"}).code, 2);
    EXPECT_EQ(invar(small({"output_dir=/proc/x", "--json"}, {"validate"})).code, 2);
    put("same.csv", "step,val_acc\n1,0.901\n");
    const std::string full = INVAR_BINARY_DIR "/bin/invar compare " + (folder_ / "base.csv").string() + " " +
                             (folder_ / "same.csv").string() + " > /dev/full 2> /dev/null";
    EXPECT_EQ(WEXITSTATUS(std::system(full.c_str())), 2);
}

TEST_F(VerdictCommands, AnInterruptedValidationSaysWhatThereIsAndEndsLikeTrain) {
    const pid_t child = start(small({"trainer.max_epochs=100000", "--candidates", "bf16"}, {"validate"}));
    const auto metrics = folder_ / "runs/run/fp32/metrics.jsonl";
    for (int i = 0; i < 2000 && slurp(metrics).size() < 2000; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ::kill(child, SIGINT);
    const Result stopped = finish(child);
    EXPECT_EQ(stopped.code, 130) << stopped.err;
    EXPECT_TRUE(has(stopped.err, "validation stopped in 32-true")) << stopped.err;
    EXPECT_TRUE(has(stopped.err, "what there is lies in runs/run; go on with: invar validate ")) << stopped.err;
    EXPECT_TRUE(has(stopped.err, "--candidates bf16 --seeds 1 --resume")) << stopped.err;
    EXPECT_EQ(std::count(stopped.err.begin(), stopped.err.end(), '\n'), 1) << stopped.err;
}

// It skips every step, since its inputs are beyond FP16, and ends as any other run.
TEST_F(VerdictCommands, ACandidateThatBreaksIsExplainedAndKeptForDiagnose) {
    const Result result = invar(learner({"data.std=1e-7", "--candidates", "16-mixed"}, {"validate"}));
    EXPECT_EQ(result.code, 1) << result.out << result.err;
    const std::string told =
        "in 1, forward, gave Inf in f16; the precision is to blame; from the beginning FP32 goes well; try ";
    EXPECT_TRUE(has(result.out, "runs/run/16-mixed broke: it is trained again up to there")) << result.out;
    EXPECT_TRUE(has(result.out, told) && has(result.out, "; more: invar diagnose runs/run/16-mixed")) << result.out;
    for (const char* report : {"report.md", "report.json", "report.html"})
        EXPECT_TRUE(has(slurp(folder_ / "runs/run" / report), told)) << report;
    const Result diagnosed = invar({"diagnose", "runs/run/16-mixed"});
    EXPECT_TRUE(has(diagnosed.out, "first bad operation: ") && has(diagnosed.out, " in 1, forward (f16)"))
        << diagnosed.out << diagnosed.err;
}

TEST_F(VerdictCommands, CandidatesAreOneWordAndLeaveTheNextOnesAlone) {
    for (const char* candidates : {"--candidates=bf16", "--candidates"}) {
        Words words = {"validate", candidates};
        if (words[1] == "--candidates") words.emplace_back("bf16");
        words = small({"exp_name=x", "trainer.max_steps=2", "--json"}, words);
        const Result result = invar(words);
        EXPECT_NE(result.code, 2) << result.err;
    }
    EXPECT_TRUE(std::filesystem::exists(folder_ / "runs/x/report.md"));
    const Result two = invar(small({"--candidates", "bf16,fp17"}, {"validate"}));
    EXPECT_TRUE(has(two.error(), "fp17")) << two.err;
}

TEST_F(VerdictCommands, EndWithFourWhereFp32ItselfLearnsNothing) {
    const Words garbage = {"optimizer=sgd", "optimizer.lr=100", "--candidates", "bf16"};
    const Result result = invar(small(garbage, {"validate"}));
    EXPECT_EQ(result.code, 4) << result.out << result.err;
    EXPECT_TRUE(has(result.out, "INVALID: the baseline gives nothing to compare with")) << result.out;
    for (const char* report : {"report.md", "report.html", "report.json"})
        EXPECT_TRUE(has(slurp(folder_ / "runs/run" / report), "INVALID")) << report;
    EXPECT_FALSE(std::filesystem::exists(folder_ / ".state/invar/validated.jsonl")) << "it is not remembered";
    const Result tuned = invar(small({"optimizer=sgd", "optimizer.lr=100", "--steps", "0"}, {"tune"}));
    EXPECT_EQ(tuned.code, 4) << tuned.out << tuned.err;
}

TEST_F(VerdictCommands, NamesBeginAtTheLeftAndFiguresEndAtTheRight) {
    put_run("a", "32-true", 0.9);
    put_run("b", "16-mixed", 0.9);
    const Result result = invar({"compare", "a", "b"});
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(has(result.out, "\n  32-true    ")) << result.out;
    EXPECT_TRUE(has(result.out, "\n  16-mixed  ")) << result.out;
    EXPECT_TRUE(has(result.out, "           -")) << "a missing difference stands below the others\n" << result.out;
}

TEST_F(VerdictCommands, FitANarrowTerminalByLeavingOutTheLeastImportant) {
    if (!lends_terminals()) GTEST_SKIP() << "no pseudo-terminal to be had";
    put_run("a", "32-true", 0.9);
    put_run("b", "16-mixed", 0.9);
    const Result result = on_terminal({"compare", "a", "b"}, 60);
    ASSERT_EQ(result.code, 0) << result.out;
    EXPECT_TRUE(has(result.out, "verdict") && has(result.out, "difference")) << result.out;
    EXPECT_FALSE(has(result.out, "peak activations")) << result.out;
    EXPECT_TRUE(has(on_terminal({"compare", "a", "b"}, 120).out, "peak activations"));
}

}  // namespace
}  // namespace invar::cli
