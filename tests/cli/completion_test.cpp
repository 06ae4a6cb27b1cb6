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
    EXPECT_EQ(completed("invar tokenize --eot a"), "after\n");
    EXPECT_EQ(completed("invar export runs/gpt out --dtype b"), "bf16\n");
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

TEST_F(Completion, GoesOnBehindAnOptionThatTakesNothingAndBehindAPlugin) {
    EXPECT_EQ(completed("invar train --debug mnist_m"), "mnist_mlp\n");
    EXPECT_EQ(completed("invar --plugin book.txt tra"), "train\n");
    EXPECT_EQ(completed("invar --plugin book.txt train trainer.max_e"), "trainer.max_epochs=\n");
}

}  // namespace
}  // namespace invar::cli
