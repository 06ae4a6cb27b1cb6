// `invar diagnose` and `invar tune` as people run them.
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "invar/diagnose/failure.h"
#include "invar/io/jsonl.h"
#include "tests/cli/program.h"

namespace invar::cli {
namespace {

using DiagnoseCommand = CliTest;

TEST_F(DiagnoseCommand, ShowsEveryModuleInBothDirectionsAndAHealthyEnd) {
    const Result result = invar(small({"--steps", "3", "--as", "fp16"}, {"diagnose"}));
    ASSERT_EQ(result.code, 0) << result.err << result.out;
    for (const char* part : {"forward", "backward", "head-room", "loss scales from 2^",
                             "backward: gradients as they are before the loss is scaled",
                             "scaler.init_scale=", "nothing overflows", "heat maps: runs/run_diagnosis.html"})
        EXPECT_TRUE(has(result.out, part)) << part << "\n" << result.out;
    const std::string page = slurp(folder_ / "runs/run_diagnosis.html");
    EXPECT_TRUE(has(page, "<svg") && has(page, "class=\"heat\"") && page.ends_with("</html>\n"));
    EXPECT_TRUE(has(page, "<p>backward: gradients as they are before the loss is scaled</p>")) << page;
    const Result unscaled = invar(small({"--steps", "1", "--as", "bf16"}, {"diagnose"}));
    EXPECT_FALSE(has(unscaled.out, "before the loss is scaled")) << unscaled.out;
    EXPECT_FALSE(has(page, "http://") || has(page, "https://") || has(page, "<script")) << "it must open offline";
}

TEST_F(DiagnoseCommand, PrintsOneJsonObject) {
    const Result result = invar(small({"--steps", "2", "--json"}, {"diagnose"}));
    ASSERT_EQ(result.code, 0) << result.err;
    const auto d = nlohmann::json::parse(result.out);
    EXPECT_EQ(d.at("steps"), 2);
    EXPECT_TRUE(d.at("healthy"));
    EXPECT_FALSE(d.at("finding").at("found"));
    EXPECT_GE(d.at("layers").size(), 3u);
    EXPECT_TRUE(d.at("scale").at("exists"));
    EXPECT_LE(d.at("scale").at("least_log2"), d.at("scale").at("recommended_log2"));
}

TEST_F(DiagnoseCommand, FitsANarrowTerminal) {
    if (!lends_terminals()) GTEST_SKIP() << "no pseudo-terminal to be had";
    const Result result = on_terminal(small({"--steps", "1"}, {"diagnose"}), 64);
    ASSERT_EQ(result.code, 0) << result.out;
    EXPECT_TRUE(has(result.out, "vanish"));
    EXPECT_FALSE(has(result.out, "smallest")) << result.out;
    const Result formats = on_terminal({"formats"}, 64);
    EXPECT_TRUE(has(formats.out, "smallest normal") && !has(formats.out, "mantissa")) << formats.out;
    const Result bench = on_terminal(small({"--steps", "1", "--warmup", "0"}, {"bench"}), 64);
    const std::string table = bench.out.substr(0, bench.out.find("no room for "));
    EXPECT_LT(table.size(), bench.out.size()) << "it says what it has left out: " << bench.out;
    EXPECT_TRUE(has(table, "ms/step") && has(table, "total") && !has(table, "masters")) << bench.out;
}

TEST_F(DiagnoseCommand, BlamesARateThatNoPrecisionSurvives) {
    const Result result = invar(
        small({"--steps", "20", "optimizer=sgd", "optimizer.lr=1e30", "trainer.precision=16-mixed"}, {"diagnose"}));
    EXPECT_EQ(result.code, 1) << result.err;
    EXPECT_TRUE(has(result.out, "first bad operation: ")) << result.out;
    EXPECT_TRUE(has(result.out, "to blame: model; ")) << result.out;
    EXPECT_FALSE(has(result.out, "remedy: ")) << "a thousandth of it is no better: " << result.out;
    const Result lower = invar(
        small({"--steps", "20", "optimizer=sgd", "optimizer.lr=300", "trainer.precision=16-mixed"}, {"diagnose"}));
    EXPECT_TRUE(has(lower.out, "remedy: optimizer.lr=3") || has(lower.out, "remedy: optimizer.lr=0.3")) << lower.out;
    EXPECT_FALSE(has(lower.out, "to blame: precision") || has(lower.out, "remedy: trainer")) << lower.out;
}

// Where the first step breaks there is nothing to say of loss scales and lost updates.
TEST_F(DiagnoseCommand, SaysNothingOfWhatItDidNotCount) {
    ASSERT_EQ(invar(small({"optimizer=sgd", "optimizer.lr=1e30"})).code, 1);
    const Result result = invar({"diagnose", "runs/run"});
    EXPECT_EQ(result.code, 1) << result.err;
    EXPECT_TRUE(has(result.out, "first bad operation: ")) << result.out;
    EXPECT_FALSE(has(result.out, "loss scale is needed") || has(result.out, "head-room")) << result.out;
    EXPECT_TRUE(has(result.out, "page: runs/run/diagnosis.html")) << result.out;
    const std::string page = slurp(folder_ / "runs/run/diagnosis.html");
    EXPECT_TRUE(has(page, "first bad operation: ") && has(page, "before anything was counted")) << page;
    EXPECT_FALSE(has(page, "loss scale is needed") || has(page, "<h2>Exponents")) << page;
}

TEST_F(DiagnoseCommand, ExplainsARunThatBreaksAndReplaysItAfterwards) {
    const Result broken = invar(small({"optimizer=sgd", "optimizer.lr=1e30", "trainer.precision=bf16-mixed",
                                       "trainer.on_instability=stop", "trainer.max_epochs=4"}));
    EXPECT_EQ(broken.code, 1) << broken.out;
    EXPECT_TRUE(has(broken.err, " to blame")) << broken.err;
    EXPECT_TRUE(has(broken.err, "more: invar diagnose runs/run")) << broken.err;
    ASSERT_TRUE(has_failure(folder_ / "runs/run"));
    const Result again = invar({"diagnose", "runs/run"});
    EXPECT_EQ(again.code, 1) << again.err;
    EXPECT_TRUE(has(again.out, "first bad operation: ")) << again.out;
}

TEST_F(DiagnoseCommand, ReplaysTheStepThatARunKept) {
    ASSERT_EQ(invar(small({"--mixed_precision", "bf16", "--device", "cpu"})).code, 0);
    EXPECT_EQ(invar({"diagnose", "runs/run", "--steps", "1"}).code, 0) << "from its checkpoint";
    const Config config = parse_config(slurp(folder_ / "runs/run/config.yaml"), "config.yaml");
    ::invar::Setup setup(config);
    setup.train_data->start_epoch(0);
    const std::vector<Batch> group = {*setup.train_data->next()};
    group[0]["x"].data<float>()[3 * 36 + 1] = NAN;
    save_failure(failure_folder(folder_ / "runs/run"), setup, group, {7, 0, 7}, {1, 2}, 1.0, to_yaml(config));
    const Result result = invar({"diagnose", "runs/run"});
    EXPECT_EQ(result.code, 1) << result.err;
    EXPECT_TRUE(has(result.out, "step 8 replayed in bf16-mixed")) << result.out;
    EXPECT_TRUE(has(result.out, "to blame: data; sample 3 of the batch")) << result.out;
    EXPECT_TRUE(has(slurp(folder_ / "runs/run/diagnosis.html"), "first bad operation")) << "also as a page";
    EXPECT_TRUE(nlohmann::json::parse(invar({"diagnose", "runs/run", "--json"}).out).at("found"));
}

TEST_F(DiagnoseCommand, GoesOnFromAStepThatIsFiniteWhenReplayed) {
    ASSERT_EQ(invar(small({"--mixed_precision", "fp16"})).code, 0);
    const Config config = parse_config(slurp(folder_ / "runs/run/config.yaml"), "config.yaml");
    ::invar::Setup setup(config);
    setup.train_data->start_epoch(0);
    const std::vector<Batch> group = {*setup.train_data->next()};
    save_failure(failure_folder(folder_ / "runs/run"), setup, group, {132, 0, 2}, {1, 2}, 1.0, to_yaml(config));
    std::ofstream(folder_ / "runs/run/summary.json")
        << "{\"failure\":\"the loss is 40 times its median (at 9; more: invar diagnose runs/run). Try more\","
           "\"failure_reason\":\"the loss is 40 times its median (at 9). Try more\"}\n";
    const Result result = invar({"diagnose", "runs/run", "--steps", "2"});
    EXPECT_EQ(result.code, 0) << result.err;
    for (const char* part : {"step 133 replayed in 16-mixed", "the step is finite, its loss is ",
                             "the run stopped: the loss is 40 times its median (at 9). Try more\n", "head-room",
                             "loss scales from 2^", "heat maps: runs/run/diagnosis.html"})
        EXPECT_TRUE(has(result.out, part)) << part << "\n" << result.out;
    EXPECT_TRUE(has(slurp(folder_ / "runs/run/diagnosis.html"), "class=\"heat\""));
    const auto json = nlohmann::json::parse(invar({"diagnose", "runs/run", "--steps", "1", "--json"}).out);
    EXPECT_EQ(json.at("step"), 133);
    EXPECT_EQ(json.at("diagnosis").at("steps"), 1);
}

// One step alone would blame the precision; from before the trouble on FP32 goes the same way.
TEST_F(DiagnoseCommand, SaysOfAHighRateWhatTheRunHasSaid) {
    const Words fast = {"--device", "cpu", "--mixed_precision", "fp16", "optimizer=sgd", "optimizer.lr=3000"};
    for (const char* on_instability : {"stop", "skip"}) {
        std::filesystem::remove_all(folder_ / "runs");
        Words words = fast;
        words.push_back(std::string("trainer.on_instability=") + on_instability);
        const Result run = invar(small(words));
        if (std::string(on_instability) == "stop") {
            ASSERT_EQ(run.code, 1) << run.out;
            EXPECT_TRUE(has(run.err, "FP32 goes the same way: no precision is to blame")) << run.err;
            const auto summary = nlohmann::json::parse(slurp(folder_ / "runs/run/summary.json"));
            EXPECT_EQ(summary.at("failure_in_fp32"), "fails");
        }
        const Result result = invar({"diagnose", "runs/run"});
        EXPECT_EQ(result.code, 1) << result.out << result.err;
        EXPECT_TRUE(has(result.out, "from before the trouble on FP32 goes the same way")) << result.out;
        EXPECT_FALSE(has(result.out, "to blame: precision")) << result.out;
        EXPECT_FALSE(has(result.out, "remedy: trainer.precision")) << result.out;
    }
}

// A step that cannot be had as it was is not passed off as the run's own.
TEST_F(DiagnoseCommand, SaysWhereAStepTrainedAgainIsNotTheRunsOwn) {
    ASSERT_EQ(invar(small({"--device", "cpu", "trainer.keep_checkpoints=1"})).code, 0);
    EXPECT_FALSE(has(invar({"diagnose", "runs/run", "--step", "3"}).err, "warning")) << "nothing was changed";
    ASSERT_EQ(invar({"train", "--resume", "runs/run", "trainer.max_epochs=2", "optimizer.lr=0.03"}).code, 0);
    const Result result = invar({"diagnose", "runs/run", "--step", "3"});
    EXPECT_TRUE(has(result.err, "warning: the run's own loss at step 3 was ")) << result.err;
    EXPECT_TRUE(has(result.err, "the run was changed on its way")) << result.err;
}

// What was trained again is what was trained: the loss is the logged one, from a checkpoint and from the beginning, in
// the second epoch and after a change of precision.
TEST_F(DiagnoseCommand, GoesBackToAnyStepOfARun) {
    ASSERT_EQ(invar(small({"--device", "cpu", "trainer.checkpoint_every_n_steps=3", "trainer.max_epochs=2",
                           "trainer.precision_schedule={0: 16-mixed, 2: bf16-mixed}", "trainer.keep_checkpoints=9"}))
                  .code,
              0);
    std::filesystem::remove(folder_ / "runs/run/checkpoints/step_00000003.safetensors");
    std::map<std::int64_t, double> losses;
    for (const nlohmann::json& line : read_jsonl(folder_ / "runs/run/metrics.jsonl"))
        if (line.contains("loss")) losses[line.at("step")] = number_of(line.at("loss"));
    ASSERT_GE(losses.size(), 8u);
    for (const auto& [step, loss] : losses) {
        const Result result = invar({"diagnose", "runs/run", "--step", std::to_string(step), "--steps", "1", "--json"});
        ASSERT_EQ(result.code, 0) << result.err;
        const auto json = nlohmann::json::parse(result.out);
        EXPECT_EQ(json.at("step"), step);
        EXPECT_FLOAT_EQ(float(number_of(json.at("loss"))), float(loss)) << "step " << step;
    }
    const Result shown = invar({"diagnose", "runs/run", "--step", "5", "--steps", "1"});
    EXPECT_TRUE(has(shown.err, "step 5 of runs/run: 4 steps are trained again from the beginning")) << shown.err;
    EXPECT_TRUE(has(shown.out, "step 5 replayed in bf16-mixed")) << shown.out;
    EXPECT_TRUE(has(invar({"diagnose", "runs/run", "--step", "2", "--steps", "1"}).out, "step 2 replayed in 16-mixed"));
    const Result beyond = invar({"diagnose", "runs/run", "--step", "9999"});
    EXPECT_EQ(beyond.code, 2);
    EXPECT_TRUE(has(beyond.error(), "runs/run has steps 1 to ")) << beyond.err;
    EXPECT_TRUE(has(invar({"diagnose", "synthetic", "--step", "3"}).error(),
                    "--step is for the folder of a run, or for a probe: synthetic is neither"));
    EXPECT_TRUE(has(invar({"diagnose", "data=synthetic", "--step", "3"}).error(), "for a probe: here is none"));
    EXPECT_TRUE(has(invar({"diagnose", "--step", "0"}).error(), "--step 0: it takes a whole number above 0"));
    EXPECT_TRUE(has(invar({"data", "--count", "0"}).error(), "--count 0: it takes a whole number in [1 - 1000]"));
    EXPECT_TRUE(has(invar({"diagnose", "--help"}).out, "Steps to watch (default: 10)"));
    EXPECT_FALSE(has(invar({"diagnose", "--help"}).out, "default: 0"));
}

// A run that only skips what is not finite keeps no step; the first one is found in its log.
TEST_F(DiagnoseCommand, FindsTheStepOfARunThatWentOn) {
    const Words words = small({"optimizer=sgd", "optimizer.lr=1e30", "trainer.max_steps=6"});
    const Result trained = invar(words);  // to its end: so few skipped steps are not hopeless yet
    ASSERT_EQ(trained.code, 1) << trained.out;
    ASSERT_TRUE(has(trained.err, "5 of 6 steps were skipped; find out why with: invar diagnose runs/run"));
    ASSERT_FALSE(has_failure(folder_ / "runs/run"));
    const Result result = invar({"diagnose", "runs/run"});
    EXPECT_EQ(result.code, 1) << result.err;
    EXPECT_TRUE(has(result.out, "step 2 replayed in 32-true")) << result.out << result.err;
    EXPECT_TRUE(has(result.out, "first bad operation: ")) << result.out;
}

TEST_F(DiagnoseCommand, WarnsOfUpdatesThatWeightsWithoutMastersLose) {
    const Words slow = {"--steps", "2", "optimizer=sgd", "optimizer.lr=1e-4"};
    for (const auto& [precision, mixed] : {std::pair("bf16-true", "bf16-mixed"), {"16-true", "16-mixed"}}) {
        Words words = slow;
        words.push_back(std::string("trainer.precision=") + precision);
        const Result result = invar(small(words, {"diagnose"}));
        EXPECT_TRUE(has(result.out, "of the updates are lost")) << result.out;
        EXPECT_TRUE(has(result.out, std::string("remedy: trainer.precision=") + mixed)) << result.out;
        EXPECT_FALSE(has(result.out, "nothing overflows")) << result.out;
        EXPECT_FALSE(has(result.out, "scaler.init_scale")) << result.out;
    }
    Words words = slow;
    words.emplace_back("trainer.precision=bf16-mixed");
    const Result fine = invar(small(words, {"diagnose"}));
    EXPECT_TRUE(has(fine.out, "nothing overflows")) << fine.out;
    EXPECT_TRUE(has(fine.out, "no loss scale is needed")) << "BF16 has none\n" << fine.out;
}

TEST_F(DiagnoseCommand, JudgesGradientsAtTheLossScaleThatItRecommends) {
    const Result result = invar(small({"--as", "e4m3", "--steps", "2"}, {"diagnose"}));
    EXPECT_TRUE(has(result.out, "loss scales from 2^")) << result.out;
    EXPECT_FALSE(has(result.out, "backward through")) << result.out;
    const std::string page = slurp(folder_ / "runs/run_diagnosis.html");
    const bool healthy = has(page, "badge pass");
    EXPECT_EQ(has(page, "class=\"poor\""), !healthy) << "colours and words disagree";
}

TEST_F(DiagnoseCommand, RefusesWhatMakesNoSense) {
    EXPECT_EQ(invar(small({"--steps", "0"}, {"diagnose"})).code, 2);
    EXPECT_TRUE(has(invar(small({"--as", "int8"}, {"diagnose"})).error(), "int8"));
    for (const char* eight : {"fp8", "e4m3"})
        EXPECT_TRUE(has(invar(small({"--as", eight}, {"tune"})).error(), "in fp16 and bf16 only")) << eight;
    EXPECT_EQ(invar(small({"--target", "0"}, {"tune"})).code, 2);
}

TEST_F(DiagnoseCommand, TuneSaysThatNothingNeedsToBeKeptAndHowToValidate) {
    const Result result = invar(small({"--steps", "1", "--batches", "2", "--no-validate"}, {"tune"}));
    ASSERT_EQ(result.code, 0) << result.err << result.out;
    EXPECT_TRUE(has(result.out, "no module needs FP32")) << result.out;
    EXPECT_TRUE(has(result.out, "peak memory")) << result.out;
    EXPECT_TRUE(has(result.out, "to validate it: invar validate data=synthetic")) << result.out;
    const auto json = nlohmann::json::parse(invar(small({"--steps", "0", "--no-validate", "--json"}, {"tune"})).out);
    EXPECT_TRUE(json.at("met"));
    EXPECT_GT(json.at("before").at("cosine"), 0.99);
}

TEST_F(DiagnoseCommand, TuneValidatesWhatItFoundAndEndsWithThatVerdict) {
    // So strict that the rounding of FP16 alone is too much for the worst module.
    const Words deeper = {"model.hidden=[8,8]", "--steps", "0", "--cosine", "0.5"};
    Words words = learner(deeper, {"tune"});
    words.insert(words.end(), {"--no-validate", "--json"});
    const double worst = nlohmann::json::parse(invar(words).out).at("before").at("worst");
    words = learner(deeper, {"tune"});
    words.insert(words.end(), {"--target", std::to_string(0.95 * worst)});
    const Result result = invar(words);
    ASSERT_TRUE(result.code == 0 || result.code == 1 || result.code == 3) << result.err << result.out;
    EXPECT_TRUE(has(result.out, "precision_overrides:")) << result.out;
    EXPECT_TRUE(has(result.out, "run 2 of 2 runs/run/16-mixed")) << result.out;
    EXPECT_TRUE(has(result.out, result.code == 0   ? "PASS: "
                                : result.code == 3 ? "MARGINAL: "
                                                   : "FAIL: "))
        << result.out;
    const Config low = parse_config(slurp(folder_ / "runs/run/16-mixed/config.yaml"), "config.yaml");
    const Config full = parse_config(slurp(folder_ / "runs/run/fp32/config.yaml"), "config.yaml");
    EXPECT_FALSE(low.trainer.precision_overrides.empty()) << "trained as tuned";
    EXPECT_TRUE(full.trainer.precision_overrides.empty());
    EXPECT_TRUE(has(slurp(folder_ / "runs/run/report.md"), "trainer.precision_overrides=")) << "to reproduce it";
}

TEST_F(DiagnoseCommand, TuneDoesNotPassOffFp32AsATunedPrecision) {
    const Result result = invar(learner({"--steps", "1", "--target", "1e-7", "--cosine", "0.5"}, {"tune"}));
    EXPECT_EQ(result.code, 1) << result.err << result.out;
    EXPECT_TRUE(has(result.out, "the target holds with every module in FP32 alone")) << result.out;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "runs")) << "nothing is left to validate";
}

}  // namespace
}  // namespace invar::cli
