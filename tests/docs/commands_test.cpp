// Every block of the documents is one that works: commands are run on data that stands in for the real, configurations
// are read, C++ is compiled and run (extract.cpp, frames/).
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>

#include "invar/core/shell.h"
#include "invar/io/safetensors.h"
#include "invar/ops/creation.h"
#include "tests/cli/program.h"
#include "tests/docs/markdown.h"

namespace invar::docs {

void PrintTo(const Block& block, std::ostream* out) {
    *out << block.file << ":" << block.line;
}

namespace {

namespace fs = std::filesystem;

std::vector<Block> blocks_in(std::string_view language) {
    std::vector<Block> found = all_blocks(INVAR_SOURCE_DIR);
    std::erase_if(found, [&](const Block& block) { return block.language != language || !block.skip.empty(); });
    return found;
}

// A folder with the program, and with what the documents' commands name: tensors, and logs of other people's runs.
class Documents : public cli::CliTest, public ::testing::WithParamInterface<Block> {
  protected:
    Documents() {
        for (const char* folder : {"build/bin", "bin"}) {
            fs::create_directories(folder_ / folder);
            fs::create_symlink(INVAR_BINARY_DIR "/bin/invar", folder_ / folder / "invar");
        }
        fs::copy_file(INVAR_SOURCE_DIR "/README.md", folder_ / "README.md");  // a text to learn
        const std::map<std::string, Tensor> tensors = {{"w", ops::normal({8, 8}, 0, 1e-6)}};
        for (const char* name : {"gradients", "model", "shard-1", "shard-2"})
            save_safetensors(folder_ / (std::string(name) + ".safetensors"), tensors);
        int salt = 0;
        for (const char* name :
             {"fp32/metrics.csv", "fp16/metrics.csv", "logs/fp32/version_0/metrics.csv",
              "logs/fp16/version_0/metrics.csv", "fp32_runs/a/metrics.csv", "fp32_runs/b/metrics.csv",
              "fp16_runs/a/metrics.csv", "fp16_runs/b/metrics.csv", "bf16_runs/a/metrics.csv",
              "bf16_runs/b/metrics.csv", "a0/metrics.csv", "a1/metrics.csv", "b0/metrics.csv", "b1/metrics.csv"})
            write_log(name, ++salt, false);
        for (const char* name : {"a_seed0.jsonl", "a_seed1.jsonl", "b_seed0.jsonl", "b_seed1.jsonl"})
            write_log(name, ++salt, true);
        write_chart("export.csv");
    }

    // As W&B exports a chart: a run a column.
    void write_chart(const fs::path& name) const {
        std::ofstream out(folder_ / name);
        out << "Step,fp32-a - val/accuracy,bf16-a - val/accuracy\n";
        for (int step = 1; step <= 20; ++step)
            out << step << "," << 0.8 + 0.005 * step << "," << 0.8001 + 0.005 * step << "\n";
    }

    void write_log(const fs::path& name, int salt, bool json) const {
        fs::create_directories((folder_ / name).parent_path());
        std::ofstream out(folder_ / name);
        if (!json) out << "step,val/hmean,val_accuracy\n";
        for (int step = 1; step <= 20; ++step) {
            const double accuracy = 0.8 + 0.005 * step + 1e-4 * ((salt * 7 + step) % 5) + 1e-5 * salt;  // no two alike
            if (json)
                out << "{\"step\": " << step << ", \"val_accuracy\": " << accuracy << "}\n";
            else
                out << step << "," << accuracy << "," << accuracy << "\n";
        }
    }

    // Runs a line of shell there; the exit code.
    int shell(const std::string& line) const {
        const std::string script = "cd " + shell_word(folder_.string()) +
                                   " && export PATH=" + shell_word((folder_ / "bin").string()) +
                                   ":$PATH XDG_STATE_HOME=$PWD/.state " +
                                   "INVAR_CONFIG_DIR=" + shell_word(INVAR_SOURCE_DIR "/tests/docs/configs") + "\n{ " +
                                   line + "\n} >.out 2>.err </dev/null";
        const int status = std::system(script.c_str());
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    std::string said() const { return cli::slurp(folder_ / ".out") + cli::slurp(folder_ / ".err"); }
};

// Commands whose exit code is a verdict: any but that of a refusal will do. A lesson is a run that goes wrong.
bool gives_verdict(const std::string& line) {
    for (const char* word :
         {"invar doctor", "invar check", "invar validate", "invar compare", "invar tune", "invar diagnose", "lesson_"})
        if (cli::has(line, word)) return true;
    return false;
}

class Commands : public Documents {};

TEST_P(Commands, AreAcceptedAndEnd) {
    std::vector<std::string> lines = GetParam().after;
    lines.insert(lines.end(), GetParam().lines.begin(), GetParam().lines.end());
    for (const std::string& line : lines) {
        const int code = shell(line);
        const bool fine = gives_verdict(line) ? code != 2 && code < 64 : code == 0;
        EXPECT_TRUE(fine) << GetParam().file << ": " << line << "\nexits with " << code << "\n" << said();
    }
}

INSTANTIATE_TEST_SUITE_P(Docs, Commands, ::testing::ValuesIn(blocks_in("sh")),
                         [](const auto& info) { return info.param.name; });

class Configurations : public Documents {};

TEST_P(Configurations, AreRead) {
    std::ofstream(folder_ / "my_run.yaml") << GetParam().text();
    EXPECT_EQ(shell("invar train my_run.yaml --print-config"), 0) << said();
}

INSTANTIATE_TEST_SUITE_P(Docs, Configurations, ::testing::ValuesIn(blocks_in("yaml")),
                         [](const auto& info) { return info.param.name; });

// A language that nobody tries would be a way around all of this. `text` is what a program prints.
TEST(DocsBlocks, NameTheLanguageOfEachBlock) {
    const std::set<std::string> known = {"cpp", "sh", "yaml", "text"};
    for (const Block& block : all_blocks(INVAR_SOURCE_DIR))
        EXPECT_TRUE(known.contains(block.language) || !block.part_of.empty())
            << block.file << ":" << block.line - 1 << ": '" << block.language << "' is none of cpp, sh, yaml, text";
}

TEST(DocumentFiles, AreQuotedAsTheyAre) {
    int quoted = 0;
    for (const Block& block : all_blocks(INVAR_SOURCE_DIR)) {
        if (block.part_of.empty()) continue;
        ++quoted;
        const std::string file = cli::slurp(fs::path(INVAR_SOURCE_DIR) / block.part_of);
        EXPECT_TRUE(cli::has(file, block.text())) << block.file << ":" << block.line << " is not in " << block.part_of;
    }
    EXPECT_GE(quoted, 6);
}

}  // namespace
}  // namespace invar::docs
