// Finding runs on disk, what is read from them, and the verdict on arms of them.
#include "invar/validate/comparison.h"

#include <gtest/gtest.h>

#include <cmath>

#include "invar/core/error.h"
#include "invar/core/shell.h"
#include "invar/io/file.h"
#include "invar/validate/comparable.h"
#include "invar/validate/run_files.h"
#include "tests/core/expect_error.h"
#include "tests/io/scratch.h"

namespace invar {
namespace {

namespace fs = std::filesystem;

void put_in(const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    put(path, text);
}

std::string csv(double accuracy) {
    return fmt::format("step,loss,val_acc\n1,0.9,\n2,0.5,\n2,,{}\n", accuracy);
}

std::vector<std::string> names_of(const std::vector<fs::path>& paths, const fs::path& root) {
    std::vector<std::string> names;
    for (const fs::path& path : paths) names.push_back(fs::relative(path, root).string());
    return names;
}
using Names = std::vector<std::string>;

RunRecord run_with(double metric, std::optional<std::int64_t> seed = {}) {
    RunRecord run;
    run.name = "run";
    run.metric = metric;
    run.seed = seed;
    run.metric_curve = {{1}, {metric}};
    return run;
}
Comparison comparison_of(const std::vector<double>& baseline, const std::vector<double>& candidate) {
    Comparison c;
    c.metric = "val_acc";
    for (std::size_t i = 0; i < baseline.size(); ++i) c.baseline.runs.push_back(run_with(baseline[i], std::int64_t(i)));
    c.candidates.emplace_back().name = "16-mixed";
    for (std::size_t i = 0; i < candidate.size(); ++i)
        c.candidates[0].runs.push_back(run_with(candidate[i], std::int64_t(i)));
    return c;
}

TEST(FindRuns, TakesFilesFoldersAndFoldersOfRunsInTheOrderOfTheirNumbers) {
    const Scratch scratch;
    for (const char* version : {"version_10", "version_2", "version_1"})
        put_in(scratch / "logs/lightning_logs" / version / "metrics.csv", csv(0.9));
    put_in(scratch / "logs/.hidden/metrics.csv", csv(0.1));
    put_in(scratch / "files/b.csv", csv(0.9));
    put_in(scratch / "files/a.jsonl", "{\"val_acc\": 0.9}\n");
    put_in(scratch / "files/notes.txt", "no run");
    put_in(scratch / "ours/metrics.jsonl", "{\"val_acc\": 0.9}\n");
    put_in(scratch / "ours/checkpoints/other.csv", csv(0.1));
    EXPECT_EQ(names_of(find_runs(scratch / "logs"), scratch / "logs/lightning_logs"),
              (Names{"version_1", "version_2", "version_10"}));
    EXPECT_EQ(names_of(find_runs(scratch / "files"), scratch / "files"), (Names{"a.jsonl", "b.csv"}));
    EXPECT_EQ(names_of(find_runs(scratch / "ours"), scratch.path()), (Names{"ours"})) << "not what lies below it";
    EXPECT_EQ(find_runs(scratch / "files/b.csv").size(), 1u);
    fs::create_directories(scratch / "empty");
    EXPECT_ERROR(find_runs(scratch / "empty"), UsageError, "no run in it");
    EXPECT_ERROR(find_runs(scratch / "missing"), UsageError, "no such file or folder");
}

std::string state(int steps, int max_steps) {
    std::string history;
    for (int step = 1; step <= steps; ++step)
        history += fmt::format("{}{{\"step\": {}, \"loss\": {}, \"eval_loss\": {}}}", step > 1 ? "," : "", step,
                               1.0 / step, 1.1 / step);
    return fmt::format("{{\"global_step\": {}, \"max_steps\": {}, \"log_history\": [{}]}}\n", steps, max_steps,
                       history);
}

TEST(FindRuns, TakesTheCheckpointsOfOneRunForOneRun) {
    const Scratch scratch;
    for (const int step : {2, 4, 10})
        for (const char* run : {"a", "b"})
            put_in(scratch / run / fmt::format("checkpoint-{}/trainer_state.json", step), state(step, 10));
    EXPECT_EQ(names_of(find_runs(scratch / "a"), scratch.path()), (Names{"a/checkpoint-10"}));
    EXPECT_EQ(names_of(find_runs(scratch.path()), scratch.path()), (Names{"a/checkpoint-10", "b/checkpoint-10"}));
    const std::vector<std::string> named = {(scratch / "a/checkpoint-2").string(),
                                            (scratch / "a/checkpoint-4/trainer_state.json").string()};
    EXPECT_EQ(names_of(find_runs(named), scratch.path()), (Names{"a/checkpoint-4/trainer_state.json"}));
}

TEST(ReadRun, SaysWhatIsNoWholeRun) {
    const Scratch scratch;
    put_in(scratch / "hf/trainer_state.json", state(4, 10));
    EXPECT_EQ(read_run(scratch / "hf").unfinished, "it is at step 4 of 10");
    put_in(scratch / "hf/trainer_state.json", state(10, 10));
    EXPECT_EQ(read_run(scratch / "hf").unfinished, "");
    put_in(scratch / "ours/metrics.jsonl", "{\"step\":1,\"loss\":0.9}\n");
    put_in(scratch / "ours/config.yaml", "seed: 3\n");
    fs::create_directories(scratch / "ours/checkpoints");
    EXPECT_TRUE(has(read_run(scratch / "ours").unfinished, "no summary.json"));
    put_in(scratch / "ours/summary.json", "{\"status\":\"interrupted\",\"steps\":1}\n");
    EXPECT_EQ(read_run(scratch / "ours").unfinished, "its summary.json says interrupted");
    put_in(scratch / "ours/summary.json", "{\"status\":\"finished\",\"steps\":1}\n");
    EXPECT_EQ(read_run(scratch / "ours").unfinished, "");
}

TEST(OneRun, IsToldFromTwoByWhatWasLogged) {
    const Scratch scratch;
    const auto run = [&](const std::string& name, const std::string& text) {
        put_in(scratch / name, text);
        return read_run(scratch / name);
    };
    const FoundRun a = run("a.csv", "step,loss,val_acc\n1,0.9,0.5\n2,0.7,0.6\n3,0.6,0.7\n");
    fs::create_symlink(scratch / "a.csv", scratch / "link.csv");
    fs::create_hard_link(scratch / "a.csv", scratch / "hard.csv");
    EXPECT_TRUE(has(why_one_run(a, read_run(scratch / "a.csv")), "is given twice"));
    EXPECT_TRUE(has(why_one_run(a, read_run(scratch / "link.csv")), "hold the same log"));
    EXPECT_TRUE(has(why_one_run(a, read_run(scratch / "hard.csv")), "hold the same log"));
    EXPECT_TRUE(has(why_one_run(a, run("copy.csv", read_file(scratch / "a.csv"))), "hold the same log"));
    const FoundRun part = run("part.csv", "step,loss,val_acc\n1,0.9,0.5\n2,0.7,0.6\n");
    EXPECT_TRUE(has(why_one_run(a, part), "part.csv holds the beginning of"));
    EXPECT_EQ(why_one_run(a, part), why_one_run(part, a));
    EXPECT_EQ(why_one_run(a, run("b.csv", "step,loss,val_acc\n1,0.9,0.5\n2,0.7,0.61\n3,0.6,0.7\n")), "");
    EXPECT_EQ(why_one_run(run("c.csv", "step,acc\n1,0.5\n"), run("d.csv", "step,acc\n1,0.5\n2,0.6\n")), "")
        << "one value may agree by accident";
}

TEST(Unequal, AreRunsThatEndElsewhere) {
    Comparison c = comparison_of({0.9}, {0.9});
    EXPECT_EQ(why_unequal(c), "");
    c.baseline.runs[0].metric_curve.x = {1000};
    c.candidates[0].runs[0].metric_curve.x = {995};
    EXPECT_EQ(why_unequal(c), "") << "the last logged step need not be the last step";
    c.candidates[0].runs[0].metric_curve.x = {990};
    EXPECT_EQ(why_unequal(c), "") << "by a hundredth they may lie apart";
    c.candidates[0].runs[0].metric_curve.x = {989};
    EXPECT_NE(why_unequal(c), "");
    c.candidates[0].runs[0].metric_curve.x = {500};
    EXPECT_TRUE(has(why_unequal(c), "is at 500, that of run at 1000")) << why_unequal(c);
    c.candidates[0].runs[0].not_finite = "loss is NaN at step 400";
    EXPECT_EQ(why_unequal(c), "") << "it fails for that, not for its length";
}

TEST(ReadRun, TakesPrecisionSeedAndFiguresFromTheSummary) {
    const Scratch scratch;
    put_in(scratch / "r/metrics.jsonl",
           "{\"step\":1,\"loss\":0.9,\"scale\":65536,\"grad_norm\":3,\"samples_per_s\":10}\n"
           "{\"step\":2,\"loss\":0.5,\"scale\":32768,\"grad_norm\":\"inf\",\"samples_per_s\":20}\n"
           "{\"step\":2,\"val_accuracy\":0.8,\"val_loss\":0.4}\n");
    put_in(scratch / "r/summary.json",
           "{\"precision\":\"16-mixed\",\"seed\":7,\"steps\":2,\"epochs\":1,\"skipped_steps\":1,\"train_seconds\":3.5,"
           "\"samples_per_s\":18.0,\"all_finite\":true,\"peak_bytes\":{\"weights\":100,\"total\":300}}\n");
    put_in(scratch / "r/config.yaml", "seed: 3\n");
    const RunRecord run = record_of(read_run(scratch / "r"), "val_accuracy", Better::higher, Take::last);
    EXPECT_EQ(run.precision, "16-mixed");
    EXPECT_EQ(run.seed, 7);
    EXPECT_EQ(run.metric, 0.8);
    EXPECT_EQ(run.val_loss, 0.4);
    EXPECT_EQ(run.train_loss, 0.5);
    EXPECT_EQ(run.train_seconds, 3.5);
    EXPECT_EQ(run.samples_per_s, 18.0) << "of the whole run, not the mean of the pieces";
    EXPECT_EQ(run.max_grad_norm, 3) << "of those that are finite";
    EXPECT_EQ(run.final_scale, 32768);
    EXPECT_EQ(run.skipped, 1);
    EXPECT_EQ(run.memory_of("weights"), 100);
    EXPECT_EQ(run.memory_of("total"), 300);
    EXPECT_TRUE(std::isnan(run.memory_of("activations")));
    EXPECT_EQ(run.loss.y.size(), 2u);
    EXPECT_EQ(run.not_finite, "");
    EXPECT_EQ(read_run(scratch / "r").config, scratch / "r/config.yaml");
}

TEST(ReadRun, FindsTheSeedWhereLightningAndPeoplePutIt) {
    const Scratch scratch;
    put_in(scratch / "v/metrics.csv", csv(0.9));
    EXPECT_EQ(read_run(scratch / "v").seed, std::nullopt);
    put_in(scratch / "v/hparams.yaml", "lr: 0.1\nseed: 42\n");
    EXPECT_EQ(read_run(scratch / "v").seed, 42);
    EXPECT_EQ(read_run(scratch / "v/metrics.csv").seed, 42);
    put_in(scratch / "x_seed3.csv", csv(0.9));
    EXPECT_EQ(read_run(scratch / "x_seed3.csv").seed, 3);
    put_in(scratch / "b.jsonl", "{\"seed\": 1e300, \"acc\": 1}\n");
    EXPECT_EQ(read_run(scratch / "b.jsonl").seed, std::nullopt) << "no seed is that large";
}

TEST(ReadRun, TakesTheLastOrTheBestValue) {
    const RunLog log = parse_log("step,val_acc,val_loss\n1,0.7,0.5\n2,0.9,0.3\n3,0.8,0.4\n", "f");
    EXPECT_EQ(record_of(log, "val_acc", Better::higher, Take::last).metric, 0.8);
    EXPECT_EQ(record_of(log, "val_acc", Better::higher, Take::best).metric, 0.9);
    EXPECT_EQ(record_of(log, "val_loss", Better::lower, Take::best).metric, 0.3);
}

TEST(ReadRun, SeesANaNInTheLossOnHeldOutDataToo) {
    const RunLog log = parse_log("step,loss,val_acc,val_loss\n1,2,0.7,0.5\n2,1,0.9,nan\n", "f");
    EXPECT_EQ(record_of(log, "val_acc", Better::higher, Take::last).not_finite, "val_loss is NaN at step 2");
    const RunLog other =
        parse_log("{\"step\":1,\"loss\":2}\n{\"step\":2,\"eval_loss\":Infinity,\"eval_f1\":0.5}\n", "g");
    EXPECT_EQ(record_of(other, "eval_f1", Better::higher, Take::last).not_finite, "eval_loss is infinite at step 2");
}

TEST(RunRecord, KnowsTheParametersWhoseGradientsWereSmall) {
    const RunLog log = parse_json_log(
        "{\"step\": 1, \"val_acc\": 0.5}\n"
        "{\"step\": 5, \"grad_norms\": {\"fc1\": 0.5}, \"small_grad_norms\": {\"fc1.bias\": 3e-8}}\n"
        "{\"step\": 9, \"grad_norms\": {\"fc1\": 0.5}, \"small_grad_norms\": {\"fc1.bias\": 2e-8}}\n",
        "log");
    const RunRecord run = record_of(log, "val_acc", Better::higher, Take::last);
    EXPECT_TRUE(run.gradients_watched);
    ASSERT_EQ(run.small_gradients.size(), 1u);
    EXPECT_EQ(run.small_gradients[0], (std::pair<std::string, double>("fc1.bias", 2e-8)));
    EXPECT_EQ(metrics_among(log.names()), std::vector<std::string>{"val_acc"});
    const RunLog blind = parse_csv_log("step,val_acc\n1,0.5\n", "log");
    EXPECT_FALSE(record_of(blind, "val_acc", Better::higher, Take::last).gradients_watched);
}

TEST(Decide, JudgesOneRunByThresholdsAndSeveralByTests) {
    Comparison one = comparison_of({0.8863}, {0.8850});
    decide(one);
    EXPECT_EQ(one.verdict, Verdict::pass);
    EXPECT_TRUE(one.reason.starts_with("16-mixed: val_acc differs by 0.15%")) << one.reason;
    Comparison several = comparison_of({0.80, 0.90}, {0.90, 0.80});
    decide(several);
    EXPECT_EQ(several.verdict, Verdict::marginal) << "equal means of seeds that disagree establish nothing";
    EXPECT_TRUE(several.candidates[0].equivalence.paired);
}

TEST(Decide, FailsACandidateWithNaNAnywhereHoweverCloseItsMetric) {
    Comparison c = comparison_of({0.9, 0.9}, {0.9, 0.9});
    c.candidates[0].runs[1].not_finite = "loss is NaN at step 30";
    decide(c);
    EXPECT_EQ(c.verdict, Verdict::fail);
    EXPECT_EQ(c.reason, "16-mixed: run: loss is NaN at step 30");
    Comparison single = comparison_of({0.9}, {0.9});
    single.candidates[0].runs[0].not_finite = "loss is NaN at step 30";
    decide(single);
    EXPECT_EQ(single.reason, "16-mixed: loss is NaN at step 30") << "an only run needs no name";
    Comparison bad = comparison_of({0.9}, {0.9});
    bad.baseline.runs[0].not_finite = "loss is NaN at step 1";
    decide(bad);
    EXPECT_TRUE(has(bad.reason, "the baseline gives nothing to compare with: loss is NaN")) << bad.reason;
    EXPECT_EQ(bad.verdict, Verdict::invalid);
    EXPECT_EQ(bad.candidates[0].verdict, Verdict::invalid);
}

TEST(Decide, NamesTheCommandThatTellsMoreOfACandidateThatFailsByItsMetric) {
    Comparison c = comparison_of({0.9}, {0.5});
    decide(c);
    EXPECT_FALSE(has(c.reason, "diagnose")) << "a run of others: " << c.reason;
    c.candidates[0].runs[0].folder = "runs/low";
    decide(c);
    EXPECT_TRUE(c.reason.ends_with("; more: " + program_name() + " diagnose runs/low")) << c.reason;
    Comparison fine = comparison_of({0.9}, {0.9});
    fine.candidates[0].runs[0].folder = "runs/low";
    decide(fine);
    EXPECT_FALSE(has(fine.reason, "diagnose")) << fine.reason;
}

TEST(Decide, IsInvalidUnlessEveryBaselineHasLearned) {
    Comparison c = comparison_of({0.1, 0.9, 0.1}, {0.1, 0.9, 0.1});
    c.baseline.runs[0].not_learned = "its loss did not fall";
    c.baseline.runs[2].not_learned = "it guesses";
    decide(c);
    EXPECT_EQ(c.verdict, Verdict::invalid);
    EXPECT_EQ(c.candidates[0].verdict, Verdict::invalid);
    EXPECT_TRUE(has(c.reason,
                    "2 of its 3 runs are not shown to have learned, and all must: seed 0: its loss did not "
                    "fall; seed 2: it guesses"))
        << c.reason;
    Comparison one = comparison_of({0.1}, {0.1});
    one.baseline.runs[0].not_learned = "it guesses";
    decide(one);
    EXPECT_TRUE(has(one.reason, "it is not shown to have learned: it guesses")) << one.reason;
}

TEST(Decide, DoesNotJudgeTheSpeedOfADisturbedMachine) {
    Comparison c = comparison_of({0.9}, {0.9});
    c.baseline.name = "32-true";
    c.baseline.runs[0].train_seconds = 740, c.candidates[0].runs[0].train_seconds = 10;
    c.baseline.runs[0].waited_share = 0.02, c.candidates[0].runs[0].waited_share = 0.01;
    decide(c);
    EXPECT_EQ(c.candidates[0].speed_up, 74);
    EXPECT_EQ(c.candidates[0].disturbed, "");
    c.baseline.runs[0].waited_share = 0.4;
    decide(c);
    EXPECT_TRUE(std::isnan(c.candidates[0].speed_up));
    EXPECT_EQ(c.candidates[0].disturbed,
              "other work on this machine kept the threads of 32-true waiting for 40% of the time they could have run");
    EXPECT_EQ(c.verdict, Verdict::pass) << "speed has no part in the verdict";
}

TEST(Decide, SaysNothingOfTheSpeedOfACandidateThatWasNotTrained) {
    Comparison c = comparison_of({0.1}, {});
    c.baseline.runs[0].not_learned = "it guesses";
    c.baseline.runs[0].waited_share = 0.4;
    decide(c);
    EXPECT_EQ(c.verdict, Verdict::invalid);
    EXPECT_EQ(c.candidates[0].disturbed, "");
}

// Metrics are logged now and then; the summary has seen every step.
TEST(ReadRun, TakesTheLargestGradientNormOfAllSteps) {
    const Scratch scratch;
    put_in(
        scratch / "r/metrics.jsonl",
        "{\"step\":1,\"loss\":0.9,\"grad_norm\":3}\n{\"step\":50,\"loss\":0.5,\"grad_norm\":1,\"val_accuracy\":0.8}\n");
    put_in(scratch / "r/summary.json", "{\"precision\":\"32-true\",\"steps\":50,\"max_grad_norm\":41012.5}\n");
    EXPECT_EQ(record_of(read_run(scratch / "r"), "val_accuracy", Better::higher, Take::last).max_grad_norm, 41012.5);
}

TEST(ReadRun, TellsARunThatWasStoppedAsUnstable) {
    const Scratch scratch;
    put_in(scratch / "r/metrics.jsonl", "{\"step\":1,\"loss\":0.9,\"val_accuracy\":0.8}\n");
    for (const auto& [status, failed] : {std::pair("finished", false), {"unstable", true}}) {
        put_in(scratch / "r/summary.json",
               fmt::format("{{\"status\":\"{}\",\"steps\":1,\"all_finite\":true}}\n", status));
        const RunRecord run = record_of(read_run(scratch / "r"), "val_accuracy", Better::higher, Take::last);
        EXPECT_EQ(!run.not_finite.empty(), failed) << status;
    }
}

TEST(ReadRun, CountsEpochsHoweverTheyAreNumbered) {
    const Scratch scratch;
    for (const auto& [log, epochs] : {std::pair("epoch,acc\n0,0.5\n1,0.6\n9,0.7\n", 10.0),
                                      {"epoch,acc\n1,0.5\n2,0.6\n10,0.7\n", 10.0},
                                      {"epoch,acc\n0.5,0.5\n1,0.6\n2.5,0.7\n", 2.5}}) {
        put_in(scratch / "m.csv", log);
        EXPECT_EQ(record_of(read_run(scratch / "m.csv"), "acc", Better::higher, Take::last).epochs, epochs) << log;
    }
}

TEST(Decide, TakesTheWorstCandidate) {
    Comparison c = comparison_of({1.0}, {0.995});
    c.candidates.push_back(c.candidates[0]);
    c.candidates[1].name = "bf16-true";
    c.candidates[1].runs[0].metric = 0.985;
    decide(c);
    EXPECT_EQ(c.verdict, Verdict::marginal);
    EXPECT_TRUE(c.reason.starts_with("bf16-true: ")) << c.reason;
}

TEST(Decide, CallsAGainByItsNameAndStillADifference) {
    Comparison c = comparison_of({0.80}, {0.90});
    decide(c);
    EXPECT_EQ(c.verdict, Verdict::fail);
    EXPECT_TRUE(has(c.reason, "it is better")) << c.reason;
    c.direction = Better::lower;
    decide(c);
    EXPECT_FALSE(has(c.reason, "it is better")) << c.reason;
}

TEST(Decide, PointsAtTheRunThatCanBeDiagnosed) {
    const Scratch scratch;
    put_in(scratch / "r/metrics.jsonl", "{\"step\":1,\"loss\":\"nan\"}\n{\"step\":1,\"val_acc\":0.8}\n");
    put_in(scratch / "r/summary.json", "{\"precision\":\"16-mixed\",\"steps\":1,\"all_finite\":false}\n");
    put_in(scratch / "r/config.yaml", "seed: 3\n");
    Comparison c = comparison_of({0.9}, {});
    c.candidates[0].runs.push_back(record_of(read_run(scratch / "r"), "val_acc", Better::higher, Take::last));
    for (int twice = 0; twice < 2; ++twice) {
        decide(c);
        EXPECT_EQ(c.candidates[0].reason, "loss is NaN at step 1; more: invar diagnose " + (scratch / "r").string());
    }
    fs::remove(scratch / "r/config.yaml");
    c.candidates[0] = {};
    c.candidates[0].runs.push_back(record_of(read_run(scratch / "r"), "val_acc", Better::higher, Take::last));
    decide(c);
    EXPECT_EQ(c.candidates[0].reason, "loss is NaN at step 1") << "it is not one of ours";
}

TEST(Decide, SaysThatThereIsNoShareOfZero) {
    Comparison c = comparison_of({0.0}, {0.5});
    c.direction = Better::lower;
    decide(c);
    EXPECT_EQ(c.verdict, Verdict::invalid);
    EXPECT_EQ(c.candidates[0].verdict, Verdict::invalid);
    EXPECT_TRUE(has(c.reason, "no share of zero")) << c.reason;
    EXPECT_FALSE(has(c.reason, "it is better")) << c.reason;
    EXPECT_TRUE(std::isnan(c.candidates[0].equivalence.difference));
    c.candidates[0].runs[0].not_finite = "loss is NaN at step 30";
    decide(c);
    EXPECT_EQ(c.verdict, Verdict::fail) << "NaN is one whatever the baseline is";
}

TEST(Decide, GivesFiguresOfOneRunAndSpeedsThatAgreeWithTheTimes) {
    Comparison c = comparison_of({0.9, 0.9}, {0.9, 0.9});
    double seconds = 10;
    for (RunRecord& run : c.candidates[0].runs) {
        run.steps = 100, run.skipped = 2;
        run.train_seconds = seconds, run.samples_per_s = 1000 / seconds;
        seconds += 20;
    }
    decide(c);
    const Arm& arm = c.candidates[0];
    EXPECT_EQ(arm.steps, 100);
    EXPECT_EQ(arm.skipped, 2);
    EXPECT_EQ(arm.train_seconds, 20);
    EXPECT_DOUBLE_EQ(arm.samples_per_s, 50) << "1000 samples in 20 s";
}

TEST(ReadRun, TakesAScaleThatIsAlwaysOneForNone) {
    const RunLog log = parse_log("step,scale,val_acc\n1,1,0.7\n2,1,0.9\n", "f");
    const RunRecord run = record_of(log, "val_acc", Better::higher, Take::last);
    EXPECT_TRUE(run.scale.empty());
    EXPECT_TRUE(std::isnan(run.final_scale));
}

TEST(Decide, KnowsWhatItDoesNotKnow) {
    Comparison c = comparison_of({0.9}, {0.9});
    decide(c);
    const Arm& arm = c.candidates[0];
    EXPECT_TRUE(std::isnan(arm.speed_up) && std::isnan(arm.grad_norm_ratio) && std::isnan(arm.train_loss));
    c.baseline.runs[0].train_seconds = 20;
    c.candidates[0].runs[0].train_seconds = 10;
    decide(c);
    EXPECT_EQ(c.candidates[0].speed_up, 2.0) << "from the times, where there is no speed";
}

}  // namespace
}  // namespace invar
