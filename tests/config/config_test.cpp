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

namespace invar {
namespace {

namespace fs = std::filesystem;

const ConfigSources kShipped{{fs::path(INVAR_SOURCE_DIR) / "configs"}};

Config with(const std::vector<std::string>& overrides) {
    return load_config("", overrides, kShipped);
}

// The message of the UsageError that this must throw.
std::string refusal(auto&& call) {
    try {
        call();
    } catch (const UsageError& error) {
        EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << "not one line: " << error.what();
        return error.what();
    }
    ADD_FAILURE() << "no UsageError was thrown";
    return "";
}
std::string refusal_of(const std::string& override) {
    return refusal([&] { with({override}); });
}
std::string refusal_of_yaml(const std::string& yaml) {
    return refusal([&] { parse_config(yaml, "my.yaml"); });
}

testing::AssertionResult says(const std::string& message, std::initializer_list<const char*> parts) {
    for (const char* part : parts)
        if (message.find(part) == std::string::npos)
            return testing::AssertionFailure() << "'" << part << "' is not in: " << message;
    return testing::AssertionSuccess();
}

// A folder of configurations for one test.
class Folder {
  public:
    Folder() {
        std::string name = (fs::temp_directory_path() / "invar-config-XXXXXX").string();
        path_ = mkdtemp(name.data());
    }
    ~Folder() { fs::remove_all(path_); }
    fs::path write(const std::string& name, const std::string& text) const {
        fs::create_directories((path_ / name).parent_path());
        std::ofstream(path_ / name, std::ios::binary) << text;
        return path_ / name;
    }
    ConfigSources sources() const { return {{path_}}; }
    const fs::path& path() const { return path_; }

