#include "invar/config/config.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "invar/config/help.h"
#include "invar/core/error.h"
#include "invar/data/image_set.h"
#include "invar/data/synthetic.h"
#include "invar/models/models.h"
#include "invar/optim/specs.h"
#include "invar/tasks/classification.h"
#include "tests/config/refusals.h"

namespace invar {
namespace {

TEST(Config, HasTheUsualDefaults) {
    const Config config = with({});
    EXPECT_EQ(config, Config{});
    EXPECT_EQ(config.scaler.init_scale, 65536);
    EXPECT_EQ(config.scaler.growth_factor, 2);
    EXPECT_EQ(config.scaler.backoff_factor, 0.5);
    EXPECT_EQ(config.scaler.growth_interval, 2000);
    EXPECT_EQ(config.trainer.max_steps, -1);
    EXPECT_EQ(config.trainer.precision, "32-true");
    EXPECT_EQ(config.trainer.limit_train_batches, BatchCount::all());
    EXPECT_EQ(config.optimizer.as<AdamOptions>().betas, (std::array<double, 2>{0.9, 0.999}));
}

TEST(Config, ReadsYamlWithItsTypes) {
    const Config config = parse_config(R"(
exp_name: a_run            # a comment
seed: 7
trainer:
  precision: "16-mixed"
  gradient_clip_val: 5.0
  benchmark: off
  limit_val_batches: 50
  val_check_interval: 0.25
  precision_overrides: {fc2: no, "conv*": bf16}
model: {name: mlp, hidden: [512, 256], dropout: 0}
optimizer:
  betas: [0.8, 0.9]
)",
                                       "my.yaml");
    EXPECT_EQ(config.exp_name, "a_run");
    EXPECT_EQ(config.seed, 7);
    EXPECT_EQ(config.trainer.precision, "16-mixed");
    EXPECT_EQ(config.trainer.gradient_clip_val, 5.0);
    EXPECT_FALSE(config.trainer.benchmark);
    EXPECT_EQ(config.trainer.limit_val_batches, BatchCount::of(50));
    EXPECT_EQ(config.trainer.val_check_interval.among(100), 25);
    EXPECT_EQ(config.trainer.precision_overrides, (PrecisionOverrides{{"fc2", "32-true"}, {"conv*", "bf16-mixed"}}));
    EXPECT_EQ(config.model.as<MlpOptions>().hidden, (std::vector<std::int64_t>{512, 256}));
    EXPECT_EQ(config.model.as<MlpOptions>().dropout, 0.0);
    EXPECT_EQ(config.optimizer.as<AdamOptions>().betas[0], 0.8);
}

TEST(Config, PrintsWhatItReadsBackEqual) {
    const Config config = with(
        {"trainer=fp16_safe", "trainer.precision_overrides={fc2: 32-true, 'a: b*': bf16}",
         "exp_name=it's \"quoted\" \\ #1: x", "init_from= spaced ", "model=mlp", "model.hidden=[3,2,1]",
         "data=cifar100", "trainer.limit_val_batches=0.1", "trainer.limit_train_batches=1", "optimizer.lr=0.1",
         "optimizer.eps=1.2345678901234567e-9", "output_dir=null_", "data.root=~/daten/ä", "trainer.amp_level=o2"});
    const std::string yaml = to_yaml(config);
    EXPECT_EQ(parse_config(yaml, "printed"), config) << yaml;
    EXPECT_EQ(to_yaml(parse_config(yaml, "printed")), yaml);
    for (const char* word :
         {"null", "~", "true", "yes", "123", "1e5", "-", "- a", "[", "{", "&a", "*a", "!t", "%", "@", "`"}) {
        const Config odd = with({std::string("init_from=\"") + word + "\""});
        EXPECT_EQ(odd.init_from, word);
        EXPECT_EQ(parse_config(to_yaml(odd), "printed"), odd) << word;
    }
}

TEST(Config, EveryKeyIsPrintedAndCanBeSetToItsDefault) {
    for (const KeyInfo& key : config_keys()) {
        const std::string section = key.key.substr(0, key.key.find('.'));
        std::vector<std::string> chosen;
        if (!key.part.empty()) chosen.push_back(section + ".name=" + key.part);
        const auto also = [&](const std::string& word) {
            std::vector<std::string> words = chosen;
            words.push_back(word);
            return with(words);
        };
        const Config plain = with(chosen);
        EXPECT_NE(to_yaml(plain).find(key.key.substr(key.key.find('.') + 1) + ":"), std::string::npos) << key.key;
        EXPECT_FALSE(key.help.empty()) << key.key;
        EXPECT_EQ(also(key.key + "=" + key.default_value), plain) << key.key;
        EXPECT_EQ(also(key.key + "=null"), plain) << key.key;
        for (const std::string& alias : key.aliases) EXPECT_EQ(also(alias + "=" + key.default_value), plain) << alias;
    }
}

// INVAR_UPDATE_DOCS=1 writes it anew.
TEST(Config, EveryKeyIsDocumented) {
    const fs::path file = fs::path(INVAR_SOURCE_DIR) / "docs/CONFIG.md";
    std::stringstream doc;
    doc << std::ifstream(file).rdbuf();
    const std::string text = doc.str(), head = "\n## Keys\n\n";
    const std::size_t begin = text.find(head);
    ASSERT_NE(begin, std::string::npos);
    if (std::getenv("INVAR_UPDATE_DOCS") != nullptr)
        std::ofstream(file) << text.substr(0, begin) << head << keys_markdown();
    else
        EXPECT_EQ(text.substr(begin + head.size()), keys_markdown()) << "run this test with INVAR_UPDATE_DOCS=1";
}

TEST(Config, EveryShippedFileLoads) {
    for (const std::string& group : config_groups()) {
        for (const std::string& name : config_choices(group, kShipped)) {
            EXPECT_NO_THROW(with({group + "=" + name})) << group << "=" << name;
            const fs::path path = kShipped.config_dirs[0] / group / (name + ".yaml");
            if (!fs::exists(path)) continue;  // a registered part
            std::ifstream file(path);
            EXPECT_EQ(file.get(), '#') << group << "/" << name << " does not say on top what it is for";
        }
    }
    EXPECT_GE(config_choices("experiment", kShipped).size(), 3u);
}

TEST(Config, ShipsTheTrainersOfTheGuide) {
    const Config safe = with({"trainer=fp16_safe"});
    EXPECT_EQ(safe.trainer.precision, "16-mixed");
    EXPECT_EQ(safe.trainer.gradient_clip_val, 5.0);
    EXPECT_EQ(safe.trainer.gradient_clip_algorithm, "norm");
    EXPECT_EQ(safe.trainer.accumulate_grad_batches, 2);
    EXPECT_TRUE(safe.trainer.benchmark);
    const Config conservative = with({"trainer=fp16_conservative"});
    EXPECT_EQ(conservative.trainer.gradient_clip_val, 10.0);
    EXPECT_EQ(conservative.trainer.accumulate_grad_batches, 4);
    EXPECT_EQ(with({"trainer=bf16"}).trainer.precision, "bf16-mixed");
    EXPECT_EQ(with({"trainer=default"}).trainer.precision, "32-true");
}

TEST(Config, TheLaterOfTwoOverridesWins) {
    EXPECT_EQ(with({"trainer.max_epochs=3", "trainer.max_epochs=4"}).trainer.max_epochs, 4);
    EXPECT_EQ(with({"max_epochs=3", "trainer.max_epochs=4", "+max_epochs=5"}).trainer.max_epochs, 5);
    EXPECT_EQ(with({"trainer=bf16", "trainer=fp16_safe"}).trainer.precision, "16-mixed");
    EXPECT_EQ(with({"trainer.max_epochs=3", "trainer.max_epochs=null"}).trainer.max_epochs,
              Config{}.trainer.max_epochs);
}

TEST(Config, ATildeTakesAKeyOrAGroupFileBackAsInHydra) {
    const Folder folder;
    folder.write("scheduler/fast.yaml", "warmup_steps: 7\n");
    folder.write("experiment/mine.yaml",
                 "defaults: [{scheduler: fast}]\ntrainer: {max_epochs: 9, precision_overrides: {a: bf16, b: bf16}}\n");
    const auto mine = [&](const std::vector<std::string>& words) {
        return load_config("mine", words, folder.sources());
    };
    ASSERT_EQ(mine({}).scheduler.warmup_steps, 7);
    EXPECT_EQ(mine({"~trainer.max_epochs"}).trainer.max_epochs, Config{}.trainer.max_epochs);
    EXPECT_EQ(mine({"~trainer.precision_overrides.a"}).trainer.precision_overrides,
              (PrecisionOverrides{{"b", "bf16-mixed"}}));
    for (const char* word : {"~scheduler", "scheduler=null"})
        EXPECT_EQ(mine({word}).scheduler.warmup_steps, Config{}.scheduler.warmup_steps) << word;
    EXPECT_TRUE(says(refusal_of("~trainer.max_epoch"), {"trainer.max_epoch", "did you mean 'trainer.max_epochs'?"}));
    EXPECT_TRUE(says(refusal_of("~seed=3"), {"'~seed=3' has a value", "by its name alone"}));
    EXPECT_TRUE(says(refusal_of("~"), {"'~' names no key"}));
}

TEST(Config, ASingleValueBeatsAGroupFileWhereverItStands) {
    EXPECT_EQ(with({"trainer=fp16_safe", "trainer.gradient_clip_val=1"}).trainer.gradient_clip_val, 1.0);
    EXPECT_EQ(with({"trainer.gradient_clip_val=1", "trainer=fp16_safe"}).trainer.gradient_clip_val, 1.0);
}

TEST(Config, AnExperimentIsItsDefaultsThenItself) {
    const Config config = load_config("mnist_mlp", {}, kShipped);
    EXPECT_EQ(config.model.name(), "mlp");
    EXPECT_EQ(config.model.as<MlpOptions>().hidden, (std::vector<std::int64_t>{512}));
    EXPECT_EQ(config.data.name(), "mnist");
    EXPECT_EQ(config.trainer.gradient_clip_val, 0.0);  // of trainer/default.yaml
    EXPECT_EQ(config.trainer.max_epochs, 5);
    EXPECT_EQ(load_config("", {"experiment=mnist_mlp"}, kShipped), config);
}

TEST(Config, AGroupPickedOnTheCommandLineReplacesTheExperiments) {
    Folder folder;
    folder.write("trainer/a.yaml", "trainer: {gradient_clip_val: 3, max_epochs: 7}");
    folder.write("trainer/b.yaml", "precision: bf16");
    folder.write("experiment/x.yaml", "defaults: [{trainer: a}, _self_]\ntrainer: {precision: fp16}\nseed: 3");
    const Config plain = load_config("x", {}, folder.sources());
    EXPECT_EQ(plain.trainer.gradient_clip_val, 3.0);
    EXPECT_EQ(plain.trainer.precision, "16-mixed");
    const Config picked = load_config("x", {"trainer=b"}, folder.sources());
    EXPECT_EQ(picked.trainer.gradient_clip_val, 0.0) << "the replaced file must leave no trace";
    EXPECT_EQ(picked.trainer.max_epochs, 1);
    EXPECT_EQ(picked.trainer.precision, "bf16-mixed") << "the command line beats the file";
    EXPECT_EQ(picked.seed, 3);
}

TEST(Config, SelfStandsWhereItIsListed) {
    Folder folder;
    folder.write("trainer/a.yaml", "max_epochs: 7");
    folder.write("experiment/first.yaml", "defaults: [_self_, {trainer: a}]\ntrainer: {max_epochs: 2}");
    folder.write("experiment/last.yaml", "defaults: [{trainer: a}]\ntrainer: {max_epochs: 2}");
    EXPECT_EQ(load_config("first", {}, folder.sources()).trainer.max_epochs, 7);
    EXPECT_EQ(load_config("last", {}, folder.sources()).trainer.max_epochs, 2);
}

TEST(Config, AnExperimentCanExtendAnother) {
    Folder folder;
    folder.write("trainer/a.yaml", "gradient_clip_val: 7");
    folder.write("trainer/b.yaml", "precision: bf16");
    folder.write("experiment/base.yaml", "defaults: [{trainer: a}]\nseed: 1\nexp_name: base");
    folder.write("experiment/more.yaml", "defaults: [base, {override /trainer: b}, _self_]\nexp_name: more");
    const Config config = load_config("more", {}, folder.sources());
    EXPECT_EQ(config.seed, 1);
    EXPECT_EQ(config.exp_name, "more");
    EXPECT_EQ(config.trainer.precision, "bf16-mixed");
    EXPECT_EQ(config.trainer.gradient_clip_val, 0.0);
}

TEST(Config, GroupFilesMayWrapTheirKeysOrNot) {
    Folder folder;
    folder.write("trainer/wrapped.yaml", "trainer:\n  max_epochs: 7\nscaler:\n  init_scale: 1024");
    folder.write("trainer/bare.yaml", "max_epochs: 7\nscaler: {init_scale: 1024}");
    const Config wrapped = load_config("", {"trainer=wrapped"}, folder.sources());
    EXPECT_EQ(wrapped.trainer.max_epochs, 7);
    EXPECT_EQ(wrapped.scaler.init_scale, 1024);
    EXPECT_EQ(load_config("", {"trainer=bare"}, folder.sources()), wrapped);
}

TEST(Config, AFileIsFoundByPathWithItsGroupsBesideIt) {
    Folder folder;
    folder.write("trainer/mine.yaml", "max_epochs: 9");
    const fs::path file = folder.write("run.yaml", "defaults:\n  - trainer: mine\n  - model: mlp\n");
    const Config config = load_config(file.string(), {}, kShipped);
    EXPECT_EQ(config.trainer.max_epochs, 9);
    EXPECT_EQ(config.model.name(), "mlp");  // of the shipped ones
}

TEST(Config, AcceptsTheNamesOfOtherTools) {
    EXPECT_EQ(parse_config("policy: {precision: bfloat16, max_grad_norm: 0.5}", "nemo.yaml").trainer.precision,
              "bf16-mixed");
    EXPECT_EQ(with({"policy.max_grad_norm=0.5"}).trainer.gradient_clip_val, 0.5);
    EXPECT_EQ(with({"mixed_precision=fp16"}).trainer.precision, "16-mixed");
    EXPECT_EQ(with({"amp_opt_level=O2"}).trainer.amp_level, "O2");
    EXPECT_EQ(with({"mixed_precision=O1"}).trainer.precision, "16-mixed");
    EXPECT_EQ(with({"mixed_precision=O3"}).trainer.precision, "16-true");
    EXPECT_THROW(with({"mixed_precision=O2"}), UsageError) << "a level, which the precision's name would lose";
    EXPECT_EQ(with({"grad_scaler_init=2048"}).scaler.init_scale, 2048);
    EXPECT_EQ(with({"grad_accum_steps=2"}).trainer.accumulate_grad_batches, 2);
}

TEST(Config, AcceptsKeysWithoutTheirSectionWhereThatIsClear) {
    EXPECT_EQ(with({"precision=bf16"}).trainer.precision, "bf16-mixed");
    EXPECT_EQ(with({"gradient_clip_val=10.0"}).trainer.gradient_clip_val, 10.0);
    EXPECT_EQ(with({"lr=0.0005"}).optimizer.lr, 0.0005);
    EXPECT_EQ(with({"batch_size=32"}).data.batch_size, 32);
    EXPECT_EQ(parse_config("precision: 16-mixed", "my.yaml").trainer.precision, "16-mixed");
    EXPECT_EQ(with({"precision_overrides.block.fc2=fp32"}).trainer.precision_overrides[0].first, "block.fc2");
    EXPECT_TRUE(says(refusal_of("classes=3"), {"could be model.classes or data.classes"}));
}

TEST(Config, ResolvesPrecisionWithItsLevel) {
    EXPECT_EQ(with({"precision=fp16"}).trainer.resolved_precision(), Precision::parse("16-mixed"));
    EXPECT_EQ(with({"precision=16-true"}).trainer.resolved_precision(), Precision::parse("16-true"));
    EXPECT_EQ(with({"precision=fp16", "amp_level=O3"}).trainer.resolved_precision(), Precision::parse("16-true"));
    EXPECT_EQ(with({"precision=no", "amp_level=O1"}).trainer.resolved_precision(), Precision{});
    for (const char* key : {"trainer.precision", "trainer.precision_overrides.fc1", "trainer.precision_schedule.5"})
        EXPECT_TRUE(says(refusal_of(std::string(key) + "=fp8"), {key, "command line", "not train in FP8"})) << key;
}

TEST(Config, CountsBatchesAsLightningDoesButTrainsOnAllForZero) {
    EXPECT_EQ(with({"trainer.limit_val_batches=50"}).trainer.limit_val_batches.among(100), 50);
    EXPECT_EQ(with({"trainer.limit_val_batches=50"}).trainer.limit_val_batches.among(20), 20);
    EXPECT_EQ(with({"trainer.limit_val_batches=0.5"}).trainer.limit_val_batches.among(101), 50);
    EXPECT_EQ(with({"trainer.limit_val_batches=0.001"}).trainer.limit_val_batches.among(20), 1);
    EXPECT_EQ(with({"trainer.limit_val_batches=1"}).trainer.limit_val_batches.among(20), 1);
    EXPECT_EQ(with({"trainer.limit_val_batches=1.0"}).trainer.limit_val_batches.among(20), 20);
    EXPECT_EQ(with({"trainer.limit_val_batches=0"}).trainer.limit_val_batches.among(20), 0);
    EXPECT_EQ(with({"trainer.limit_train_batches=0"}).trainer.limit_train_batches.among(20), 20);
    EXPECT_TRUE(says(refusal_of("trainer.limit_val_batches=1.5"), {"trainer.limit_val_batches = 1.5", "share"}));
    EXPECT_TRUE(says(refusal_of("trainer.limit_val_batches=-1"), {"trainer.limit_val_batches = -1"}));
    EXPECT_TRUE(says(refusal_of("trainer.val_check_interval=0"), {"above 0"}));
}

}  // namespace
}  // namespace invar
