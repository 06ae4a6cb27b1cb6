// What a configuration refuses, each in one line that says where it stands and what to write instead.
#include "tests/config/refusals.h"

#include <gtest/gtest.h>

#include "invar/data/synthetic.h"
#include "invar/models/models.h"

namespace invar {
namespace {

TEST(Config, RefusesUnknownKeysWithTheNearest) {
    EXPECT_TRUE(says(refusal_of("trainer.max_epoch=3"),
                     {"command line", "'trainer.max_epoch'", "did you mean 'trainer.max_epochs'?"}));
    EXPECT_TRUE(says(refusal_of("max_epoch=3"), {"did you mean 'trainer.max_epochs'?"}));
    EXPECT_TRUE(says(refusal_of("modle=gpt"), {"did you mean 'model'?"}));
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
    for (const char* word : {"data.mixup_alpha=0.2", "mixup_alpha=0.2", "trainer.mixup_alpha=0.2"})
        EXPECT_TRUE(says(refusal_of(word), {"unknown key", "use data.mixup,"}));
    for (const char* word : {"num_classes=10", "data.num_classes=10"})
        EXPECT_TRUE(says(refusal_of(word), {"unknown key", "as many outputs as the data have classes; leave it out"}));
    for (const char* word : {"model.pretrained=true", "pretrained=true"})
        EXPECT_TRUE(says(refusal_of(word), {"unknown key", "use init_from=FILE"}));
    EXPECT_TRUE(says(refusal_of("optimizer.norm_weight_decay=0"),
                     {"unknown key", "use optimizer.decay_norms_and_biases=false"}));
    EXPECT_TRUE(says(refusal_of("trainer.fp16=true"), {"use trainer.precision=16-mixed"}));
}

TEST(Config, SaysThatAModelWithoutAKeyForClassesTakesThemFromTheData) {
    EXPECT_TRUE(says(refusal([] {
                         load_config("", {"model.name=lenet", "model.num_classes=10"}, kShipped);
                     }),
                     {"model.classes = 10", "the model lenet has no such key", "leave it out"}));
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

TEST(Config, SaysWhatToNameInsteadOfAFolder) {
    Folder folder;
    folder.write("runs/mine/config.yaml", "seed: 1\n");
    const auto refused = [&](const fs::path& path) {
        return refusal([&] { load_config(path, {}, folder.sources()); });
    };
    EXPECT_TRUE(says(refused(folder.path() / "runs/mine"),
                     {"runs/mine is the folder of a run", "runs/mine/config.yaml", "--resume /", "goes on with it"}));
    EXPECT_TRUE(says(refused(folder.path() / "runs"), {"runs is a folder", "name a file of keys or an experiment"}));
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
