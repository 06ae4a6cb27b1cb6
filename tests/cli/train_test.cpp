// `invar train`: what it prints where, what it leaves behind, and how it stops and goes on.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <regex>
#include <thread>

#include "tests/cli/program.h"

namespace invar::cli {
namespace {

class Train : public CliTest {
  protected:
    std::vector<double> losses(const std::string& run) const {
        std::vector<double> all;
        for (const std::string& line : lines(run + "/metrics.jsonl")) {
            const auto json = nlohmann::json::parse(line);
            if (json.contains("loss")) all.push_back(json.at("loss"));
        }
        return all;
    }
};

TEST_F(Train, LeavesACompleteRunFolder) {
    const Result result = invar(small({"--mixed_precision", "fp16", "exp_name=first"}));
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(has(result.err, "never validated") && std::count(result.err.begin(), result.err.end(), '\n') == 1)
        << result.err;
    EXPECT_TRUE(has(result.out, "run folder: runs/first")) << result.out;
    for (const char* name : {"config.yaml", "metrics.jsonl", "summary.json", "checkpoints/step_00000010.safetensors"})
        EXPECT_TRUE(std::filesystem::is_regular_file(folder_ / "runs/first" / name)) << name;
    const auto step = nlohmann::json::parse(lines("runs/first/metrics.jsonl").at(0));
    for (const char* key : {"step", "epoch", "loss", "lr", "grad_norm", "scale", "skipped", "growth_tracker",
                            "samples_per_s", "peak_bytes", "host_bytes"})
        EXPECT_TRUE(step.contains(key)) << key;
    for (const char* purpose : {"weights", "masters", "gradients", "optimizer", "activations", "workspace"})
        EXPECT_TRUE(step.at("peak_bytes").contains(purpose)) << purpose;
    EXPECT_EQ(losses("runs/first").size(), 10u);
    EXPECT_EQ(nlohmann::json::parse(slurp(folder_ / "runs/first/summary.json")).at("status"), "finished");
}

TEST_F(Train, SaysWhichPrecisionAndWhy) {
    const Result fp16 =
        invar(small({"--mixed_precision", "fp16", "--grad_scaler_init", "1024", "trainer.max_steps=1"}));
    EXPECT_TRUE(has(fp16.out, "[AMP] Using FP16 mixed precision (level O1)")) << fp16.out;
    EXPECT_TRUE(has(fp16.out, "loss scale 1024, times 2 after 2000 steps")) << fp16.out;
    EXPECT_TRUE(has(fp16.out, "FP32 master weights"));
    const Result bf16 = invar(small({"--mixed_precision", "bf16", "--amp_opt_level", "O2", "trainer.max_steps=1"}));
    EXPECT_TRUE(has(bf16.out, "[AMP] Using BF16 mixed precision (level O2)")) << bf16.out;
    EXPECT_TRUE(has(bf16.out, "no loss scale: BF16 has the range of FP32"));
    const Result fp32 = invar(small({"trainer.max_steps=1"}));
    EXPECT_TRUE(has(fp32.out, "[AMP] Using FP32 (no mixed precision)")) << fp32.out;
}

TEST_F(Train, SaysThatValidationsMeasureAveragedWeights) {
    const std::string averaged =
        "\nvalidations measure the averaged weights (trainer.ema_decay=0.9), not those that are";
    EXPECT_TRUE(has(invar(small({"trainer.ema_decay=0.9"})).out, averaged));
    const Words none = {"trainer.ema_decay=0.9", "trainer.limit_val_batches=0"};
    EXPECT_FALSE(has(invar(small(none)).out, "averaged weights"));
    EXPECT_FALSE(has(invar(small()).out, "averaged weights"));
}

TEST_F(Train, PrintsPlainLinesThroughAPipe) {
    const Result result = invar(small({"--mixed_precision", "fp16"}));
    EXPECT_TRUE(std::none_of(result.out.begin(), result.out.end(), [](unsigned char c) {
        return c < ' ' && c != '\n';
    })) << result.out;
    for (int step = 1; step <= 10; ++step)
        EXPECT_TRUE(has(result.out, "step " + std::to_string(step) + "/10  ")) << result.out;
    EXPECT_TRUE(has(result.out, "val_accuracy")) << result.out;
}

TEST_F(Train, QuietPrintsOnlyTheFolder) {
    EXPECT_EQ(invar(small({"--quiet"})).out, "runs/run\n");
    EXPECT_EQ(invar(small({"--quiet"})).out, "runs/run_2\n") << "and never writes into an old one";
}

TEST_F(Train, PrintedConfigurationComesBackTheSame) {
    const Result first = invar(small({"--print-config", "--mixed_precision", "bf16", "optimizer.lr=0.123",
                                      "trainer.precision_overrides={\"3\": 32-true}"}));
    ASSERT_EQ(first.code, 0) << first.err;
    std::ofstream(folder_ / "printed.yaml") << first.out;
    const Result second = invar({"train", "printed.yaml", "--print-config"});
    EXPECT_EQ(first.out, second.out);
    EXPECT_TRUE(has(first.out, "lr: 0.123"));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "runs"));
}

