// Plug-ins, good and bad: each is compiled here, from a few lines.
#include "invar/core/shell.h"
#include "tests/cli/program.h"

namespace invar::cli {
namespace {

class Plugins : public CliTest {
  protected:
    // The file of a plug-in made of these lines.
    std::string compile(const std::string& name, const std::string& code) {
        std::ofstream(folder_ / (name + ".cpp")) << code;
        const Result built = shell(std::string(INVAR_CXX) + " -std=c++20 -O0 -shared -fPIC -I " +
                                   shell_word(INVAR_SOURCE_DIR) + " " + name + ".cpp -o lib" + name + ".so");
        EXPECT_EQ(built.code, 0) << built.err;
        return "./lib" + name + ".so";
    }
    void expect_refused(const std::string& plugin, const std::string& why) {
        for (const Words& words : {Words{"--plugin", plugin, "train", "data=synthetic"},
                                   Words{"train", "data=synthetic", "plugins=[" + plugin + "]"}}) {
            const Result result = invar(words);
            EXPECT_EQ(result.code, 2) << result.err;
            EXPECT_TRUE(has(result.err, "command line: plug-in " + plugin + ": " + why)) << result.err;
            EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << "one line: " << result.err;
        }
        EXPECT_FALSE(std::filesystem::exists(folder_ / "runs"));
    }
};

const char* kModel = R"(
#include "invar/models/registry.h"
#include "invar/plugin.h"
using namespace invar;
struct Options { std::int64_t turns = 3; };
const RegisterModel<Options> kModel{"NAME", "Of a test.",
    [](const Options&, const DataInfo&) { return std::unique_ptr<Module>(); },
    {key("turns", &Options::turns, within(1, 9), "How often.")}};
INVAR_PLUGIN {}
)";

std::string model_named(const std::string& name) {
    std::string code = kModel;
    return code.replace(code.find("NAME"), 4, name);
}

TEST_F(Plugins, BringTheirKeysToHelpCompletionErrorsAndFiles) {
    const std::string plugin = compile("whirl", model_named("whirl"));
    EXPECT_TRUE(has(invar({"--plugin", plugin, "train", "--help"}).out, "model.turns=3"));
    EXPECT_TRUE(has(invar({"completion", "bash", "--plugin=" + plugin}).out, " model.turns= "));
    EXPECT_TRUE(has(invar({"train", "--plugin", plugin, "model=whirl", "model.turns=10"}).err, "from 1 to 9"));
    EXPECT_TRUE(has(invar({"train", "--plugin", plugin, "model.turn=1"}).err, "did you mean 'model.turns'?"));
    std::filesystem::create_directory(folder_ / "mine");
    std::ofstream(folder_ / "mine/run.yaml") << "model: {name: whirl, turns: 5}\nplugins: [../libwhirl.so]\n";
    const Result printed = invar({"train", "mine/run.yaml", "--print-config"});
    EXPECT_TRUE(has(printed.out, "turns: 5") && has(printed.out, "plugins: [" + folder_.string())) << printed.err;
    EXPECT_TRUE(
        has(invar({"train", "--plugin", plugin, "model=whirl", "data=synthetic"}).err, "model 'whirl' made no module"));
}

TEST_F(Plugins, OfAFileMayHaveTheirKeysSetByWordsAndAreMissedByName) {
    compile("whirl", model_named("whirl"));
    std::ofstream(folder_ / "run.yaml") << "plugins: [libwhirl.so]\nmodel: {name: whirl, turns: 5}\n";
    EXPECT_TRUE(has(invar({"train", "run.yaml", "model.turns=6", "--print-config"}).out, "turns: 6"));
    std::filesystem::remove(folder_ / "libwhirl.so");
    const Result gone = invar({"train", "run.yaml"});
    EXPECT_EQ(gone.code, 2);
    EXPECT_TRUE(has(gone.err, "run.yaml:2: model.name = whirl: there is no such model") &&
                has(gone.err, "the plug-in libwhirl.so is not there"))
        << gone.err;
    std::ofstream(folder_ / "run.yaml") << "plugins: [libwhirl.so]\nmodel: {name: mlp}\n";
    EXPECT_EQ(invar({"train", "run.yaml", "--print-config"}).code, 0) << "nothing of it is needed";
}

TEST_F(Plugins, ThatAreNoneAreRefusedInOneLine) {
    EXPECT_TRUE(has(invar({"--plugin", "gone.so", "train"}).err, "command line: there is no plug-in gone.so"));
    EXPECT_TRUE(has(invar({"train", "--plugin"}).err, "--plugin needs a file"));
    std::ofstream(folder_ / "text.so") << "not a library";
    expect_refused("./text.so", "is no plug-in of Invar; put INVAR_PLUGIN {} into one of its files");
    std::ofstream(folder_ / "marked.so") << "invar plug-in for version 0.1.0";
    expect_refused("./marked.so", "is no whole shared library");
    const std::string whole = compile("cut", model_named("cut"));
    std::filesystem::resize_file(folder_ / "libcut.so", std::filesystem::file_size(folder_ / "libcut.so") - 100);
    expect_refused(whole, "is no whole shared library");
    expect_refused(compile("plain", "int nothing;"), "is no plug-in of Invar");
    expect_refused(compile("idle", "#include \"invar/plugin.h\"\nINVAR_PLUGIN {}"),
                   "registers nothing with this program");
}

TEST_F(Plugins, OfAnotherVersionAreRefusedBeforeAnyOfTheirCodeRuns) {
    const std::string plugin = compile("old", R"(
#include <algorithm>
#include <cstdlib>
extern "C" const char invar_plugin_version[] = "invar plug-in for version 0.0.9";
extern "C" void invar_plugin_start() {}
const int kRan = (std::_Exit(77), 0);
)");
    expect_refused(plugin, "was built for Invar 0.0.9, and this is ");
}

TEST_F(Plugins, ThatThrowAreToldOf) {
    expect_refused(compile("throws",
                           "#include <stdexcept>\n#include \"invar/plugin.h\"\n"
                           "INVAR_PLUGIN { throw std::runtime_error(\"no licence\"); }"),
                   "threw when it was loaded: no licence");
    expect_refused(compile("odd", "#include \"invar/plugin.h\"\nINVAR_PLUGIN { throw 7; }"),
                   "threw when it was loaded, and did not say what");
    expect_refused(compile("early",
                           "#include <stdexcept>\n#include \"invar/plugin.h\"\nINVAR_PLUGIN {}\n"
                           "int f() { throw std::runtime_error(\"too early\"); }\nconst int kEarly = f();"),
                   "threw when it was loaded: too early");
    expect_refused(compile("twice", model_named("mlp")), "the model 'mlp' cannot be registered: there is one");
}

}  // namespace
}  // namespace invar::cli
