// `invar tokenize`.
#include <fmt/format.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace invar::cli {
namespace {

class Tokenize : public CliTest {
  protected:
    void write(const std::string& name, const std::string& text) const {
        std::ofstream(folder_ / name, std::ios::binary) << text;
    }
    std::vector<unsigned> tokens(const std::string& name) const {
        const std::string bytes = slurp(folder_ / name);
        std::vector<std::uint16_t> numbers(bytes.size() / 2);
        std::memcpy(numbers.data(), bytes.data(), numbers.size() * 2);
        return {numbers.begin(), numbers.end()};
    }
    using Tokens = std::vector<unsigned>;
};

TEST_F(Tokenize, WritesBytesAndATableOfWhatItDid) {
    write("a.txt", "ab"), write("b.txt", "c\xff");
    const Result result = invar({"tokenize", "a.txt", "b.txt", "--tokenizer", "bytes", "-o", "out.bin"});
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(tokens("out.bin"), (Tokens{97, 98, 256, 99, 255})) << "what is not UTF-8 stays";
    for (const char* word : {"bytes/token", "a.txt", "b.txt", "2 files", "0.80", "out.bin: 5 tokens of 257 (uint16)"})
        EXPECT_TRUE(has(result.out, word)) << word << "\n" << result.out;
}

TEST_F(Tokenize, PutsTheEndOfTextWhereItIsAskedTo) {
    write("a.txt", "a"), write("b.txt", "b");
    const auto made = [&](const std::string& eot) {
        EXPECT_EQ(
            invar({"tokenize", "a.txt", "b.txt", "--tokenizer", "bytes", "-o", "o.bin", "--force", "--eot", eot}).code,
            0);
        return tokens("o.bin");
    };
    EXPECT_EQ(made("between"), (Tokens{97, 256, 98}));
    EXPECT_EQ(made("after"), (Tokens{97, 256, 98, 256}));
    EXPECT_EQ(made("none"), (Tokens{97, 98}));
}

TEST_F(Tokenize, LearnsATokenizerAndUsesItAgain) {
    std::string text;
    for (int i = 0; i < 500; ++i) text += "low lower lowest\n";
    write("a.txt", text);
    const Result learned = invar({"tokenize", "a.txt", "--train", "270", "-o", "made/a.bin"});
    EXPECT_EQ(learned.code, 2) << "there is no such folder";
    const Result result = invar({"tokenize", "a.txt", "--train", "270", "-o", "a.bin"});
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_TRUE(has(result.out, "tokenizer.json: 264 tokens") && has(result.out, "264 learned, of the 270 asked for"))
        << result.out;
    ASSERT_EQ(invar({"tokenize", "a.txt", "--tokenizer", "tokenizer.json", "-o", "b.bin"}).code, 0);
    EXPECT_EQ(slurp(folder_ / "a.bin"), slurp(folder_ / "b.bin"));
    EXPECT_EQ(tokens("a.bin").size(), 500u * 4);
    ASSERT_EQ(invar({"tokenize", "a.txt", "--train", "258", "-o", "c.bin", "--save", "own.json"}).code, 0);
    EXPECT_TRUE(std::filesystem::exists(folder_ / "own.json"));
}

TEST_F(Tokenize, SaysItInJsonToo) {
    write("a.txt", "abcd");
    const Result result =
        invar({"tokenize", "a.txt", "--tokenizer", "bytes", "-o", "o.bin", "--format", "llmc", "--json"});
    ASSERT_EQ(result.code, 0) << result.err;
    const auto line = nlohmann::json::parse(result.out);
    EXPECT_EQ(line.at("tokens"), 4);
    EXPECT_EQ(line.at("bytes"), 4);
    EXPECT_EQ(line.at("format"), "llmc uint16");
    EXPECT_EQ(line.at("vocabulary"), 257);
    EXPECT_EQ(std::filesystem::file_size(folder_ / "o.bin"), 1024u + 8);
}

TEST_F(Tokenize, TakesATextFromAPipe) {
    EXPECT_EQ(shell("printf 'abc' | invar tokenize /dev/stdin --tokenizer bytes -o o.bin").code, 0);
    EXPECT_EQ(tokens("o.bin"), (Tokens{97, 98, 99}));
    const Result twice = shell("printf 'abc' | invar tokenize /dev/stdin --train 300 -o p.bin");
    EXPECT_EQ(twice.code, 2);
    EXPECT_TRUE(has(twice.error(), "reads the texts twice"));
}

TEST_F(Tokenize, RefusesWhatCannotBeDoneInOneLine) {
    write("a.txt", "ab"), write("empty.txt", ""), write("bad.json", "{\"model\":{\"type\":\"WordPiece\"}}"),
        write("there.bin", "x");
    const auto refused = [&](const Words& words, const std::string& fragment) {
        Words all = {"tokenize"};
        all.insert(all.end(), words.begin(), words.end());
        const Result result = invar(all);
        EXPECT_EQ(result.code, 2) << fragment;
        EXPECT_TRUE(has(result.error(), fragment)) << result.err;
    };
    refused({"a.txt", "--tokenizer", "bytes"}, "say where the tokens go");
    refused({"a.txt", "-o", "o.bin"}, "say by which tokenizer");
    refused({"a.txt", "-o", "o.bin", "--tokenizer", "bytes", "--train", "300"}, "leave out --tokenizer");
    for (const char* train : {"100", "0", "-5", "many", "4k", "99999999999999999999"})
        refused({"a.txt", "-o", "o.bin", "--train", train},
                fmt::format("--train {}: it takes a whole number of tokens, at least 257", train));
    refused({"a.txt", "-o", "o.bin", "--tokenizer", "bytes", "--save", "x"}, "--save is for");
    refused({"a.txt", "-o", "o.bin", "--tokenizer", "bytes", "--eot", "often"}, "one of between, after, none");
    refused({"a.txt", "-o", "o.bin", "--tokenizer", "bytes", "--format", "int8"}, "none of uint16, uint32, llmc");
    refused({"a.txt", "-o", "there.bin", "--tokenizer", "bytes"}, "there.bin exists already; --force replaces it");
    refused({"a.txt", "-o", "o.bin", "--tokenizer", "none.json"}, "none.json");
    refused({"a.txt", "-o", "o.bin", "--tokenizer", "bad.json"}, "bad.json: the model \"WordPiece\" is not supported");
    refused({"none.txt", "-o", "o.bin", "--tokenizer", "bytes"}, "none.txt");
    refused({"empty.txt", "-o", "o.bin", "--tokenizer", "bytes"}, "the file is empty");
    EXPECT_FALSE(std::filesystem::exists(folder_ / "o.bin"));
    EXPECT_EQ(slurp(folder_ / "there.bin"), "x");
}

TEST_F(Tokenize, WritesNeitherOverWhatItReadsNorTwoThingsToOneFile) {
    std::filesystem::create_directory(folder_ / "sub");
    write("a.txt", "ab ab ab"), write("b.txt", "cd"), write("own.json", "{}"), write("sub/tokenizer.json", "{}");
    std::filesystem::create_symlink("b.txt", folder_ / "link.txt");
    const auto refused = [&](const Words& words, const std::string& fragment) {
        Words all = {"tokenize", "a.txt", "b.txt", "--force"};
        all.insert(all.end(), words.begin(), words.end());
        const Result result = invar(all);
        EXPECT_EQ(result.code, 2) << fragment;
        EXPECT_TRUE(has(result.error(), fragment)) << result.err;
    };
    refused({"--train", "258", "-o", "same", "--save", "sub/../same"},
            "same: the tokens and the tokenizer cannot both");
    refused({"--train", "258", "-o", "tokenizer.json"}, "tokenizer.json: the tokens and the tokenizer cannot both");
    refused({"--tokenizer", "bytes", "-o", "./b.txt"}, "./b.txt: it is read, and would be replaced");
    refused({"--tokenizer", "bytes", "-o", "link.txt"}, "link.txt: it is read");
    refused({"--train", "258", "-o", "o.bin", "--save", "a.txt"}, "a.txt: it is read");
    refused({"--tokenizer", "own.json", "-o", "own.json"}, "own.json: it is read");
    refused({"--tokenizer", "sub", "-o", "sub/tokenizer.json"}, "sub/tokenizer.json: it is read");
    EXPECT_EQ(slurp(folder_ / "a.txt") + slurp(folder_ / "b.txt"), "ab ab abcd");
    EXPECT_EQ(slurp(folder_ / "own.json") + slurp(folder_ / "sub/tokenizer.json"), "{}{}");
    EXPECT_FALSE(std::filesystem::exists(folder_ / "same") || std::filesystem::exists(folder_ / "o.bin"));
}

TEST_F(Tokenize, LeavesNothingWhenItIsInterrupted) {
    std::string text;
    for (int i = 0; i < 300'000; ++i) text += fmt::format("line {} of a text that is long enough\n", i);
    for (int i = 0; i < 12; ++i) write(fmt::format("{}.txt", i), text);
    const Result result = shell(
        "invar tokenize *.txt --tokenizer bytes --threads 1 -o o.bin & until ls -A | grep -q o.bin; do "
        "kill -0 $! || break; sleep 0.01; done; kill -TERM $!; wait $!");
    EXPECT_EQ(result.code, 143) << result.err;
    EXPECT_TRUE(has(result.err, "interrupted by SIGTERM; nothing was written")) << result.err;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
        EXPECT_FALSE(has(entry.path().filename().string(), "o.bin")) << entry.path();
}

TEST_F(Tokenize, ShowsHowFarItIsOnATerminal) {
    if (!lends_terminals()) GTEST_SKIP() << "this system lends no pseudo-terminals";
    std::string text;
    for (int i = 0; i < 400'000; ++i) text += fmt::format("line {} of a text that is long enough\n", i);
    write("a.txt", text);
    const Result result = on_terminal({"tokenize", "a.txt", "--train", "400", "-o", "o.bin"});
    EXPECT_EQ(result.code, 0) << result.out;
    for (const char* word : {"counting words", "tokenizing", "%", "ETA"}) EXPECT_TRUE(has(result.out, word)) << word;
}

}  // namespace
}  // namespace invar::cli