TEST_F(Train, FlagsStandForKeysAndWinOverThem) {
    const Words flags = {"--mixed_precision",
                         "fp16",
                         "--amp_opt_level",
                         "O2",
                         "--grad_scaler_init",
                         "512",
                         "--grad_scaler_growth_interval",
                         "77",
                         "--grad_scaler_backoff",
                         "0.25",
                         "--batch_size",
                         "20",
                         "--grad_accum_steps",
                         "3",
                         "--grad_ckpt",
                         "--threads",
                         "2",
                         "--device",
                         "cpu",
                         "--print-config"};
    const Words keys = {"trainer.precision=16-mixed",
                        "trainer.amp_level=O2",
                        "scaler.init_scale=512",
                        "scaler.growth_interval=77",
                        "scaler.backoff_factor=0.25",
                        "data.batch_size=20",
                        "trainer.accumulate_grad_batches=3",
                        "trainer.recompute=block",
                        "trainer.threads=2",
                        "trainer.device=cpu",
                        "--print-config"};
    const std::string by_flags = invar(small(flags)).out;
    EXPECT_FALSE(by_flags.empty());
    EXPECT_EQ(by_flags, invar(small(keys)).out);
    Words both = flags;
    both.insert(both.end(), {"trainer.precision=bf16", "data.batch_size=2"});
    EXPECT_EQ(by_flags, invar(small(both)).out);
}

TEST_F(Train, DebugPrintsTheConfigurationAndEveryStep) {
    const Result result =
        invar(small({"--debug", "trainer.log_every_n_steps=50", "--mixed_precision", "fp16", "--amp_opt_level", "O0"}));
    EXPECT_TRUE(has(result.out, "  gradient_clip_val: ")) << result.out;
    EXPECT_TRUE(has(result.out, "step 7/10")) << result.out;
    EXPECT_TRUE(
        has(result.out, "trainer.amp_level=O0: nothing is cast, and trainer.precision=16-mixed trains as 32-true"))
        << result.out;
}

