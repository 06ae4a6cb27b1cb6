#include "invar/config/part.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "invar/config/config.h"
#include "invar/config/help.h"
#include "invar/core/error.h"
#include "invar/data/image_set.h"
#include "invar/models/models.h"
#include "invar/optim/specs.h"
#include "invar/tasks/classification.h"
#include "tests/core/expect_error.h"

namespace invar {
namespace {

Config with(const std::vector<std::string>& words) {
    return load_config("", words, {});
}

TEST(Parts, BringTheirOwnKeysAndNoOthers) {
    const ConfigSources shipped{{std::filesystem::path(INVAR_SOURCE_DIR) / "configs"}};
    EXPECT_EQ(load_config("synthetic", {"data=cifar100"}, shipped).data, with({"data=cifar100"}).data);
    EXPECT_EQ(with({"model.name=mlp"}).model.as<MlpOptions>().hidden, (std::vector<std::int64_t>{512}));
    EXPECT_EQ(with({"model.hidden=[3]", "model=convnet", "model.name=mlp"}).model.as<MlpOptions>().hidden[0], 3)
        << "names come first, wherever they stand";
    EXPECT_EQ(with({"data=idx"}), with({"data.name=idx"})) << "a registered part needs no file";
    EXPECT_EQ(with({"loss.weight=2"}).task.as<ClassificationOptions>().loss_weight, 2.0);
    EXPECT_ERROR(with({"data.height=64"}), UsageError, "data.height = 64 (command line)");
    EXPECT_ERROR(with({"data.height=64"}), UsageError, "belongs to synthetic data, and the data is fashion_mnist");
    EXPECT_ERROR(with({"model.hidden=[64]"}), UsageError, "model.hidden");
    EXPECT_ERROR(with({"model.hidden=[64]"}), UsageError, "mlp");
    EXPECT_ERROR(with({"model.hidden=[64]"}), UsageError, "the model is convnet");
    EXPECT_ERROR(with({"optimizer.momentum=0.9"}), UsageError, "sgd optimizer");
    EXPECT_ERROR(with({"optimizer.momentum=0.9"}), UsageError, "optimizer.name=sgd");
    EXPECT_ERROR(with({"model.name=resnet18"}), UsageError, "model.name = resnet18");
    EXPECT_ERROR(with({"model.name=resnet18"}), UsageError, "one of convnet, ");
    EXPECT_ERROR(with({"model=convent"}), UsageError, "did you mean 'convnet'?");
}

// What a file says of a part that the command line replaces goes with it, but for what the new one has too.
TEST(Parts, ThatTheCommandLineReplacesTakeTheirKeysWithThem) {
    const ConfigSources shipped{{std::filesystem::path(INVAR_SOURCE_DIR) / "configs"}};
    for (const char* word : {"data=icdar2015", "data.name=icdar2015"}) {
        const Config config = load_config("dbnet_small", {word}, shipped);
        EXPECT_EQ(config.data.name(), "icdar2015");
        EXPECT_EQ(config.data.batch_size, 8);
        EXPECT_ERROR(load_config("dbnet_small", {word, "data.scenes=9"}, shipped), UsageError, "belongs to scene_text");
    }
    EXPECT_ERROR(load_config("dbnet_small", {"data.height=9"}, shipped), UsageError, "belongs to synthetic");
}

struct WhirlOptions {
    std::int64_t turns = 3;
};

TEST(Parts, ThatAreRegisteredHaveTheirKeysEverywhere) {
    register_part<WhirlOptions>("model", "whirl", "Only of this test.",
                                {key("turns", &WhirlOptions::turns, within(1, 9), "How often.")}, std::any());
    check_registered();
    EXPECT_EQ(with({"model=whirl", "model.turns=4"}).model.as<WhirlOptions>().turns, 4);
    EXPECT_EQ(with({"turns=4", "model=whirl"}).model.as<WhirlOptions>().turns, 4);
    EXPECT_NE(with({"model=whirl", "model.turns=4"}), with({"model=whirl"}));
    EXPECT_NE(to_yaml(with({"model=whirl"})).find("  name: whirl\n  turns: 3\n"), std::string::npos);
    EXPECT_ERROR(with({"model.turns=4"}), UsageError, "belongs to whirl model");
    EXPECT_ERROR(with({"model.turn=4"}), UsageError, "did you mean 'model.turns'?");
    EXPECT_THROW(with({"model=whirl", "model.turns=10"}), UsageError);
    EXPECT_NE(parts_help().find("model.turns=3"), std::string::npos);
    EXPECT_THROW(with({"model=whirl"}).model.as<MlpOptions>(), UsageError);
    Part part("model", "whirl");
    EXPECT_EQ(part.set("turns", "7").as<WhirlOptions>().turns, 7);
    EXPECT_THROW(part.set("twists", "7"), UsageError);
    EXPECT_THROW(part.choose("whirled"), UsageError);
}

struct Counted {
    int count = 3;
    double share = 2.0;
};
struct Thrower {
    Thrower() { throw std::runtime_error("no options today"); }
};

// In a process of its own: what is registered stays.
template <class Options>
void expect_refused(const std::string& name, const std::vector<Key>& keys, const std::string& why) {
    const auto refused = [&] {
        register_part<Options>("data", name, "", keys, std::any());
        try {
            check_registered();
        } catch (const UsageError& error) {
            fmt::print(stderr, "{}\n", error.what());
            std::_Exit(3);
        }
    };
    EXPECT_EXIT(refused(), testing::ExitedWithCode(3), "the data '.*' cannot be registered: " + why);
}

TEST(PartsDeathTest, ThatCannotBeRegisteredAreErrorsThatNameThem) {
    using C = Counted;
    expect_refused<C>("synthetic", {}, "there is one");
    expect_refused<C>("two words", {}, "its name must be made of");
    expect_refused<C>("x", {key("a\nb", &C::count, any(), ".")}, "its key 'a.*b' must be made of");
    expect_refused<C>("x", {key("", &C::count, any(), ".")}, "its key '' must be made of");
    expect_refused<C>("x", {key("name", &C::count, any(), ".")}, "it has two keys 'name', or one that is taken");
    expect_refused<C>("x", {key("share", &C::share, within(0, 1), ".")},
                      "its key 'share' does not allow its own default");
    expect_refused<C>("x", {key("turns", &WhirlOptions::turns, any(), ".")}, "its key 'turns' is a member of another");
    expect_refused<Thrower>("x", {}, "no options today");
}

TEST(Parts, MayHaveKeysOfPlainInt) {
    Counted options;
    const Key count = key("count", &Counted::count, within(0, 1e18), "How many.");
    const auto set = [&](const std::string& text) { count.set(&options, {"count", "", parse_yaml(text, "x"), "x"}); };
    set("7");
    EXPECT_EQ(options.count, 7);
    EXPECT_EQ(count.print(&options), "7");
    EXPECT_EQ(count.type, "integer");
    EXPECT_ERROR(set("4294967297"), UsageError, "32 bits");
}

// As runs wrote it when every key was listed whatever was chosen.
TEST(Parts, ConfigurationsOfOlderRunsAreRead) {
    const std::string old =
        "model: {name: convnet, hidden: [], classes: 10, dropout: 0.5}\n"
        "loss: {name: exp, weight: 0.5}\n"
        "data: {name: fashion_mnist, root: there, size: 60000, height: 28, width: 28, channels: 1, classes: 10}\n"
        "optimizer: {name: adam, lr: 0.1, momentum: 0, nesterov: false, betas: [0.9, 0.99], eps: 1e-8}\n"
        "scheduler: {name: cosine, step_size: 1000, gamma: 0.1, min_lr: 0.01, pct_start: 0.3}\n"
        "stability: {window: 40}\n";
    const Config config = parse_config(old, "config.yaml");
    EXPECT_EQ(config.task.name(), "exponential_loss");
    EXPECT_EQ(config.task.as<ClassificationOptions>().loss_weight, 0.5);
    EXPECT_EQ(config.model.as<ConvNetOptions>().dropout, 0.5);
    EXPECT_EQ(config.data.as<ImageOptions>().root, "there");
    EXPECT_EQ(config.optimizer.as<AdamOptions>().betas[1], 0.99);
    EXPECT_EQ(config.scheduler.as<CosineOptions>().min_lr, 0.01);
    EXPECT_EQ(config.stability.window, 40);
    EXPECT_THROW(parse_config("loss: {name: exp}\n", "mine.yaml"), UsageError) << "nobody's run";
}

TEST(Part, ExceptionsOfOtherKindsAreToldWithItsName) {
    const auto bad = []() -> int { throw std::out_of_range("no such layer"); };
    EXPECT_ERROR(made_by(Part("model", "mine"), bad), Error, "model 'mine': no such layer");
    const auto ours = []() -> int { fail<UsageError>("model.layers = 0: must be at least 1"); };
    EXPECT_ERROR(made_by(Part("model", "mine"), ours), UsageError, "model.layers = 0: must be at least 1");
}

}  // namespace
}  // namespace invar
