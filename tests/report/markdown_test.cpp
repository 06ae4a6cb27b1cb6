// The report's structure and figures, on a validation that is made up here.
#include "invar/report/markdown.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "invar/core/error.h"
#include "invar/core/shell.h"
#include "invar/report/html.h"
#include "invar/report/text.h"
#include "tests/io/scratch.h"
#include "tests/report/made_up.h"

namespace invar {
namespace {

std::string report_of(const Validation& v) {
    return markdown_report(v, made_up_context(v));
}

TEST(Report, HasTheRowsOfTheResultsTable) {
    const std::string text = report_of(made_up());
    EXPECT_EQ(line_with(text, "| Metric "), "| Metric              |    FP32 | 16-mixed |  Difference |");
    EXPECT_EQ(line_with(text, "| val_accuracy  "), "| val_accuracy        |  0.8863 |   0.8850 | -0.15% PASS |");
    EXPECT_EQ(line_with(text, "| Training Time  "), "| Training Time       | 19m 39s |  16m 44s |     -14.84% |");
    EXPECT_EQ(line_with(text, "| Memory: activations"), "| Memory: activations | 4.0 MiB |  2.0 MiB |     -50.00% |");
    EXPECT_EQ(line_with(text, "| Memory Usage"), "| Memory Usage        | 5.0 MiB |  3.0 MiB |     -40.00% |");
    for (const char* row : {"val_loss", "loss", "samples_per_s", "max_grad_norm", "Memory: weights"})
        EXPECT_NE(line_with(text, "| " + std::string(row)), "") << row;
}

TEST(Report, PrintsAShareInPercentAsTheTerminalDoes) {
    Validation v = made_up(0.8850, 1004, 2);
    v.percent = true;
    const std::string text = report_of(v), page = html_report(v, made_up_context(v));
    EXPECT_TRUE(has(line_with(text, "| val_accuracy  "), "|  88.68% |   88.57% |")) << text;
    EXPECT_TRUE(has(line_with(text, "| FP32 baseline "), "88.68%")) << text;
    EXPECT_TRUE(has(text, "| 0    | 88.63% |   88.50% |")) << text;
    EXPECT_TRUE(has(page, "<td>88.68%</td>") && !has(page, "<td>0.88")) << page;
    EXPECT_FALSE(has(text, "| 0.88")) << text;
    EXPECT_TRUE(has(line_with(text, "| val_loss "), "0.5000")) << "a loss is no share";
}

TEST(Report, LinesUpEveryTable) {
    std::istringstream lines(report_of(made_up(0.8850, 1004, 3)));
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
    EXPECT_EQ(tables, 5) << "overview, results, statistics, seed by seed, monitoring";
}

TEST(Report, DecidesEachBoxByAMeasurement) {
    const std::string good = report_of(made_up());
    for (const char* done :
         {"- [x] Run FP32 baseline", "- [x] Run 16-mixed test", "- [x] Verify val_accuracy difference < 1%",
          "- [x] Check for NaN/Inf", "- [x] Validate gradient norms", "- [x] Confirm speedup > 10%",
          "- [x] Confirm memory is down", "- [x] Document validation results"})
        EXPECT_TRUE(has(good, done)) << done;
    EXPECT_TRUE(has(good, "- [ ] Get team approval")) << "nothing measured here can give it";
    EXPECT_TRUE(has(good, "- [ ] Test on full training run (10+ epochs)"));

    Validation bad = made_up(0.85, 1179);
    RunRecord& run = bad.candidates[0].runs[0];
    run.max_grad_norm = 4.5;
    run.memory.back().second = 1 << 30;
    decide(bad);
    const std::string text = report_of(bad);
    EXPECT_TRUE(has(text, "- [ ] Verify val_accuracy difference < 1% (measured 4.10%)"));
    EXPECT_TRUE(has(text, "- [ ] Validate gradient norms are stable (largest 4.5000 against 2.0000 in FP32: 2.25x"));
    EXPECT_TRUE(has(text, "- [ ] Confirm speedup > 10% (measured 1.00x"));
    EXPECT_TRUE(has(text, "- [ ] Confirm memory is down"));
    EXPECT_TRUE(has(text, "**Verdict: FAIL**"));
    run.not_finite = "loss is NaN at step 3";
    decide(bad);
    EXPECT_TRUE(has(report_of(bad), "- [ ] Check for NaN/Inf"));
}

TEST(Report, TellsWhatARunWasSavedFrom) {
    Validation v = made_up();
    EXPECT_FALSE(has(report_of(v), "Recoveries"));
    v.candidates[0].runs[0].recoveries = {"at step 9: the loss is NaN; back to step 6 and on in bf16-mixed"};
    decide(v);
    const std::string text = report_of(v);
    EXPECT_TRUE(has(text, "### Recoveries\n\n- at step 9: the loss is NaN; back to step 6 and on in bf16-mixed\n"));
    EXPECT_TRUE(has(text, "- [ ] Check for NaN/Inf"));
    EXPECT_TRUE(has(text, "**Verdict: MARGINAL**"));
}

TEST(Report, LeavesABoxOpenWhereNothingWasMeasured) {
    Validation v = made_up();
    for (Arm* arm : {&v.baseline, &v.candidates[0]}) {
        RunRecord& run = arm->runs[0];
        run.max_grad_norm = run.samples_per_s = run.train_seconds = kUnknown;
        run.memory.clear();
    }
    decide(v);
    const std::string text = report_of(v);
    for (const char* box : {"Validate gradient norms are stable (not measured", "Confirm speedup > 10% (not measured",
                            "Confirm memory is down (not measured"})
        EXPECT_TRUE(has(text, "- [ ] " + std::string(box))) << box;
    EXPECT_EQ(line_with(text, "| Memory:"), "") << "no row of nothing";
    EXPECT_EQ(line_with(text, "| Memory Usage"), "");
}

TEST(Report, SaysHowLongTheRunsWere) {
    Validation v = made_up();
    EXPECT_TRUE(has(report_of(v), "1 run of 100 steps in 1 epoch"));
    for (Arm* arm : {&v.baseline, &v.candidates[0]}) arm->runs[0].epochs = 0;
    EXPECT_TRUE(has(report_of(v), "1 run of 100 steps, less than one epoch")) << report_of(v);
    EXPECT_TRUE(has(report_of(v), "(these runs have less than one epoch)"));
    EXPECT_FALSE(has(report_of(v), "0 epochs"));
}

TEST(Report, ComparesNothingWithARunThatFailed) {
    Validation v = made_up(0.1);
    v.candidates[0].runs[0].not_finite = "loss is NaN at step 3";
    decide(v);
    const std::string text = report_of(v);
    EXPECT_TRUE(has(line_with(text, "| val_accuracy  "), "not compared: FAIL")) << text;
    EXPECT_TRUE(has(text, "difference < 1% (nothing to compare)"));
    EXPECT_FALSE(has(text, "-88."));
}

TEST(Report, SaysWhetherTimesWereMeasuredInOneGo) {
    Validation v = made_up();
    v.one_go = true;
    EXPECT_TRUE(has(markdown_report(v, made_up_context(v)), "Times were measured on one machine in one go"));
    v.one_go = false;
    EXPECT_TRUE(has(markdown_report(v, made_up_context(v)), "Times were not measured in one go"));
}

TEST(Report, CountsSkippedStepsOfAllRuns) {
    Validation v = made_up(0.8850, 1004, 3);
    for (RunRecord& run : v.candidates[0].runs) run.skipped = 2;
    decide(v);
    EXPECT_TRUE(has(report_of(v), "6 of 300 steps skipped"));
}

TEST(Report, HasNoSignBeforeNothing) {
    const std::string text = report_of(made_up(0.8863, 1004, 2));
    EXPECT_FALSE(has(text, "+0.00%") || has(text, "-0.00%")) << text;
}

TEST(Report, ShowsTheStatisticsOfSeveralSeeds) {
    const std::string text = report_of(made_up(0.8850, 1004, 3));
    EXPECT_TRUE(has(text, "two one-sided t-tests, paired by seed"));
    EXPECT_TRUE(has(text, "90% interval"));
    EXPECT_TRUE(has(text, "is equivalent to the baseline's within 1%")) << text;
    EXPECT_FALSE(has(text, "One run an arm cannot tell"));
    EXPECT_TRUE(has(report_of(made_up()), "One run an arm cannot tell"));
}

TEST(Report, GivesTheExactCommandsBackAndAgain) {
    Validation v = made_up();
    const std::vector<std::string> overrides = {"trainer=fp16_safe", "trainer.precision=16-mixed",
                                                "model.hidden=[64,64]"};
    const auto text = [&] { return markdown_report(v, validation_context(v, "fashion_mnist", overrides)); };
    EXPECT_TRUE(has(
        text(), "\ninvar train fashion_mnist trainer=fp16_safe 'model.hidden=[64,64]' trainer.precision=32-true\n"));
    EXPECT_TRUE(
        has(text(),
            "\ninvar validate fashion_mnist trainer=fp16_safe trainer.precision=16-mixed 'model.hidden=[64,64]' "
            "--candidates 16-mixed --seeds 1 --metric val_accuracy\n"));
    v.options.base.trainer.precision_overrides = {{"fc*", "32-true"}};
    EXPECT_TRUE(has(text(), "trainer.precision=32-true trainer.precision_overrides=null\n"));
}

TEST(Report, NamesTheProgramAndItsPlugInsInTheCommands) {
    Validation v = made_up();
    v.options.base.plugins = {"/opt/my nets/libmine.so",
                              (std::filesystem::current_path() / "build/libnear.so").string()};
    set_program_name("spirals");
    const std::string text = report_of(v), page = html_report(v, made_up_context(v));
    const std::string named = markdown_report(v, validation_context(v, "", {"plugins=[../libmine.so,libnear.so]"}));
    set_program_name("invar");
    EXPECT_TRUE(
        has(text, "\nspirals --plugin '/opt/my nets/libmine.so' --plugin build/libnear.so train fashion_mnist "))
        << text;
    EXPECT_TRUE(has(text, " --plugin build/libnear.so validate fashion_mnist trainer.max_epochs=3 --candidates "));
    EXPECT_TRUE(has(page, "<code>spirals --plugin ")) << page;
    EXPECT_TRUE(has(named, "\nspirals validate 'plugins=[../libmine.so,libnear.so]' ")) << "once is enough";
}

TEST(Report, TellsOfACandidateThatNeverFinished) {
    Validation v = made_up();
    v.candidates[0] = {};
    v.candidates[0].name = "16-mixed";
    v.candidates[0].failure = "training stopped at step 100: all | bad";
    decide(v);
    const std::string text = report_of(v);
    EXPECT_TRUE(has(text, "## 16-mixed: FAIL\n\ntraining stopped at step 100"));
    EXPECT_TRUE(has(text, "- [ ] Run 16-mixed test (no run finished"));
    EXPECT_TRUE(has(line_with(text, "| 16-mixed "), "n/a"));
}

TEST(Report, DoesNotTickTheSpeedOfADisturbedMachineNorOfAFailedRun) {
    Validation v = made_up(0.8850, 100);
    EXPECT_TRUE(has(report_of(v), "- [x] Confirm speedup > 10% (measured 11.79x"));
    v.candidates[0].runs[0].waited_share = 0.25;
    decide(v);
    EXPECT_TRUE(has(report_of(v),
                    "- [ ] Confirm speedup > 10% (not judged: other work on this machine kept the threads "
                    "of 16-mixed waiting for 25%"))
        << report_of(v);
    EXPECT_TRUE(has(report_of(v), "Speed was disturbed and is not judged"));
    EXPECT_TRUE(has(report_of(made_up(0.5, 100)), "- [ ] Confirm speedup > 10% (measured 11.79x"));
}

TEST(Report, SaysInvalidWithItsReason) {
    Validation v = made_up();
    v.baseline.runs[0].not_learned = "its loss did not fall";
    decide(v);
    const std::string text = report_of(v);
    EXPECT_TRUE(has(text,
                    "**Verdict: INVALID**: the baseline gives nothing to compare with: it is not shown to have "
                    "learned: its loss did not fall."))
        << text;
    EXPECT_TRUE(has(text, "## 16-mixed: INVALID"));
    EXPECT_TRUE(has(text, "- [ ] Verify val_accuracy difference"));
    EXPECT_TRUE(has(text, "- [ ] Run FP32 baseline"));
    v.candidates[0] = {};  // as where the baseline was found out before it
    v.candidates[0].name = "16-mixed";
    decide(v);
    const std::string untrained = report_of(v);
    EXPECT_TRUE(has(untrained, "gradient norms are stable (not measured: no run of it finished)")) << untrained;
    EXPECT_TRUE(has(untrained, "speedup > 10% (not measured: no run of it finished)")) << untrained;
}

TEST(Report, RepeatsWhatShouldBeKnownBeforeItIsTrusted) {
    Validation v = made_up();
    v.warnings = {"a.csv ends in the middle of line 3, which is left out"};
    EXPECT_TRUE(has(report_of(v), "Warning: a.csv ends in the middle of line 3, which is left out."));
}

TEST(ReportContext, NamesTheDeviceThatTrainedBesideTheHost) {
    Validation v = made_up();
    v.device = "cuda:0: NVIDIA H200, 132 multiprocessors";
    const ReportContext c = made_up_context(v);
    EXPECT_EQ(c.facts.at(1), (std::pair<std::string, std::string>("Device", v.device)));
    EXPECT_EQ(c.facts.at(2).first, "Host");
    EXPECT_TRUE(has(c.facts.at(2).second, "thread"));
}

TEST(ReportContext, NamesTheMachineAndTheMoment) {
    const ReportContext c = made_up_context(made_up());
    EXPECT_EQ(c.facts.at(0).first, "Date");
    EXPECT_TRUE(has(c.facts.at(0).second, "UTC"));
    EXPECT_TRUE(has(c.facts.at(1).second, "thread"));
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

TEST(ReportText, KeepsBarsAndLinesInsideTheirCell) {
    const std::string table = MarkdownTable({"a", "b"}).row({"x|y", "1\n2"}).str();
    EXPECT_EQ(table, "| a    |   b |\n|------|----:|\n| x\\|y | 1 2 |\n");
    EXPECT_THROW(MarkdownTable({"a", "b"}).row({"x"}), Error);
}

}  // namespace
}  // namespace invar
