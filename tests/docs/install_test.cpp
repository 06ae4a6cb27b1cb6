// What `cmake --install` lays down: documents whose links hold, and a program whose help cites nothing that is not
// there.
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include "invar/core/shell.h"
#include "tests/cli/program.h"
#include "tests/docs/markdown.h"

namespace invar::docs {
namespace {

namespace fs = std::filesystem;

class Installed : public cli::CliTest {
  protected:
    static void SetUpTestSuite() {
        std::string name = (fs::temp_directory_path() / "invar_install_XXXXXX").string();
        prefix_ = ::mkdtemp(name.data());
        const std::string log = (prefix_ / "install.log").string();
        const std::string command = shell_word(INVAR_CMAKE) + " --install " + shell_word(INVAR_BINARY_DIR) +
                                    " --prefix " + shell_word(prefix_.string()) + " >" + shell_word(log) + " 2>&1";
        ASSERT_EQ(std::system(command.c_str()), 0) << cli::slurp(log);
    }
    static void TearDownTestSuite() {
        std::error_code ignored;
        fs::remove_all(prefix_, ignored);
    }
    // What the installed program prints, wherever it is started.
    std::string print(const std::string& words) const {
        const std::string command = "cd / && " + shell_word((prefix_ / "bin/invar").string()) + " " + words + " >" +
                                    shell_word((folder_ / "said").string()) + " 2>&1 </dev/null";
        EXPECT_LT(std::system(command.c_str()), 64 * 256) << words;
        return cli::slurp(folder_ / "said");
    }
    static inline fs::path prefix_;
};

std::vector<std::string> matches(const std::string& text, const std::regex& pattern, int group) {
    std::vector<std::string> found;
    for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it)
        found.push_back((*it)[std::size_t(group)]);
    return found;
}

TEST_F(Installed, HelpCitesOnlyDocumentsThatWereInstalled) {
    std::string top = print("--help");
    const std::size_t list = top.find("Commands:");
    ASSERT_NE(list, top.npos) << top;
    const std::vector<std::string> commands = matches(top.substr(list), std::regex("\n  ([a-z]+) "), 1);
    ASSERT_GT(commands.size(), 8u) << top;
    int cited = 0;
    const auto expect_there = [&](const std::string& text, const std::string& where) {
        // report.md and the like, without a folder, are files that a command writes.
        for (const std::string& path : matches(text, std::regex("(\\S*/\\S*\\.md)\\b"), 1)) {
            ++cited;
            EXPECT_TRUE(path.starts_with(prefix_.string()) && fs::is_regular_file(path)) << where << " cites " << path;
        }
        EXPECT_FALSE(cli::has(text, INVAR_SOURCE_DIR)) << where << " cites the source tree:\n" << text;
    };
    expect_there(top, "invar --help");
    for (const std::string& command : commands)
        expect_there(print(command + " --help"), "invar " + command + " --help");
    expect_there(print("train frobnicate=3"), "the refusal of an unknown key");
    EXPECT_GE(cited, 4);
}

TEST_F(Installed, ConfigurationsAreLookedForBesideTheProgramAndNotInTheSourceTree) {
    const std::string refused = print("train nosuch");
    EXPECT_TRUE(cli::has(refused, (prefix_ / "share/invar/configs/experiment").string())) << refused;
    EXPECT_FALSE(cli::has(refused, INVAR_SOURCE_DIR)) << refused;
    const fs::path configs = prefix_ / "share/invar/configs", aside = prefix_ / "aside";
    fs::rename(configs, aside);
    const std::string without = print("train synthetic --print-config");
    fs::rename(aside, configs);
    EXPECT_TRUE(cli::has(without, "there is no experiment 'synthetic'")) << without;
    EXPECT_TRUE(cli::has(print("train synthetic --print-config"), "exp_name: "));
}

TEST_F(Installed, DocumentsComeWithTheLicenceAndTheirLinksHold) {
    const fs::path root = prefix_ / "share/doc/invar";
    EXPECT_TRUE(fs::is_regular_file(root / "LICENSE") && fs::is_regular_file(root / "CHANGELOG.md"));
    const std::vector<fs::path> files = documents(root);
    EXPECT_GT(files.size(), 10u);
    for (const fs::path& file : files)
        for (std::string link : matches(cli::slurp(file), std::regex("\\]\\(([^) ]+)\\)"), 1)) {
            if (link.find("://") != link.npos || link.starts_with("#")) continue;
            link.erase(std::min(link.find('#'), link.size()));
            EXPECT_TRUE(fs::exists(file.parent_path() / link)) << file << " links to " << link;
        }
}

// Loaded at run time, so no linker would miss it: where it is configured, building the program has built it.
TEST_F(Installed, TheCudaDeviceIsThereWhereItIsBuilt) {
#ifdef INVAR_BUILDS_CUDA
    bool found = false;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(prefix_))
        found = found || entry.path().filename() == "libinvar_cuda.so";
    EXPECT_TRUE(found);
#else
    EXPECT_TRUE(cli::has(print("train --device cuda"), "the CUDA device was not built: "))
        << print("train --device cuda");
#endif
}

// auto is the GPU where it works. Where it is the CPU, nobody should have to guess why.
TEST_F(Installed, ARunSaysWhichDeviceItIsOnAndWhyThatIsNotTheGpu) {
    const auto run = [&](const std::string& device) {
        return print(
            "train data=synthetic data.size=32 data.batch_size=16 model=mlp trainer.limit_val_batches=1 output_dir=" +
            shell_word((folder_ / "runs").string()) + " --device " + device);
    };
    const std::string chosen = run("auto"), named = run("cpu");
    EXPECT_TRUE(cli::has(named, "- device cpu: ") && !cli::has(named, "no GPU is used")) << named;
    if (cli::has(chosen, "- device cuda:0: ")) return;
    EXPECT_TRUE(cli::has(chosen, "- device cpu: ")) << chosen;
#ifdef INVAR_BUILDS_CUDA
    EXPECT_TRUE(cli::has(chosen, "- no GPU is used: ") && !cli::has(chosen, "was not built")) << chosen;
#else
    EXPECT_TRUE(cli::has(chosen, "- no GPU is used: the CUDA device was not built: ")) << chosen;
#endif
}

}  // namespace
}  // namespace invar::docs
