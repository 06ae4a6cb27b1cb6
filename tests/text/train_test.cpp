// A byte-level BPE learned from text.
#include <gtest/gtest.h>

#include <algorithm>

#include "invar/io/file.h"
#include "invar/text/train_bpe.h"
#include "tests/core/expect_error.h"
#include "tests/io/scratch.h"
#include "tests/text/families.h"

namespace invar::text {
namespace {

Merges texts_of(const LearnedBpe& learned) {
    const auto text_of = [&](TokenId id) { return id < 256 ? std::string(1, char(id)) : learned.tokens[id - 256]; };
    Merges merges;
    for (const auto& [left, right] : learned.merges) merges.emplace_back(text_of(left), text_of(right));
    return merges;
}

LearnedBpe train(const std::vector<std::string>& texts, std::size_t size) {
    return train_bpe(texts, size);
}

TEST(TrainBpe, LearnsTheMostFrequentPairFirstByHand) {
    // "low" four times, "lower" twice, " " before some.
    const LearnedBpe learned = train({"low low low low lower lower"}, 263);
    EXPECT_EQ(texts_of(learned), (Merges{{"l", "o"}, {"lo", "w"}, {" ", "low"}, {"e", "r"}, {" low", "er"}}))
        << "lo and ow come six times each, and o is below w";
    EXPECT_EQ(learned.vocabulary_size(), 262u) << "no pair comes twice any more";
}

TEST(TrainBpe, TakesTheLowerPairOfEquallyFrequentOnes) {
    EXPECT_EQ(texts_of(train({"zy zy ba ba"}, 258)), (Merges{{" ", "b"}})) << "of four that come twice";
    EXPECT_EQ(texts_of(train({"zy\nzy\nba\nba"}, 258)), (Merges{{"b", "a"}}));
}

TEST(TrainBpe, AgreesWithTrainingDoneByHand) {
    std::mt19937 random(31);
    for (int round = 0; round < 20; ++round) {
        std::string text;
        for (int i = 0; i < 400; ++i) text += "aabbc \n"[random() % (round % 2 == 0 ? 4 : 7)];
        WordCounts counts;
        count_words(text, counts);
        std::vector<Symbols> words;
        for (const auto& [word, count] : counts)
            for (std::uint64_t i = 0; i < count; ++i) words.push_back(bytes_of(word));
        // The reference breaks ties by the texts of the pair, we by the order in which tokens were learned: the first
        // of equals is the same only while no learned token takes part. So the counts are compared, not the choice.
        const LearnedBpe learned = train_bpe(counts, 280);
        for (const auto& [left, right] : texts_of(learned)) {
            std::map<std::pair<std::string, std::string>, int> pairs;
            for (const Symbols& word : words)
                for (std::size_t i = 0; i + 1 < word.size(); ++i) ++pairs[{word[i], word[i + 1]}];
            int most = 0;
            for (const auto& [pair, count] : pairs) most = std::max(most, count);
            ASSERT_EQ((pairs[{left, right}]), most) << printable(left) << " " << printable(right);
            for (Symbols& word : words) word = reference_bpe(word, {{left, right}});
        }
    }
}

TEST(TrainBpe, GivesTheSameWhateverTheOrderOfTheTexts) {
    std::mt19937 random(32);
    std::vector<std::string> texts;
    for (int i = 0; i < 50; ++i) texts.push_back(odd_text(random, 100));
    const std::string first = tokenizer_json(train(texts, 400));
    std::reverse(texts.begin(), texts.end());
    EXPECT_EQ(tokenizer_json(train(texts, 400)), first);
}

TEST(TrainBpe, CountsFilesPartByPartAsItCountsThemWhole) {
    const Scratch scratch;
    std::mt19937 random(33);
    std::vector<std::filesystem::path> files;
    WordCounts whole, parts;
    for (int i = 0; i < 5; ++i) {
        const std::string text = odd_text(random, 3000, i % 2 == 0);
        put(files.emplace_back(scratch / fmt::format("{}.txt", i)), text);
        count_words(text, whole);
    }
    FilePartsOptions options;
    options.part_bytes = 700;
    options.threads = 3;
    EXPECT_TRUE(count_words(files, options, parts));
    EXPECT_EQ(parts, whole);
}

TEST(TrainBpe, WritesATokenizerThatIsReadBackAndUsed) {
    const Scratch scratch;
    const LearnedBpe learned = train({"low low low low lower lower<|endoftext|>low"}, 300);
    save_tokenizer_json(scratch / "tokenizer.json", learned);
    const Tokenizer tokenizer = load_tokenizer(scratch.path());
    EXPECT_EQ(tokenizer.vocabulary_size(), learned.vocabulary_size());
    EXPECT_EQ(tokenizer.end_of_text(), tokenizer.vocabulary_size() - 1);
    EXPECT_EQ(tokenizer.encode("low lower"), (Ids{257, 260}));
    const Json json = Json::parse(read_file(scratch / "tokenizer.json"));
    for (const char* key : {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                            "post_processor", "decoder", "model"})
        EXPECT_TRUE(json.contains(key)) << key;
    for (const char* key : {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                            "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"})
        EXPECT_TRUE(json["model"].contains(key)) << key;
    EXPECT_EQ(json["model"]["merges"][2], "Ġ low");
}

// The file that golden.py gives to Hugging Face's library to load.
TEST(TrainBpe, WritesTheFileThatGoldenPyLoads) {
    const std::string text =
        "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of "
        "foolishness.\n"
        "    In 1859, l'été s'achève; 日本語 日本語 日本語\t\tthe end... the end!!!\n\n";
    std::string often;
    for (int i = 0; i < 3; ++i) often += text;
    EXPECT_EQ(tokenizer_json(train({often}, 400)),
              read_file(std::filesystem::path(INVAR_SOURCE_DIR) / "tests/text/learned_tokenizer.json"));
}

TEST(TrainBpe, NeverMakesATokenTwice) {
    std::mt19937 random(34);
    for (int round = 0; round < 60; ++round) {
        std::string text;
        for (int i = 0; i < 600; ++i) text += "abaa\n"[random() % 5];
        const LearnedBpe learned = train({text}, 400);
        std::vector<std::string> tokens = learned.tokens;
        std::sort(tokens.begin(), tokens.end());
        EXPECT_EQ(std::adjacent_find(tokens.begin(), tokens.end()), tokens.end());
        const Tokenizer tokenizer = parse_tokenizer(tokenizer_json(learned), "learned");
        EXPECT_EQ(tokenizer.vocabulary_size(), learned.vocabulary_size());
        EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
    }
}

TEST(TrainBpe, EncodesItsOwnTextIntoFewerTokens) {
    std::string text;
    for (int i = 0; i < 2000; ++i) text += "the quick brown fox jumps over the lazy dog\n";
    const Tokenizer tokenizer = parse_tokenizer(tokenizer_json(train({text}, 500)), "learned");
    EXPECT_EQ(tokenizer.encode(text).size(), 2000u * 10) << "a token for each word and each newline";
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
}

TEST(TrainBpe, RefusesAVocabularyThatIsTooSmallOrTooLarge) {
    EXPECT_ERROR(train({"a"}, 256), UsageError, "from 257 (bytes and <|endoftext|>) to");
    EXPECT_ERROR(train({"a"}, std::size_t(1) << 40), UsageError, "cannot be learned");
    EXPECT_EQ(train({}, 257).vocabulary_size(), 257u);
}

}  // namespace
}  // namespace invar::text
