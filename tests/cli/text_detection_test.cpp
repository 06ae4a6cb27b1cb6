// Text detection from the command line: what a guide to FP16 for DBNet asks for, on scenes as small as they come.
#include <nlohmann/json.hpp>

#include "invar/config/config.h"
#include "tests/cli/program.h"

namespace invar::cli {
namespace {

class TextDetectionCommands : public CliTest {
  protected:
    // An experiment on DBNet, made small: eight scenes, a step or four an epoch.
    static Words tiny(const Words& before, const Words& more = {}) {
        Words words = before;
        for (const char* word : {"model.width=8", "model.inner=8", "data.size=64", "data.scenes=16",
                                 "data.val_scenes=8", "data.batch_size=4", "data.num_workers=0", "trainer.threads=1"})
            words.emplace_back(word);
        words.insert(words.end(), more.begin(), more.end());
        return words;
    }
    nlohmann::json summary(const std::string& run) const {
        return nlohmann::json::parse(slurp(folder_ / "runs" / run / "summary.json"));
    }
    Config config_of(const std::string& run) const {
        return parse_config(slurp(folder_ / "runs" / run / "config.yaml"), run);
    }
};

TEST_F(TextDetectionCommands, TakeTheGuidesWords) {
    const Words common = {"trainer.max_epochs=3", "trainer.limit_val_batches=50", "logger.wandb.enabled=true"};
    const auto train = [&](Words words) {
        words.insert(words.end(), common.begin(), common.end());
        const Result result = invar(tiny({"train", "dbnet"}, words));
        EXPECT_EQ(result.code, 0) << result.err;
    };
    train({"exp_name=baseline", "trainer.limit_train_batches=0", "trainer.precision=\"32-true\""});
    train({"exp_name=direct", "trainer.precision=\"16-mixed\""});
    train({"exp_name=safe", "trainer=fp16_safe", "trainer.limit_train_batches=0"});
    EXPECT_EQ(summary("baseline").at("steps"), 12) << "no limit on the batches, three epochs of four";
    EXPECT_EQ(summary("baseline").at("precision"), "32-true");
    EXPECT_EQ(summary("direct").at("precision"), "16-mixed");
    EXPECT_EQ(summary("safe").at("steps"), 6) << "two batches to a step";
    EXPECT_TRUE(summary("safe").contains("val_hmean")) << summary("safe");
    EXPECT_TRUE(has(slurp(folder_ / "runs/safe/wandb.jsonl"), "hmean"));
}

// One command: the FP32 baseline, then FP16, compared by H-mean.
TEST_F(TextDetectionCommands, ValidateFp16ByItsHmean) {
    const Result result = invar(tiny({"validate", "dbnet_fp16"}, {"trainer.max_epochs=1", "--json"}));
    EXPECT_TRUE(result.code != 2 && result.code < 64) << result.err;
    const auto report = nlohmann::json::parse(slurp(folder_ / "runs/dbnet_fp16/report.json"));
    EXPECT_EQ(report.at("metric"), "val_hmean");
    EXPECT_EQ(report.at("margin"), 0.01);
    ASSERT_EQ(report.at("candidates").size(), 1u);
    EXPECT_EQ(report.at("candidates")[0].at("name"), "16-mixed");
    const TrainerConfig baseline = config_of("dbnet_fp16/fp32").trainer;
    EXPECT_EQ(baseline.precision, "32-true");
    EXPECT_EQ(baseline.accumulate_grad_batches, 2) << "as fp16_safe has it: the two differ in precision alone";
    EXPECT_EQ(baseline.gradient_clip_val, 5.0);
}

TEST_F(TextDetectionCommands, FindTheMetricAsPeopleSayIt) {
    for (const char* name : {"val/hmean", "hmean", "val_hmean"}) {
        const Words words = {"trainer.max_steps=1",
                             "trainer.max_epochs=1",
                             "--json",
                             "--metric",
                             name,
                             std::string("exp_name=by_") + (has(name, "/") ? "slash" : name)};
        EXPECT_NE(invar(tiny({"validate", "dbnet_fp16"}, words)).code, 2) << name;
    }
    EXPECT_TRUE(has(slurp(folder_ / "runs/by_slash/report.json"), "\"metric\": \"val_hmean\""));
    const Result wrong = invar(tiny({"validate", "dbnet_fp16"}, {"--metric", "val/hmaen"}));
    EXPECT_EQ(wrong.code, 2);
    EXPECT_TRUE(has(wrong.error(), "did you mean 'val_hmean'?")) << wrong.err;
}

// Skips every step, and learns nothing: found by diagnose, mended by tune.
TEST_F(TextDetectionCommands, TeachTheLessonOfAStaticScale) {
    const Words few = {"data.scenes=160", "trainer.max_epochs=1", "trainer.threads=1", "data.num_workers=0"};
    const auto with = [&](Words words, const Words& more) {
        words.insert(words.begin() + 1, "lesson_hmean_static_scale");
        words.insert(words.end(), few.begin(), few.end());
        words.insert(words.end(), more.begin(), more.end());
        return invar(words);
    };
    const Result wrong = with({"train"}, {"exp_name=wrong", "--quiet"});
    EXPECT_EQ(wrong.code, 1);
    EXPECT_TRUE(has(wrong.err, "all 20 steps were skipped, nothing was trained")) << wrong.err;
    EXPECT_TRUE(has(wrong.err, "find out why with: invar diagnose runs/wrong")) << wrong.err;
    // After twenty steps the norms' running statistics are too young for a validation in FP16: it may overflow.
    const Words mended = {"exp_name=mended", "scaler.dynamic=true", "trainer.limit_val_batches=0"};
    EXPECT_EQ(with({"train"}, mended).code, 0);
    EXPECT_EQ(summary("wrong").at("skipped"), 20);
    EXPECT_LE(summary("mended").at("skipped"), 5) << "until the scale is found";

    const Result found = with({"diagnose"}, {"--steps", "3", "--json"});
    EXPECT_EQ(found.code, 1) << found.err;
    const auto diagnosis = nlohmann::json::parse(found.out);
    EXPECT_EQ(diagnosis.at("finding").at("blame"), "loss scale");
    EXPECT_EQ(diagnosis.at("finding").at("direction"), "backward");
    EXPECT_EQ(diagnosis.at("concerns").size(), 0u) << diagnosis.at("concerns");
    EXPECT_GE(diagnosis.at("scale").at("overflows"), 1);

    const Result tuned = with({"tune"}, {"--target", "0.5", "--cosine", "0.9", "--steps", "0", "--no-validate"});
    EXPECT_EQ(tuned.code, 0) << tuned.out << tuned.err;
    EXPECT_TRUE(has(tuned.out, "scaler:\n  enabled: true\n  dynamic: true\n")) << tuned.out;
    EXPECT_TRUE(has(tuned.out, "invar validate lesson_hmean_static_scale ")) << tuned.out;
    EXPECT_TRUE(has(tuned.out, " scaler.dynamic=true --candidates 16-mixed")) << tuned.out;
}

// Heads whose sums FP16 cannot hold: named by the step that broke, and sound in FP32.
TEST_F(TextDetectionCommands, TeachTheLessonOfAHeadInFp16) {
    const auto train = [&](const Words& more) {
        Words words = {
            "train",  "lesson_hmean_fp16_head", "trainer.max_epochs=3", "data.num_workers=0", "--device", "cpu",
            "--quiet"};
        words.insert(words.end(), more.begin(), more.end());
        return invar(words);
    };
    const Result wrong = train({"exp_name=wrong", "trainer.on_instability=stop"});
    EXPECT_EQ(wrong.code, 1);
    EXPECT_TRUE(has(wrong.err, "the loss is NaN")) << wrong.err;
    const Result found = invar({"diagnose", "runs/wrong", "--device", "cpu", "--json"});
    EXPECT_EQ(found.code, 1) << found.err;
    const auto finding = nlohmann::json::parse(found.out);
    const std::string module = finding.at("module");
    EXPECT_TRUE(module == "decoder.thresh.0" || module == "decoder.binarize.0") << finding;
    EXPECT_EQ(finding.at("direction"), "forward");
    EXPECT_EQ(finding.at("blame"), "precision");
    EXPECT_TRUE(has(finding.at("remedy").get<std::string>(), "trainer.precision_overrides={decoder")) << finding;
    EXPECT_EQ(finding.at("verified"), true);

    const char* heads = "trainer.precision_overrides={decoder.thresh.0: 32-true, decoder.binarize.0: 32-true}";
    EXPECT_EQ(train({"exp_name=mended", heads}).code, 0);
    EXPECT_EQ(summary("mended").at("skipped"), 0);
    EXPECT_EQ(summary("mended").at("all_finite"), true);
}

// The experiment that validates FP16 is the one that FP32 trains, whatever is changed there.
// Two thirds of the experiment: what is left is for the last few texts.
TEST_F(TextDetectionCommands, LearnToFindTextsInAMinute) {
    const Result result = invar({"train", "dbnet_small", "trainer.max_epochs=10", "--device", "cpu", "--threads", "1"});
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_GT(summary("dbnet_small").at("val_hmean").get<double>(), 0.5);
    EXPECT_FALSE(std::filesystem::is_empty(folder_ / "runs/dbnet_small/pictures"));
}

TEST_F(TextDetectionCommands, HoldFp16AgainstTheExperimentItself) {
    const ConfigSources shipped{{std::filesystem::path(INVAR_SOURCE_DIR) / "configs"}};
    Config fp16 = load_config("dbnet_fp16", {}, shipped), fp32 = load_config("dbnet", {"trainer=fp16_safe"}, shipped);
    fp32.exp_name = fp16.exp_name;
    // Two batches of 8 to a step, where the experiment takes one of 16; and as long a rise of the rate, in scenes.
    EXPECT_EQ(fp16.data.batch_size * fp16.trainer.accumulate_grad_batches,
              load_config("dbnet", {}, shipped).data.batch_size);
    fp32.data.batch_size = fp16.data.batch_size;
    fp32.scheduler.warmup_steps = fp16.scheduler.warmup_steps;
    EXPECT_EQ(fp16.trainer.precision_overrides.size(), 2u);  // the heads, whose sums FP16 cannot hold
    fp32.trainer.precision_overrides = fp16.trainer.precision_overrides;
    EXPECT_EQ(to_yaml(fp16), to_yaml(fp32));
}

}  // namespace
}  // namespace invar::cli