TEST_F(Train, ASignalLeavesARunThatResumesToTheSameBytes) {
    // Long enough that no machine finishes before the signal; the resumed half stops at a fixed step.
    const Words settings = small({"trainer.max_epochs=100000", "--mixed_precision", "fp16", "scheduler.name=constant"});
    const pid_t child = start(settings, "stopped");
    const auto metrics = folder_ / "stopped/runs/run/metrics.jsonl";
    for (int i = 0; i < 2000 && slurp(metrics).size() < 2000; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ::kill(child, SIGINT);
    const Result stopped = finish(child, "stopped");
    EXPECT_EQ(stopped.code, 130) << stopped.err;
    EXPECT_TRUE(has(stopped.err, "invar train --resume runs/run")) << stopped.err;
    const auto summary = nlohmann::json::parse(slurp(folder_ / "stopped/runs/run/summary.json"));
    EXPECT_EQ(summary.at("status"), "interrupted");
    const std::int64_t at = summary.at("steps");
    ASSERT_GT(at, 0);

    const std::string last = "trainer.max_steps=" + std::to_string(at + 13);
    const Result resumed = invar({"train", "--resume", "runs/run", last}, "stopped");
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_TRUE(has(resumed.out, "resuming at step " + std::to_string(at))) << resumed.out;
    Words whole = settings;
    whole.push_back(last);
    ASSERT_EQ(invar(whole, "whole").code, 0);
    const std::string name = "runs/run/checkpoints/step_" + std::string(8 - std::to_string(at + 13).size(), '0') +
                             std::to_string(at + 13) + ".safetensors";
    const std::string bytes = slurp(folder_ / "whole" / name);
    ASSERT_FALSE(bytes.empty()) << name;
    EXPECT_TRUE(bytes == slurp(folder_ / "stopped" / name)) << "the checkpoints differ";
    EXPECT_EQ(losses("stopped/runs/run"), losses("whole/runs/run"));
}

TEST_F(Train, EndsWithOneWhereThereIsNothingToBuildOn) {
    const Result diverged = invar(small({"optimizer=sgd", "optimizer.lr=1e30", "exp_name=diverged"}));
    EXPECT_EQ(diverged.code, 1) << diverged.err;
    EXPECT_TRUE(
        has(diverged.err, "error: the training loss ends at nan; find out why with: invar diagnose runs/diverged") ||
        has(diverged.err, "steps were skipped"))
        << diverged.err;
    // The scale starts so high that more than half of the steps are spent on finding one that fits.
    const Result skipped = invar(small({"--mixed_precision", "fp16", "scaler.init_scale=1e21",
                                        "scaler.backoff_factor=0.001", "exp_name=skipped", "data.size=128"}));
    EXPECT_EQ(skipped.code, 1) << skipped.out << skipped.err;
    EXPECT_TRUE(has(skipped.err, "steps were skipped; find out why with: invar diagnose runs/skipped")) << skipped.err;
}

TEST_F(Train, NamesTheRunByWhatItComputedIn) {
    const auto precision = [&](const std::string& name, const Words& words) {
        Words all = words;
        all.push_back("exp_name=" + name);
        EXPECT_EQ(invar(small(all)).code, 0) << name;
        return nlohmann::json::parse(slurp(folder_ / "runs" / name / "summary.json")).at("precision");
    };
    EXPECT_EQ(precision("mixed", {"precision=16"}), "16-mixed");
    EXPECT_EQ(precision("O0", {"precision=16", "amp_level=O0"}), "32-true");
    EXPECT_EQ(precision("kept", {"precision=16", "trainer.precision_overrides={'*': 32}"}), "32-true");
}

TEST_F(Train, SaysWhatItsSpeedLeavesOut) {
    EXPECT_TRUE(has(invar(small()).out, " samples/s, without the first 5 steps"));
    for (const char* few : {"trainer.max_steps=2", "trainer.max_steps=5"})
        EXPECT_FALSE(has(invar(small({few})).out, "without the first")) << few;
}

TEST_F(Train, ResumingAFinishedRunSaysSo) {
    ASSERT_EQ(invar(small()).code, 0);
    const std::string before = slurp(folder_ / "runs/run/checkpoints/step_00000010.safetensors");
    const Result again = invar({"train", "--resume", "runs/run"});
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_TRUE(has(again.out, "nothing left to train; the run stays as it is (a larger trainer.max_epochs goes on)"))
        << again.out;
    EXPECT_EQ(slurp(folder_ / "runs/run/checkpoints/step_00000010.safetensors"), before);
}

TEST_F(Train, NamesTheSettingThatEndedARunWithNothingLeftToTrain) {
    ASSERT_EQ(invar(small({"trainer.max_steps=3"})).code, 0);
    const Result again = invar({"train", "--resume", "runs/run"});
    EXPECT_TRUE(has(again.out, "nothing left to train; the run stays as it is (a larger trainer.max_steps goes on)"))
        << again.out;
    const Result more = invar({"train", "--resume", "runs/run", "trainer.max_steps=4"});
    EXPECT_FALSE(has(more.out, "nothing left")) << more.out;
}

TEST_F(Train, ResumingAFinishedRunLeavesItsFiguresAlone) {
    ASSERT_EQ(invar(small()).code, 0);
    const auto summary = [&] { return nlohmann::json::parse(slurp(folder_ / "runs/run/summary.json")); };
    const nlohmann::json before = summary();
    ASSERT_EQ(invar({"train", "--resume", "runs/run"}).code, 0);
    for (const char* key : {"train_seconds", "samples_per_s", "waited_share", "loss", "max_grad_norm"})
        EXPECT_EQ(before.value(key, nlohmann::json()), summary().value(key, nlohmann::json())) << key;
}

TEST_F(Train, InitialWeightsFromAFileTrainAsThoseOfTheSeed) {
    ASSERT_EQ(invar(small({"w.safetensors", "seed=3"}, {"init"})).code, 0);
    ASSERT_EQ(invar(small({"seed=3", "exp_name=seed"})).code, 0);
    ASSERT_EQ(invar(small({"seed=3", "exp_name=file", "init_from=w.safetensors"})).code, 0);
    EXPECT_EQ(losses("runs/seed"), losses("runs/file"));
    ASSERT_EQ(invar(small({"w.safetensors", "seed=4", "--force"}, {"init"})).code, 0);
    ASSERT_EQ(invar(small({"seed=3", "exp_name=other", "init_from=w.safetensors"})).code, 0);
    EXPECT_NE(losses("runs/seed"), losses("runs/other"));
}

}  // namespace
}  // namespace invar::cli
