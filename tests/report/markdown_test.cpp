// The report's structure and figures, on a validation that is made up here.
#include "invar/report/markdown.h"

#include <gtest/gtest.h>

#include <sstream>

#include "invar/core/error.h"
#include "invar/report/text.h"
#include "tests/io/scratch.h"

namespace invar {
namespace {

Arm arm_of(const std::string& precision, double accuracy, double seconds, std::int64_t activations) {
    RunSummary run;
    run.folder = "runs/demo/" + precision;
    run.precision = precision;
    run.status = "finished";
    run.steps = 100, run.epochs = 1;
    run.val_accuracy = accuracy;
    run.val_loss = 0.5, run.train_loss = 0.25;
    run.train_seconds = seconds;
    run.samples_per_s = 1e4 / seconds;
    run.max_grad_norm = 2.0;
    run.memory.peak[static_cast<int>(Purpose::activations)] = activations;
    run.memory.peak_total = activations + (1 << 20);
    Arm arm;
    arm.precision = precision;
    arm.runs = {run};
    sum_up(arm, "val_accuracy");
    return arm;
}

// The first seed's own example: 0.8863 against 0.8850, 19m 39s against 16m 44s.
Validation demo(double accuracy = 0.8850, double seconds = 1004) {
    Validation v;
    v.folder = "runs/demo";
    v.options.candidates = {"16-mixed"};
    v.options.base.exp_name = "demo";
    v.baseline = arm_of("32-true", 0.8863, 1179, 4 << 20);
    v.candidates = {arm_of("16-mixed", accuracy, seconds, 2 << 20)};
    compare(v.candidates[0], v.baseline, v.options);
    conclude(v);
    return v;
}

ReportContext context() {
    return {"fashion_mnist", {"trainer.max_epochs=3"}, "a CPU, 2 threads", "2025-10-14 12:00 UTC"};
}

std::string line_with(const std::string& text, const std::string& part) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
        if (has(line, part)) return line;
    return "";
}

TEST(Report, HasTheRowsOfTheResultsTable) {
    const std::string text = validation_report(demo(), context());
    EXPECT_EQ(line_with(text, "| Metric "), "| Metric                |    FP32 | 16-mixed |  Difference |");
    EXPECT_EQ(line_with(text, "| val_accuracy  "), "| val_accuracy          |  0.8863 |   0.8850 | -0.15% PASS |");
    EXPECT_EQ(line_with(text, "| Training Time  "), "| Training Time         | 19m 39s |  16m 44s |     -14.84% |");
    EXPECT_EQ(line_with(text, "| Memory: activations"), "| Memory: activations   | 4.0 MiB |  2.0 MiB |     -50.00% |");
    EXPECT_EQ(line_with(text, "| Memory: total"), "| Memory: total         | 5.0 MiB |  3.0 MiB |     -40.00% |");
    for (const char* row : {"val_loss", "Training loss", "Samples/s", "Largest gradient norm", "Memory: weights",
                            "Memory: masters", "Memory: gradients", "Memory: optimizer"})
        EXPECT_NE(line_with(text, "| " + std::string(row)), "") << row;
}

TEST(Report, LinesUpEveryTable) {
    Validation v = demo();
    v.options.seeds = 2;
    for (Arm* arm : {&v.baseline, &v.candidates[0]}) arm->runs.push_back(arm->runs[0]);
    std::istringstream lines(validation_report(v, context()));
    std::size_t width = 0, bars = 0;
    int tables = 0;
    for (std::string line; std::getline(lines, line);) {
        if (line.empty() || line[0] != '|') {
            width = 0;
            continue;
        }
        const auto count = std::size_t(std::count(line.begin(), line.end(), '|'));
        if (width == 0) width = line.size(), bars = count, ++tables;
        EXPECT_EQ(line.size(), width) << line;
        EXPECT_EQ(count, bars) << line;
    }
    EXPECT_EQ(tables, 3) << "overview, results, seed by seed";
}

TEST(Report, DecidesEachBoxByAMeasurement) {
    const std::string good = validation_report(demo(), context());
    for (const char* done :
         {"- [x] Run FP32 baseline", "- [x] Run 16-mixed test", "- [x] Verify val_accuracy difference < 1%",
          "- [x] Check for NaN/Inf", "- [x] Validate gradient norms", "- [x] Confirm speedup > 10%",
          "- [x] Confirm memory is down", "- [x] Document validation results"})
        EXPECT_TRUE(has(good, done)) << done;
    EXPECT_TRUE(has(good, "- [ ] Get team approval")) << "nothing measured here can give it";
    EXPECT_TRUE(has(good, "- [ ] Test on full training run (10+ epochs)"));

    Validation bad = demo(0.85, 1179);
    Arm& arm = bad.candidates[0];
    arm.runs[0].max_grad_norm = 4.5;
    arm.runs[0].all_finite = false;
    arm.runs[0].memory.peak_total = 1 << 30;
    sum_up(arm, "val_accuracy");
    compare(arm, bad.baseline, bad.options);
    conclude(bad);
    const std::string text = validation_report(bad, context());
    EXPECT_TRUE(has(text, "- [ ] Verify val_accuracy difference < 1% (measured 4.10%)"));
    EXPECT_TRUE(has(text, "- [ ] Check for NaN/Inf"));
    EXPECT_TRUE(has(text, "- [ ] Validate gradient norms are stable (largest 4.5000 against 2.0000 in FP32: 2.25x"));
    EXPECT_TRUE(has(text, "- [ ] Confirm speedup > 10% (measured 1.00x"));
    EXPECT_TRUE(has(text, "- [ ] Confirm memory is down"));
    EXPECT_TRUE(has(text, "**Verdict: FAIL**"));
}

TEST(Report, SaysWhatOneRunCannotShow) {
    EXPECT_TRUE(has(validation_report(demo(), context()), "One run a precision cannot tell"));
    Validation many = demo();
    many.options.seeds = 3;
    EXPECT_FALSE(has(validation_report(many, context()), "One run a precision cannot tell"));
}

TEST(Report, GivesTheExactCommandsBackAndAgain) {
    Validation v = demo();
    ReportContext c = context();
    c.overrides = {"trainer=fp16_safe", "trainer.precision=16-mixed", "model.hidden=[64,64]"};
    std::string text = validation_report(v, c);
    EXPECT_TRUE(
        has(text, "\ninvar train fashion_mnist trainer=fp16_safe 'model.hidden=[64,64]' trainer.precision=32-true\n"));
    EXPECT_TRUE(
        has(text,
            "\ninvar validate fashion_mnist trainer=fp16_safe trainer.precision=16-mixed 'model.hidden=[64,64]' "
            "--candidates 16-mixed --seeds 1 --metric val_accuracy\n"));
    v.options.base.trainer.precision_overrides = {{"fc*", "32-true"}};
    EXPECT_TRUE(has(validation_report(v, c), "trainer.precision=32-true trainer.precision_overrides=null\n"));
}

TEST(Report, TellsOfACandidateThatNeverFinished) {
    Validation v = demo();
    v.candidates[0].runs.clear();
    v.candidates[0].failure = "training stopped at step 100: all | bad";
    compare(v.candidates[0], v.baseline, v.options);
    conclude(v);
    const std::string text = validation_report(v, context());
    EXPECT_TRUE(has(text, "## 16-mixed: FAIL\n\ntraining stopped at step 100"));
    EXPECT_TRUE(has(text, "- [ ] Run 16-mixed test (no run finished"));
    EXPECT_TRUE(has(line_with(text, "| 16-mixed "), "n/a"));
}

TEST(Report, IsWrittenIntoTheFolderOfTheValidation) {
    const Scratch scratch;
    Validation v = demo();
    v.folder = scratch.path();
    const auto path = write_report(v, context());
    EXPECT_EQ(path, scratch / "report.md");
    EXPECT_EQ(scratch.names(), std::vector<std::string>{"report.md"}) << "no temporary is left";
    v.folder = scratch / "missing";
    EXPECT_THROW(write_report(v, context()), IoError);
}

TEST(ReportContext, NamesTheMachineAndTheMoment) {
    const ReportContext c = report_context("x", {});
    EXPECT_TRUE(has(c.machine, "thread"));
    EXPECT_TRUE(has(c.date, "UTC"));
}

TEST(ReportText, WritesSizesTimesAndChanges) {
    EXPECT_EQ(human_bytes(0), "0 B");
    EXPECT_EQ(human_bytes(1023), "1023 B");
    EXPECT_EQ(human_bytes(1536), "1.5 KiB");
    EXPECT_EQ(human_bytes(std::int64_t(5) << 30), "5.0 GiB");
    EXPECT_EQ(report_duration(4.214), "4.21 s");
    EXPECT_EQ(report_duration(59.999), "60.00 s");
    EXPECT_EQ(report_duration(1179), "19m 39s");
    EXPECT_EQ(report_duration(7384), "2h 03m 04s");
    EXPECT_EQ(report_change(4.2, 2.9), "-30.95%");
    EXPECT_EQ(report_change(2, 2), "0.00%");
    EXPECT_EQ(report_change(2, 1.99999), "0.00%") << "not -0.00%";
    EXPECT_EQ(report_change(0, 1), "n/a");
    EXPECT_EQ(report_change(-2, -1), "+50.00%");
}

TEST(ReportText, QuotesShellWordsOnlyWhereNeeded) {
    EXPECT_EQ(shell_word("trainer.precision=32-true"), "trainer.precision=32-true");
    EXPECT_EQ(shell_word("a b"), "'a b'");
    EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
    EXPECT_EQ(shell_word(""), "''");
    EXPECT_EQ(shell_word("$(rm -rf x)"), "'$(rm -rf x)'");
}

TEST(ReportText, KeepsBarsAndLinesInsideTheirCell) {
    const std::string table = MarkdownTable({"a", "b"}).row({"x|y", "1\n2"}).str();
    EXPECT_EQ(table, "| a    |   b |\n|------|----:|\n| x\\|y | 1 2 |\n");
    EXPECT_THROW(MarkdownTable({"a", "b"}).row({"x"}), Error);
}

}  // namespace
}  // namespace invar