  private:
    fs::path path_;
};

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

TEST(Config, RefusesUnknownKeysWithTheNearest) {
    EXPECT_TRUE(says(refusal_of("trainer.max_epoch=3"),
                     {"command line", "'trainer.max_epoch'", "did you mean 'trainer.max_epochs'?"}));
    EXPECT_TRUE(says(refusal_of("max_epoch=3"), {"did you mean 'trainer.max_epochs'?"}));
    EXPECT_TRUE(says(refusal_of("optim.lr=3"), {"did you mean 'optimizer.lr'?"}));
    EXPECT_TRUE(says(refusal_of("trainer.gradient_clip=3"), {"did you mean 'trainer.gradient_clip_val'?"}));
    EXPECT_TRUE(says(refusal_of_yaml("seed: 1\ntrainer:\n  precison: fp16\n"),
                     {"my.yaml:3", "did you mean 'trainer.precision'?"}));
    EXPECT_TRUE(says(refusal_of("data.hieght=3"), {"did you mean 'data.height'?"}));
    EXPECT_TRUE(says(refusal([] {
                         with({"data=table", "data.hieght=3"});
                     }),
                     {"unknown key 'data.hieght'; "}))
        << "a table has no height";
    EXPECT_TRUE(says(refusal_of("frobnicate=3"), {"unknown key 'frobnicate'", "--print-config"}));
    EXPECT_TRUE(
        says(refusal_of_yaml("trainer:\n  max_epochs:\n    deep: 3\n"), {"my.yaml:3", "trainer.max_epochs.deep"}));
}

TEST(Config, KnowsWhatAnyFileHasChosenWhereItNamesTheNearestKey) {
    Folder folder;
    folder.write("experiment/mine.yaml", "data:\n  name: table\n");
    folder.write("experiment/late.yaml", "data:\n  hieght: 3\n  name: table\n");
    folder.write("experiment/picks.yaml", "defaults: [{data: rows}]");
    folder.write("experiment/drawn.yaml", "data:\n  name: synthetic\n");
    folder.write("data/rows.yaml", "name: table\n");
    const auto refused = [&](const std::string& name, const std::vector<std::string>& words = {}) {
        return refusal([&] { load_config(name, words, folder.sources()); });
    };
    const std::vector<std::string> misspelt = {"data.hieght=3"};
    for (const char* chosen : {"mine", "picks"})
        EXPECT_TRUE(says(refused(chosen, misspelt), {"unknown key 'data.hieght'; "})) << "a table has no height";
    EXPECT_TRUE(says(refused("late"), {"late.yaml:2", "unknown key 'data.hieght'; "}));
    EXPECT_TRUE(says(refused("drawn", misspelt), {"did you mean 'data.height'?"}));
    EXPECT_TRUE(says(refused("mine", {"data=synthetic", "data.hieght=3"}), {"did you mean 'data.height'?"}));
    EXPECT_TRUE(says(refused("mine", {"data.name=synthetic", "data.hieght=3"}), {"did you mean 'data.height'?"}));
    EXPECT_TRUE(says(refusal_of_yaml("data:\n  name: table\n  hieght: 3\n"), {"unknown key 'data.hieght'; "}));
}

TEST(Config, SaysWhatToUseInsteadOfOtherToolsKeys) {
    EXPECT_TRUE(says(refusal_of("logger.wandb.offline=true"), {"logger.wandb.enabled"}));
    EXPECT_TRUE(says(refusal_of("logger.mlflow.enabled=true"), {"logger.tensorboard=true"}));
    EXPECT_TRUE(says(refusal_of("trainer.accelerator=gpu"), {"trainer.device"}));
}

TEST(Config, RefusesUnknownChoicesWithTheNearestAndTheList) {
    EXPECT_TRUE(says(refusal_of("trainer=fp16_save"),
                     {"no trainer 'fp16_save'", "did you mean 'fp16_safe'?", "bf16, default"}));
    EXPECT_TRUE(says(refusal([] { load_config("fashion_mist", {}, kShipped); }),
                     {"experiment 'fashion_mist'", "did you mean 'fashion_mnist'?"}));
    EXPECT_TRUE(says(refusal([] { load_config("x", {}, ConfigSources{}); }), {"no experiment 'x'"}));
    EXPECT_TRUE(says(refusal([] { load_config("missing.yaml", {}, kShipped); }), {"missing.yaml", "cannot read"}));
    EXPECT_TRUE(says(refusal([] { load_config("/tmp/", {}, kShipped); }), {"/tmp/", "folder"}));
    EXPECT_TRUE(says(refusal_of("trainer=../model/mlp"), {"no trainer"}));
    EXPECT_TRUE(says(refusal_of_yaml("trainer: fp16_safe"), {"my.yaml:1", "section"}));
}

TEST(Config, RefusesBadValuesWithKeyValueOriginAndWhatIsAllowed) {
    EXPECT_TRUE(says(refusal_of("trainer.gradient_clip_val=-1"),
                     {"trainer.gradient_clip_val = -1 (command line)", "at least 0"}));
    EXPECT_TRUE(says(refusal_of_yaml("data:\n  batch_size: 0"), {"data.batch_size = 0 (my.yaml:2)", "from 1 to"}));
    EXPECT_TRUE(
        says(refusal_of("trainer.gradient_clip_algorithm=nrom"), {"one of norm, value", "did you mean 'norm'?"}));
    EXPECT_TRUE(
        says(refusal_of("trainer.precision=bf61"), {"trainer.precision = bf61", "did you mean 'bf16'?", "bf16-mixed"}));
    EXPECT_TRUE(
        says(refusal_of("trainer.precision_overrides.fc1=fp61"), {"trainer.precision_overrides.fc1", "did you mean"}));
    EXPECT_TRUE(says(refusal_of("trainer.precision_overrides=fp16"), {"map"}));
    EXPECT_TRUE(says(refusal_of("scaler.growth_factor=1"), {"above 1"}));
    EXPECT_TRUE(says(refusal_of("scaler.backoff_factor=1"), {"below 1"}));
    EXPECT_TRUE(says(refusal_of("scaler.min_scale=1e6"), {"scaler.init_scale", "scaler.min_scale"}));
    for (const char* bad : {"trainer.max_epochs=0",
                            "trainer.max_epochs=two",
                            "trainer.max_epochs=1.5",
                            "trainer.max_epochs=[1]",
                            "trainer.max_epochs=99999999999999999999",
                            "trainer.max_steps=0",
                            "trainer.benchmark=maybe",
                            "optimizer.lr=nan",
                            "optimizer.lr=inf",
                            "optimizer.lr=1e999",
                            "optimizer.lr=1e300",
                            "optimizer.lr=-1",
                            "optimizer.lr=0x1p3",
                            "optimizer.betas=0.9",
                            "optimizer.betas=[0.9]",
                            "optimizer.betas=[0.9, 1]",
                            "model.dropout=1",
                            "model.hidden=[512, x]",
                            "model.hidden=[[1]]",
                            "model.hidden={a: 1}",
                            "trainer.device=gpu",
                            "trainer.device=cuda:x",
                            "exp_name=../up",
                            "exp_name=..",
                            "exp_name='a\tb'",
                            "exp_name=\xff",
                            "data.name=imagenet",
                            "seed=-1",
                            "trainer.amp_level=O5",
                            "scaler.init_scale=1e-60",
                            "noequals",
                            "=1",
                            "",
                            "~trainer.max_epochs=3",
                            "+=1",
                            "trainer.=1",
                            ".max_epochs=1",
                            "exp_name=[",
                            "exp_name='a"})
        EXPECT_THROW(with({bad}), UsageError) << bad;
}

TEST(Config, RefusesHostileYamlWithFileAndLine) {
    std::string bomb = "a: &a [x, x]\n";
    for (char c = 'b'; c < 'k'; ++c)
        bomb += std::string(1, c) + ": &" + c + " [*" + char(c - 1) + ", *" + char(c - 1) + "]\n";
    EXPECT_TRUE(says(refusal_of_yaml(bomb), {"my.yaml:2", "aliases"}));
    EXPECT_TRUE(says(refusal_of_yaml("seed: 1\nmodel: " + std::string(100000, '[')), {"my.yaml:2"}));
    EXPECT_TRUE(
        says(refusal_of_yaml("a: " + std::string(20, '[') + "1" + std::string(20, ']')), {"my.yaml:1", "deep"}));
    EXPECT_TRUE(says(refusal_of_yaml(std::string(100000, '{')), {"my.yaml:1"}));
    std::string block;
    for (int i = 0; i < 400; ++i) block += std::string(std::size_t(i), ' ') + "a:\n";
    EXPECT_TRUE(says(refusal_of_yaml(block), {"my.yaml:", "deep"}));
    EXPECT_TRUE(says(refusal_of_yaml("exp_name: \"never closed\nseed: 1\n"), {"my.yaml:"}));
    EXPECT_TRUE(says(refusal_of_yaml("seed: 1\nseed: 2\n"), {"my.yaml:2", "twice"}));
    EXPECT_TRUE(
        says(refusal_of_yaml("seed: 1\nprecision: fp16\ntrainer:\n  precision: bf16\n"), {"my.yaml:4", "my.yaml:2"}));
    EXPECT_TRUE(says(refusal_of_yaml("seed: 1\n\x04\ntrainer: {max_epochs: 0}\n"), {"my.yaml:2", "not a text file"}));
    EXPECT_TRUE(says(refusal_of_yaml(std::string("\x7f\x45LF\0\0\1", 7)), {"my.yaml:1", "not a text file"}));
    EXPECT_TRUE(says(refusal_of_yaml("seed: 1\n\xc3\x28"), {"my.yaml:2", "not a text file"}));
    EXPECT_TRUE(says(refusal_of_yaml(std::string(1 << 20, '#')), {"my.yaml", "too large"}));
    EXPECT_TRUE(says(refusal_of_yaml("seed: !!python/object:os.system 1"), {"my.yaml:1", "tags"}));
    EXPECT_TRUE(says(refusal_of_yaml("seed: 1\n---\nseed: 2\n"), {"more than one"}));
    EXPECT_TRUE(says(refusal_of_yaml("exp_name: \"a\\x00b\""), {"exp_name", "UTF-8"}));
    for (const char* bad : {"- a\n- b", "just text", "? [a]\n: b", "? \n: b", "{a", "a: b: c", "\ta: b", "%YAML 9", "&",
                            "*x", "seed: [1", "'': 1"})
        EXPECT_THROW(parse_config(bad, "my.yaml"), UsageError) << bad;
    for (const char* good : {"", "\n", "# nothing", "---\n", "{}", "trainer:\n", "trainer: {}", "\xef\xbb\xbfseed: 0"})
        EXPECT_EQ(parse_config(good, "my.yaml"), Config{}) << good;
}

TEST(Config, AnyPartOfAGoodFileIsReadOrRefused) {
    const std::string yaml =
        "exp_name: 'a'\ntrainer: {precision: \"16-mixed\", max_epochs: 3, precision_overrides: {fc2: no}}\n"
        "model:\n  name: mlp\n  hidden:\n    - 512\n    - 256\noptimizer:\n  betas: [0.9, 0.99]\n";
    EXPECT_EQ(parse_config(yaml, "whole").model.as<MlpOptions>().hidden.size(), 2u);
    for (std::size_t size = 0; size < yaml.size(); ++size) {
        try {
            parse_config(yaml.substr(0, size), "cut");
        } catch (const UsageError&) {
        }
        std::string flipped = yaml;
        flipped[size] = char(flipped[size] ^ (1 << (size % 8)));
        try {
            parse_config(flipped, "flipped");
        } catch (const UsageError&) {
        }
    }
}

TEST(Config, RefusesDefaultsThatCannotBeFollowed) {
    Folder folder;
    folder.write("experiment/loop.yaml", "defaults: [loop]");
    folder.write("experiment/group.yaml", "\ndefaults: [{trianer: x}]");
    folder.write("experiment/choice.yaml", "defaults:\n  - trainer: x");
    folder.write("experiment/shape.yaml", "defaults: trainer");
    folder.write("experiment/twice.yaml", "defaults: [_self_, _self_]");
    const auto refused = [&](const std::string& name) {
        return refusal([&] { load_config(name, {}, folder.sources()); });
    };
    EXPECT_TRUE(says(refused("loop"), {"loop.yaml", "itself"}));
    EXPECT_TRUE(says(refused("group"), {"group.yaml:2", "did you mean 'trainer'?"}));
    EXPECT_TRUE(says(refused("choice"), {"choice.yaml:2", "no trainer 'x'"}));
    EXPECT_TRUE(says(refused("shape"), {"shape.yaml:1", "list"}));
    EXPECT_TRUE(says(refused("twice"), {"twice"}));
    EXPECT_THROW(parse_config("defaults: [a]", "my.yaml"), UsageError);
}

}  // namespace
}  // namespace invar
