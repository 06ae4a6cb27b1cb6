// The files that ship in configs/ against what docs/CONFIG.md says of them, and what a command line takes back.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "invar/core/error.h"
#include "tests/core/expect_error.h"
#include "tests/train/scratch_run.h"

namespace invar {
namespace {

const ConfigSources kShipped{{std::filesystem::path(INVAR_SOURCE_DIR) / "configs"}};

// Every key with its value.
std::map<std::string, std::string> values_of(const Config& config) {
    std::map<std::string, std::string> values;
    std::istringstream yaml(to_yaml(config));
    std::string section;
    for (std::string line; std::getline(yaml, line);) {
        const std::size_t colon = line.find(':');
        if (colon + 1 == line.size())
            section = line.substr(0, colon) + ".";
        else
            values[(line[0] == ' ' ? section + line.substr(2, colon - 2) : line.substr(0, colon))] =
                line.substr(colon + 2);
    }
    return values;
}

// "`trainer.precision=bf16-mixed`", and so on: what picking a file changes of the defaults.
std::string changed_by(const std::string& group, const std::string& name) {
    std::map<std::string, std::string> defaults = values_of(load_config("", {}, kShipped));
    const std::map<std::string, std::string> picked = values_of(load_config("", {group + "=" + name}, kShipped));
    const std::string choice = group + ".name";
    if (picked.contains(choice)) {  // of the part's own keys, what they are without the file
        const std::string name_before = defaults.at(choice);
        defaults = values_of(load_config("", {choice + "=" + picked.at(choice)}, kShipped));
        defaults.at(choice) = name_before;
    }
    std::string text;
    for (const auto& [key, value] : picked)
        if (defaults.at(key) != value) text += fmt::format("{}`{}={}`", text.empty() ? "" : " ", key, value);
    return text;
}

TEST(Names, HoldValuesOfOtherKeys) {
    const auto load = [](std::vector<std::string> words) { return load_config("", words, kShipped); };
    EXPECT_EQ(load({"exp_name=run_${seed}", "seed=7"}).exp_name, "run_7");
    EXPECT_EQ(load({"exp_name=${model.name}-${optimizer.lr}x", "model=mlp", "optimizer.lr=0.25"}).exp_name,
              "mlp-0.25x");
    EXPECT_EQ(load({"output_dir=out/${trainer.precision}"}).output_dir, "out/32-true");
    EXPECT_ERROR(load({"exp_name=run_${sede}"}), UsageError, "there is no key 'sede'");
    EXPECT_ERROR(load({"exp_name=run_${seed"}), UsageError, "lacks a }");
    EXPECT_ERROR(load({"exp_name=${exp_name}"}), UsageError, "not a value itself");
}

TEST(ConfigFiles, NamedDefaultSetNothingButTheDefaults) {
    for (const std::string& group : config_groups())
        for (const std::string& name : config_choices(group, kShipped))
            EXPECT_TRUE(name != "default" || changed_by(group, name).empty()) << group;
}

TEST(ConfigFiles, AreDocumentedWithAllThatTheyChange) {
    std::ostringstream doc;
    doc << std::ifstream(std::filesystem::path(INVAR_SOURCE_DIR) / "docs/CONFIG.md").rdbuf();
    for (const std::string& group : config_groups()) {
        if (group == "experiment") continue;  // whole runs, which say on top what they are
        for (const std::string& name : config_choices(group, kShipped)) {
            if (!std::filesystem::exists(kShipped.config_dirs[0] / group / (name + ".yaml"))) continue;
            const std::string changes = changed_by(group, name);
            const std::string row =
                fmt::format("| `{}={}` | {} |\n", group, name, changes.empty() ? "the defaults" : changes);
            EXPECT_NE(doc.str().find(row), std::string::npos) << "docs/CONFIG.md lacks the row:\n" << row;
        }
    }
}

TEST(ConfigFiles, ATildeThatTakesBackNothingIsAnError) {
    const ScratchFolder folder;
    for (const char* group : {"scheduler", "experiment"}) std::filesystem::create_directories(folder.path() / group);
    std::ofstream(folder.path() / "scheduler/fast.yaml") << "warmup_steps: 7\n";
    std::ofstream(folder.path() / "experiment/mine.yaml")
        << "defaults: [{scheduler: fast}]\ntrainer: {max_epochs: 9, precision_overrides: {a: bf16}}\n";
    const auto load = [&](const std::vector<std::string>& words) { load_config("mine", words, {{folder.path()}}); };
    load({"~trainer.max_epochs", "~trainer.precision_overrides", "~scheduler"});
    load({"scheduler=fast", "~scheduler"});
    load({"trainer.max_steps=3", "~trainer.max_steps"});
    load({"~trainer.precision_overrides.a", "~trainer.precision_overrides"});
    for (const char* word : {"trainer.max_steps", "optimizer", "experiment", "trainer", "trainer.precision_schedule"})
        EXPECT_ERROR(load({std::string("~") + word}), UsageError, std::string("'~") + word + "' takes back nothing");
    EXPECT_ERROR(load({"~trainer.max_epochs", "~trainer.max_epochs"}), UsageError, "takes back nothing");
    EXPECT_ERROR(load({"~trainer.precision_overrides.9"}), UsageError, "there is no such entry to take back");
    EXPECT_ERROR(load({"~trainer.precision_schedule.9"}), UsageError, "there is no such entry to take back");
}

TEST(ConfigFiles, AnEntryOfAMapWithoutAValueIsAnErrorWhereThereIsNoneToTakeBack) {
    const auto load = [&](const std::string& word) { load_config("", {word}, {}); };
    EXPECT_ERROR(load("trainer.precision_overrides={0:bf16}"), UsageError, "write a space after the colon");
    EXPECT_ERROR(load("trainer.precision_overrides={fc1: }"), UsageError, "trainer.precision_overrides.fc1 = null");
    EXPECT_ERROR(load("trainer.precision_schedule={4: }"), UsageError, "trainer.precision_schedule.4 = null");
    EXPECT_ERROR(parse_config("trainer: {precision_overrides: {fc1: null}}", "a.yaml"), UsageError, "a.yaml:1");
}

}  // namespace
}  // namespace invar
