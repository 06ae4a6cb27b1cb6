// Documents, help pages, start-up lines and reports name only what there is.
#include "tests/docs/names.h"

#include "tests/cli/program.h"
#include "tests/docs/markdown.h"

namespace invar::docs {
namespace {

namespace fs = std::filesystem;

// Words that look like names of ours.
const std::map<std::string, std::string>& elsewhere() {
    static const std::map<std::string, std::string> words = {
        {"FP8", "what tensors are held against; nothing trains in it, and the documents say so"},
        {"model.safetensors", "a file"},
        {"model.safetensors.index.json", "a file"},
        {"model.conv1.weight", "a tensor"},
        {"optimizer.exp_avg", "tensors of a checkpoint"},
        {"scheduler=null", "Hydra's word for none, which composing understands"},
        {"optimizer=optimizer", "Python's argument"},
        {"scaler=scaler", "Python's argument"},
        {"--norm-weight-decay", "an option of torchvision's"},
        {"--signal", "an option of sbatch's"},
        {"model=residual_net", "the reader's own"},
        {"data=shapes", "the reader's own"},
        {"task=worst_class", "the reader's own"},
        {"scheduler=restarts", "the reader's own"},
        {"scheduler.cycles", "a key of it"},
    };
    return words;
}

class Names : public cli::CliTest {
  protected:
    Registry registry() const {
        const cli::Result script = invar({"completion", "fish"});
        EXPECT_EQ(script.code, 0) << script.err;
        return Registry::of_program(script.out, INVAR_SOURCE_DIR "/configs");
    }
    static void expect_none_missing(const NameCheck& check) {
        for (const std::string& missing : check.missing()) ADD_FAILURE() << missing;
    }
    std::vector<Code> documents_code() const {
        std::vector<Code> all;
        for (const fs::path& file : documents(INVAR_SOURCE_DIR))
            for (Code& code : code_of(file)) all.push_back(std::move(code));
        return all;
    }
    std::vector<Code> help_code(const Registry& registry) const {
        std::vector<Code> all = lines_of(invar({"help"}).out, "invar help");
        for (const auto& [command, options] : registry.options)
            for (Code& code : lines_of(invar({command, "--help"}).out, "invar " + command + " --help"))
                all.push_back(std::move(code));
        return all;
    }
};

TEST_F(Names, OfDocumentsAreThereToBeUsed) {
    const Registry registry = this->registry();
    NameCheck check(registry, elsewhere());
    check.look_at(documents_code());
    for (const fs::path& file : documents(INVAR_SOURCE_DIR))
        check.look_for_formats(lines_of(cli::slurp(file), file.filename().string()));
    expect_none_missing(check);
    EXPECT_GT(check.seen("key"), 400);
    EXPECT_GT(check.seen("command"), 150);
    EXPECT_GT(check.seen("option"), 100);
    EXPECT_GT(check.seen("precision"), 100);
    EXPECT_GT(check.seen("choice"), 50);
    EXPECT_GT(check.seen("experiment"), 40);
    for (const std::string& word : check.idle()) ADD_FAILURE() << word << " is excused, and no document names it";
}

TEST_F(Names, OfHelpPagesAreThereToBeUsed) {
    const Registry registry = this->registry();
    EXPECT_GT(registry.options.size(), 15u);
    NameCheck check(registry, elsewhere());
    check.look_at(help_code(registry));
    check.look_for_formats(help_code(registry));
    expect_none_missing(check);
    EXPECT_GT(check.seen("key"), 200);
    EXPECT_GT(check.seen("command"), 20);
}

TEST_F(Names, OfStartUpLinesAndReportsAreThereToBeUsed) {
    const Registry registry = this->registry();
    const std::map<std::string, std::string> none;
    NameCheck check(registry, none);
    const auto look = [&](const std::string& text, const std::string& name) {
        check.look_at(lines_of(text, name));
        check.look_for_formats(lines_of(text, name));
    };
    for (const char* precision : {"fp16", "bf16", "no"}) {
        const cli::Result run = invar(small({"--mixed_precision", precision, std::string("exp_name=") + precision}));
        ASSERT_EQ(run.code, 0) << run.err;
        look(run.out + run.err, std::string("invar train, ") + precision);
    }
    const cli::Result run = invar(small({"--candidates", "fp16,bf16"}, {"validate"}));
    ASSERT_NE(run.code, 2) << run.err;
    look(run.out + run.err, "invar validate");
    int reports = 0;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder_ / "runs")) {
        const std::string name = entry.path().filename().string();
        if (name != "report.md" && name != "config.yaml" && name != "summary.json" && name != "report.json" &&
            name != "report.html")
            continue;
        ++reports;
        look(cli::slurp(entry.path()), name);
    }
    EXPECT_GT(reports, 4);
    expect_none_missing(check);
    EXPECT_GT(check.seen("precision"), 6);
}

// What the three above would say of a document that promises too much.
TEST_F(Names, ThatAreNowhereAreFound) {
    const Registry registry = this->registry();
    NameCheck check(registry, elsewhere());
    check.look_at(
        code_in("Set `trainer.turbo` or `wings.flap=1`, with `fp4-mixed` and `--fly`, over\n`trainer.precision`.\n"
                "```sh\ninvar soar up\ninvar train phantom model=phantom \\\n  --glide trainer.precision=fp12 "
                "wing=2\ninvar train synthetic model=mlp seed=3 --resume\n```\n```cpp\nmodel.turbo\n```\n",
                "A.md"));
    check.look_for_formats({{"Runs in FP16, BF16 and FP4.", "A.md:9"}});
    const std::set<std::string> found(check.missing().begin(), check.missing().end());
    EXPECT_EQ(found,
              (std::set<std::string>{"A.md:1: there is no key trainer.turbo", "A.md:1: there is no key wings.flap",
                                     "A.md:1: there is no precision fp4-mixed", "A.md:1: there is no option --fly",
                                     "A.md:4: there is no command soar", "A.md:6: there is no experiment phantom",
                                     "A.md:6: there is no choice model=phantom", "A.md:6: there is no option --glide",
                                     "A.md:6: there is no precision fp12", "A.md:9: there is no precision FP4",
                                     "A.md:6: there is no key wing"}));
    EXPECT_EQ(check.seen("key"), 6) << "trainer.precision twice, seed, and the three that are nowhere";
}

}  // namespace
}  // namespace invar::docs
