// Text files of any size to one file of tokens: the same tokens as each gives whole.
#include "invar/text/tokenize_files.h"

#include <gtest/gtest.h>

#include <atomic>

#include "invar/io/file.h"
#include "tests/io/scratch.h"
#include "tests/text/families.h"

namespace invar::text {
namespace {

const Merges kMerges = {{"t", "h"}, {"th", "e"}, {" ", "the"}, {"e", "r"}, {" ", " "}, {"\n", "\n"}, {"1", "2"}};

Ids tokens_in(const std::filesystem::path& path) {
    const TokenFile file(path.string());
    std::vector<std::int64_t> tokens(file.size());
    file.read(0, tokens.size(), tokens.data());
    return {tokens.begin(), tokens.end()};
}

class TokenizeFiles : public ::testing::Test {
  protected:
    Ids tokenize(const Tokenizer& tokenizer, const Separator& separator, std::size_t part_bytes, int threads) {
        TokenWriter writer(scratch_ / "out.bin", TokenFormat::uint16, 1000);
        FilePartsOptions options;
        options.part_bytes = part_bytes;
        options.threads = threads;
        std::uint64_t last = 0;
        options.progress = [&](std::uint64_t bytes) {
            EXPECT_GE(bytes, last);
            last = bytes;
            return true;
        };
        EXPECT_TRUE(tokenize_files(tokenizer, files_, separator, options, writer, done_));
        writer.commit();
        return tokens_in(scratch_ / "out.bin");
    }
    void add(const std::string& text) {
        put(files_.emplace_back(scratch_ / fmt::format("{}.txt", files_.size())), text);
        texts_.push_back(text);
    }
    Scratch scratch_;
    std::vector<std::filesystem::path> files_;
    std::vector<std::string> texts_;
    std::vector<TokenizedFile> done_;
};

TEST_F(TokenizeFiles, GivesTheTokensOfTheWholeHoweverSmallTheParts) {
    std::mt19937 random(41);
    for (int i = 0; i < 6; ++i) add(odd_text(random, 2500, i % 2 == 0));
    add("");
    add("short");
    add(std::string(40'000, 'a'));  // nowhere to cut
    Json qwen = split_json(kMerges, kQwenPattern);
    qwen["normalizer"] = {{"type", "NFC"}};
    for (const Json& json :
         {gpt2_json(kMerges), qwen, llama2_json({"▁", "t", "h", "e", "r"}, {{"t", "h"}, {"th", "e"}, {"▁", "the"}}),
          split_json(kMerges, R"((?<=e)r|\s+|\S+)")}) {
        const Tokenizer tokenizer = parse_tokenizer(json.dump(), "test.json");
        const TokenId end = *tokenizer.end_of_text();
        Ids expected;
        std::vector<std::uint64_t> counts;
        for (std::size_t i = 0; i < texts_.size(); ++i) {
            const Ids ids = tokenizer.encode(texts_[i]);
            expected.insert(expected.end(), ids.begin(), ids.end());
            if (i + 1 < texts_.size()) expected.push_back(end);
            counts.push_back(ids.size() + (i + 1 < texts_.size() ? 1 : 0));
        }
        for (const std::size_t part : {300, 5000, 1 << 20})
            for (const int threads : {1, 3}) {
                ASSERT_EQ(tokenize(tokenizer, {end}, part, threads), expected) << part << " bytes, " << threads;
                for (std::size_t i = 0; i < texts_.size(); ++i) {
                    EXPECT_EQ(done_[i].bytes, texts_[i].size());
                    EXPECT_EQ(done_[i].tokens, counts[i]);
                }
            }
    }
}

TEST_F(TokenizeFiles, SeparatesFilesAsAsked) {
    add("a"), add("b");
    const Tokenizer bytes = bytes_tokenizer();
    EXPECT_EQ(tokenize(bytes, {256}, 1000, 1), (Ids{'a', 256, 'b'}));
    EXPECT_EQ(tokenize(bytes, {256, true}, 1000, 1), (Ids{'a', 256, 'b', 256}));
    EXPECT_EQ(tokenize(bytes, {}, 1000, 1), (Ids{'a', 'b'}));
}

TEST_F(TokenizeFiles, StopsWhenToldTo) {
    for (int i = 0; i < 50; ++i) add(std::string(1000, 'a'));
    TokenWriter writer(scratch_ / "out.bin", TokenFormat::uint16, 1000);
    FilePartsOptions options;
    options.progress = [](std::uint64_t bytes) { return bytes < 5000; };
    EXPECT_FALSE(tokenize_files(bytes_tokenizer(), files_, {}, options, writer, done_));
    EXPECT_EQ(writer.count(), 5000u);
}

TEST_F(TokenizeFiles, PassesOnWhatGoesWrongOnAnyThread) {
    for (int i = 0; i < 20; ++i) add("aßa\n");
    Json json = llama2_json({"▁", "a"}, {});
    json["model"]["byte_fallback"] = false;
    json["model"]["unk_token"] = nullptr;
    TokenWriter writer(scratch_ / "out.bin", TokenFormat::uint16, 1000);
    FilePartsOptions options;
    options.threads = 4;
    EXPECT_TRUE(has(message_of<IoError>([&] {
                        tokenize_files(parse_tokenizer(json.dump(), "t.json"), files_, {}, options, writer, done_);
                    }),
                    "t.json: the text holds U+"));
}

}  // namespace
}  // namespace invar::text
