// `invar completion`: what bash offers for the word that is being typed.
#include "tests/cli/program.h"

namespace invar::cli {
namespace {

class Completion : public CliTest {
  protected:
    void SetUp() override {
        std::ofstream(folder_ / "completion.bash") << invar({"completion", "bash"}).out;
        std::filesystem::create_directories(folder_ / "my-gpt");
        std::filesystem::create_directories(folder_ / "my-llama");
        for (const char* name : {"book.txt", "tokens.json", "my-gpt/model.safetensors", "two words.txt"})
            std::ofstream(folder_ / name) << "";
    }
    // The replies for a line with the cursor at its end, one a line. Those behind a '=' are without what stands before
    // it, which bash takes for a word of its own.
    std::string completed(const std::string& line) const {
        const Result result = shell("source completion.bash; COMP_LINE='" + line +
                                    "'; COMP_POINT=${#COMP_LINE}; _invar 2>/dev/null; "
                                    "((${#COMPREPLY[@]} == 0)) || printf '%s\\n' \"${COMPREPLY[@]}\"");
        EXPECT_EQ(result.code, 0) << result.err;
        return result.out;
    }
};

TEST_F(Completion, OffersNamesOfFilesWhereOneIsMeant) {
    EXPECT_EQ(completed("invar tokenize bo"), "book.txt\n");
    EXPECT_EQ(completed("invar inspect my-gpt/mo"), "my-gpt/model.safetensors\n");
    EXPECT_EQ(completed("invar compare my-l"), "my-llama\n");
    EXPECT_EQ(completed("invar tokenize book.txt --tokenizer to"), "tokens.json\n");
    EXPECT_EQ(completed("invar tokenize book.txt --tokenizer=to"), "tokens.json\n");
    EXPECT_EQ(completed("invar tokenize book.txt -o bo"), "book.txt\n");
    EXPECT_EQ(completed("invar tokenize two\\ w"), "two words.txt\n");
    EXPECT_EQ(completed("invar train --resume my-g"), "my-gpt\n");
    EXPECT_EQ(completed("invar --plugin bo"), "book.txt\n");
    EXPECT_EQ(completed("invar formats bo"), "");
}

TEST_F(Completion, OffersThemBehindAKeyToo) {
    EXPECT_EQ(completed("invar train data.path=boo"), "book.txt\n");
    EXPECT_EQ(completed("invar train gpt init_from=my-l"), "my-llama\n");
    EXPECT_EQ(completed("invar train data.path=my-gpt/m"), "my-gpt/model.safetensors\n");
    EXPECT_EQ(completed("invar train trainer.max_epochs=bo"), "");
}

TEST_F(Completion, OffersTheValuesOfAnOptionAndNothingElse) {
    EXPECT_EQ(completed("invar train --mixed_precision f"), "fp16\n");
    EXPECT_EQ(completed("invar train --mixed_precision=bf16-"), "bf16-mixed\nbf16-true\n");
    EXPECT_EQ(completed("invar bench --recompute l"), "light\n");
    EXPECT_EQ(completed("invar bench --recompute "), "none\nlight\nblock\n");
    EXPECT_EQ(completed("invar bench --precisions 32-true,bf"), "32-true,bf16-mixed\n32-true,bf16-true\n");
    EXPECT_EQ(completed("invar plan --card h"), "h200\nh100\n");
    EXPECT_EQ(completed("invar plan --strategies ddp,z"), "ddp,zero1\nddp,zero2\n");
    EXPECT_EQ(completed("invar tokenize --eot a"), "after\n");
    EXPECT_EQ(completed("invar export runs/gpt out --dtype b"), "bf16\n");
    EXPECT_EQ(completed("invar tune --as "), "fp16\nbf16\n");
    EXPECT_EQ(completed("invar inspect x --as fp16,e"), "fp16,e4m3\nfp16,e5m2\n");
    EXPECT_EQ(completed("invar train --amp_opt_level O"), "O0\nO1\nO2\nO3\n");
    EXPECT_EQ(completed("invar train --checkpoint b"), "best\nbook.txt\n");
    EXPECT_EQ(completed("invar validate --candidates 16-mixed,con"), "16-mixed,configured\n");
    EXPECT_EQ(completed("invar ops --class w"), "wide_inside\nwidest\n");
    EXPECT_EQ(completed("invar train --threads "), "");
    EXPECT_EQ(completed("invar completion "), "bash\nzsh\nfish\n");
}

TEST_F(Completion, OffersTheValuesOfAKey) {
    EXPECT_EQ(completed("invar train trainer.precision=b"), "bf16-mixed\nbf16-true\n");
    EXPECT_EQ(completed("invar train trainer.recompute=l"), "light\n");
    EXPECT_EQ(completed("invar train trainer.amp_level=O"), "O0\nO1\nO2\nO3\n");
    EXPECT_EQ(completed("invar train scaler.enabled="), "true\nfalse\n");
    EXPECT_EQ(completed("invar train trainer=fp16_s"), "fp16_safe\n");
}

TEST_F(Completion, IsFishsToo) {
    if (shell("command -v fish").code != 0) GTEST_SKIP() << "there is no fish here";
    std::ofstream(folder_ / "completion.fish") << invar({"completion", "fish"}).out;
    const auto offered = [&](const std::string& line) {
        return shell("HOME=$PWD fish --no-config -c 'source completion.fish; complete -C \"" + line + "\"'").out;
    };
    EXPECT_EQ(offered("invar train --device c"), "cpu\ncuda\n");
    EXPECT_EQ(offered("invar tune --as "), "bf16\nfp16\n");
    EXPECT_EQ(offered("invar bench --precisions 32-true,bf"), "32-true,bf16-mixed\n32-true,bf16-true\n");
    EXPECT_EQ(offered("invar train trainer.precision=bf"),
              "trainer.precision=bf16-mixed\ntrainer.precision=bf16-true\n");
    EXPECT_EQ(offered("invar tokenize book.txt --tokenizer tok"), "tokens.json\n");
}

TEST_F(Completion, IsZshsToo) {
    if (shell("command -v zsh").code != 0) GTEST_SKIP() << "there is no zsh here";
    std::ofstream(folder_ / "completion.zsh") << invar({"completion", "zsh"}).out;
    // Its functions are called outside of a line editor: what would be offered is printed instead.
    const auto offered = [&](const std::string& words, const std::string& prefix) {
        return shell(
                   "zsh -f -c 'compdef() {}; compset() {}; _files() { print files }; compadd() { shift; print -l "
                   "-- $*; }; source ./completion.zsh; words=(invar " +
                   words + " \"" + prefix + "\"); CURRENT=${#words}; PREFIX=\"" + prefix + "\"; _invar'")
            .out;
    };
    EXPECT_EQ(offered("train --device", ""), "cpu\ncuda\nauto\n");
    EXPECT_EQ(offered("tune --as", ""), "fp16\nbf16\n");
    EXPECT_EQ(offered("train --checkpoint", ""), "last\nbest\nfiles\n");
    EXPECT_EQ(offered("train gpt", "scaler.enabled="), "true\nfalse\n");
    EXPECT_EQ(offered("train --threads", ""), "");
    EXPECT_EQ(offered("tokenize", "bo"), "files\n");
}

TEST_F(Completion, GoesOnBehindAnOptionThatTakesNothingAndBehindAPlugin) {
    EXPECT_EQ(completed("invar train --debug mnist_m"), "mnist_mlp\n");
    EXPECT_EQ(completed("invar --plugin book.txt tra"), "train\n");
    EXPECT_EQ(completed("invar --plugin book.txt train trainer.max_e"), "trainer.max_epochs=\n");
}

}  // namespace
}  // namespace invar::cli
