// Byte-level BPE: GPT-2's, and those of Qwen 2 and Llama 3 with patterns of their own.
#include <gtest/gtest.h>

#include "invar/io/file.h"
#include "tests/core/expect_error.h"
#include "tests/io/scratch.h"
#include "tests/text/families.h"

namespace invar::text {
namespace {

// "low" is 258, " low" 259, "er" 260, "lower" is 261.
const Merges kLow = {{"l", "o"}, {"lo", "w"}, {" ", "low"}, {"e", "r"}, {"low", "er"}};

Tokenizer tokenizer(const Json& json) {
    return parse_tokenizer(json.dump(), "test.json");
}

Symbols pieces(const Tokenizer& tokenizer, std::string_view text) {
    Symbols all;
    for (const TokenId id : tokenizer.encode(text)) all.push_back(tokenizer.decode(std::span(&id, 1)));
    return all;
}

TEST(ByteLevel, MergesInTheOrderOfTheMergesByHand) {
    const Tokenizer gpt2 = tokenizer(gpt2_json(kLow));
    EXPECT_EQ(gpt2.encode("lower low"), (Ids{260, 258}));
    EXPECT_EQ(pieces(gpt2, "lower lows slow"), (Symbols{"lower", " low", "s", " ", "s", "low"}));
    EXPECT_EQ(gpt2.vocabulary_size(), 262u);
}

TEST(ByteLevel, TakesBothSpellingsOfMerges) {
    EXPECT_EQ(tokenizer(gpt2_json(kLow, true)).encode("slower"), tokenizer(gpt2_json(kLow, false)).encode("slower"));
}

TEST(ByteLevel, ReadsAFileAndAFolderThatHoldsOne) {
    const Scratch scratch;
    put(scratch / "tokenizer.json", gpt2_json(kLow).dump());
    EXPECT_EQ(load_tokenizer(scratch.path()).encode("low"), load_tokenizer(scratch / "tokenizer.json").encode("low"));
    EXPECT_ERROR(load_tokenizer(scratch / "none.json"), IoError, "none.json");
}

TEST(ByteLevel, ReadsOldFilesThatDoNotSayWhatTheModelIs) {
    Json json = gpt2_json(kLow);
    json["model"].erase("type");
    EXPECT_EQ(tokenizer(json).encode("lower"), (Ids{260}));
}

TEST(ByteLevel, NeverMergesOverWhatGpt2sPatternCuts) {
    const Tokenizer gpt2 = tokenizer(
        gpt2_json({{"a", "b"}, {"1", "2"}, {"'", "s"}, {" ", " "}, {"\n", "\n"}, {"!", "!"}, {"b", "1"}, {"'", "S"}}));
    EXPECT_EQ(pieces(gpt2, "ab12"), (Symbols{"ab", "12"})) << "letters and digits";
    EXPECT_EQ(pieces(gpt2, "b's"), (Symbols{"b", "'s"}));
    EXPECT_EQ(pieces(gpt2, "b'S"), (Symbols{"b", "'", "S"})) << "contractions in lower case only";
    EXPECT_EQ(pieces(gpt2, "a   b"), (Symbols{"a", "  ", " ", "b"})) << "the last blank goes with the word";
    EXPECT_EQ(pieces(gpt2, "a  "), (Symbols{"a", "  "})) << "blanks at the end stay together";
    EXPECT_EQ(pieces(gpt2, "a\n\nb"), (Symbols{"a", "\n", "\n", "b"}));
    EXPECT_EQ(pieces(gpt2, "a!!b"), (Symbols{"a", "!!", "b"}));
}

TEST(ByteLevel, PutsASpaceInFrontWhereTheFileAsksForIt) {
    Json json = gpt2_json(kLow);
    json["pre_tokenizer"]["add_prefix_space"] = true;
    const Tokenizer gpt2 = tokenizer(json);
    EXPECT_EQ(pieces(gpt2, "low"), (Symbols{" low"}));
    EXPECT_EQ(pieces(gpt2, " low"), (Symbols{" low"}));
    EXPECT_EQ(pieces(gpt2, "low<|endoftext|>low"), (Symbols{" low", "<|endoftext|>", " low"}))
        << "each stretch has one";
    EXPECT_TRUE(gpt2.encode("").empty());
}

TEST(ByteLevel, CutsAsQwenAndLlama3Do) {
    const Merges merges = {{"1", "2"},  {"12", "3"},  {"123", "4"},  {"'", "S"},
                           {".", "\n"}, {"\n", "\n"}, {"\n\n", "\n"}};
    const Tokenizer qwen = tokenizer(split_json(merges, kQwenPattern));
    const Tokenizer llama = tokenizer(split_json(merges, kLlama3Pattern));
    EXPECT_EQ(pieces(qwen, "1234"), (Symbols{"1", "2", "3", "4"})) << "each digit alone";
    EXPECT_EQ(pieces(llama, "1234"), (Symbols{"123", "4"})) << "three digits at a time";
    EXPECT_EQ(pieces(qwen, "b'S"), (Symbols{"b", "'S"})) << "contractions in both cases";
    EXPECT_EQ(pieces(qwen, "b.\n\n\nb"), (Symbols{"b", ".\n", "\n\n", "b"})) << "newlines go with a full stop";
    EXPECT_EQ(pieces(qwen, "b \n\n\nb"), (Symbols{"b", " ", "\n\n\n", "b"})) << "and with blanks";
}

TEST(ByteLevel, TakesAWholePieceForItsTokenWhereMergesAreIgnored) {
    Json json = split_json({{"l", "o"}, {"o", "w"}, {"l", "ow"}}, kLlama3Pattern);
    EXPECT_EQ(pieces(tokenizer(json), "low"), (Symbols{"lo", "w"})) << "the merges never reach it";
    json["model"]["ignore_merges"] = true;
    EXPECT_EQ(pieces(tokenizer(json), "low"), (Symbols{"low"}));
    EXPECT_EQ(pieces(tokenizer(json), "slow"), (Symbols{"s", "lo", "w"})) << "only as a whole";
}

TEST(ByteLevel, NormalizesAsTheFileSays) {
    Json json = split_json({}, kQwenPattern);
    EXPECT_EQ(tokenizer(json).encode("e\u0301").size(), 3u);
    json["normalizer"] = {{"type", "NFC"}};
    EXPECT_EQ(tokenizer(json).encode("e\u0301"), tokenizer(json).encode("é"));
    EXPECT_EQ(tokenizer(json).decode(tokenizer(json).encode("e\u0301")), "é");
    EXPECT_EQ(tokenizer(json).decode(tokenizer(json).encode("ﬁ")), "ﬁ") << "not the compatible form";
    json["normalizer"] = {{"type", "NFKC"}};
    EXPECT_EQ(tokenizer(json).decode(tokenizer(json).encode("ﬁ")), "fi");
}

TEST(ByteLevel, AgreesWithBytePairEncodingDoneByHandOnOddText) {
    std::mt19937 random(7);
    std::vector<Symbols> words;
    for (int i = 0; i < 60; ++i) words.push_back(bytes_of(odd_text(random, 12)));
    const Merges merges = reference_training(words, 200);
    ASSERT_GT(merges.size(), 100u);
    Json json = gpt2_json(merges);
    json["pre_tokenizer"]["use_regex"] = false;  // one piece, so that the reference needs no pattern
    json["added_tokens"] = Json::array();
    const Tokenizer whole = tokenizer(json);
    for (int i = 0; i < 100; ++i) {
        const std::string text = odd_text(random, 1 + random() % 40, i % 2 == 0);
        EXPECT_EQ(pieces(whole, text), reference_bpe(bytes_of(text), merges)) << printable(text);
    }
}

TEST(ByteLevel, GivesBackTheBytesOfAnyTextEvenOfWhatIsNotUtf8) {
    std::mt19937 random(8);
    std::vector<Symbols> words;
    for (int i = 0; i < 60; ++i) words.push_back(bytes_of(odd_text(random, 12)));
    const Merges merges = reference_training(words, 100);
    for (const Json& json : {gpt2_json(merges), split_json(merges, kQwenPattern), split_json(merges, kLlama3Pattern)}) {
        const Tokenizer each = tokenizer(json);
        for (int i = 0; i < 200; ++i) {
            const std::string text = odd_text(random, random() % 60, i % 2 == 0);
            EXPECT_EQ(each.decode(each.encode(text)), text) << printable(text);
        }
        std::string bytes;
        for (int i = 0; i < 4096; ++i) bytes.push_back(char(random()));
        EXPECT_EQ(each.decode(each.encode(bytes)), bytes);
    }
}

TEST(ByteLevel, LetsBytesThatAreNotUtf8StandAlone) {
    const Tokenizer gpt2 = tokenizer(gpt2_json({{"a", "\xff"}, {"\xff", "\xfe"}, {"a", "b"}}));
    EXPECT_EQ(pieces(gpt2,
                     "ab\xff\xfe"
                     "ab"),
              (Symbols{"ab", "\xff\xfe", "ab"}));
    EXPECT_EQ(pieces(gpt2, "a\xff"), (Symbols{"a", "\xff"})) << "never joined with the text beside them";
}

TEST(ByteLevel, TakesALongRunInNoMoreThanAMoment) {
    Merges doubling;
    for (std::string a = "a"; a.size() < 4096; a += a) doubling.emplace_back(a, a);
    const Tokenizer gpt2 = tokenizer(gpt2_json(doubling));
    const std::string run(1 << 20, 'a');
    EXPECT_EQ(gpt2.encode(run).size(), run.size() / 4096);
}

TEST(BytesTokenizer, NeedsNoFile) {
    const Tokenizer bytes = bytes_tokenizer();
    EXPECT_EQ(bytes.vocabulary_size(), 257u);
    EXPECT_EQ(bytes.encode("a\xff<|endoftext|>"), (Ids{97, 255, 256}));
    EXPECT_EQ(bytes.end_of_text(), 256u);
    EXPECT_EQ(bytes.decode(Ids{97, 255, 256}, true), "a\xff");
    EXPECT_EQ(bytes_tokenizer(false).vocabulary_size(), 256u);
    EXPECT_FALSE(bytes_tokenizer(false).end_of_text());
    EXPECT_EQ(bytes_tokenizer(false).encode("<|endoftext|>").size(), 13u);
}

TEST(TokenizerDecode, RefusesAnIdThatNoTokenHas) {
    EXPECT_ERROR(bytes_tokenizer().decode(Ids{97, 257}), UsageError, "there is no token 257: bytes has 257");
}

}  // namespace
}  // namespace invar::text
