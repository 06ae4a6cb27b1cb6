// BPE over characters with bytes to fall back on, as Llama 2 and TinyLlama have it.
#include <gtest/gtest.h>

#include <chrono>

#include "tests/core/expect_error.h"
#include "tests/text/families.h"

namespace invar::text {
namespace {

const Symbols kCharacters = {"▁", "a", "b", "l", "o", "w", "e", "r", "é", "日"};
const Merges kLow = {{"l", "o"}, {"lo", "w"}, {"▁", "low"}, {"e", "r"}, {"low", "er"}, {"▁", "▁"}};

Tokenizer tokenizer(const Json& json) {
    return parse_tokenizer(json.dump(), "test.json");
}

Symbols names(const Tokenizer& tokenizer, const Json& json, std::string_view text) {
    Symbols all;
    for (const TokenId id : tokenizer.encode(text))
        for (const auto& [name, value] : json["model"]["vocab"].items())
            if (value == id) all.push_back(name);
    return all;
}

TEST(CharacterBpe, MergesByHand) {
    const Json json = llama2_json(kCharacters, kLow);
    const Tokenizer llama = tokenizer(json);
    EXPECT_EQ(names(llama, json, "lower low"), (Symbols{"▁low", "er", "▁low"}));
    EXPECT_EQ(names(llama, json, "  low"), (Symbols{"▁▁", "▁low"}));
    EXPECT_TRUE(llama.encode("").empty());
}

TEST(CharacterBpe, FallsBackOnBytes) {
    const Json json = llama2_json(kCharacters, kLow);
    EXPECT_EQ(names(tokenizer(json), json, "aß\n"), (Symbols{"▁", "a", "<0xC3>", "<0x9F>", "<0x0A>"}));
}

TEST(CharacterBpe, KeepsBytesThatAreNotUtf8) {
    const Json json = llama2_json(kCharacters, kLow);
    const Tokenizer llama = tokenizer(json);
    EXPECT_EQ(names(llama, json, "a\xff\xe2\x82 b"), (Symbols{"▁", "a", "<0xFF>", "<0xE2>", "<0x82>", "▁", "b"}));
    EXPECT_EQ(llama.decode(llama.encode("a\xff\xe2\x82 b")), "a\xff\xe2\x82 b");
}

TEST(CharacterBpe, WithoutBytesFusesWhatIsUnknownAndReplacesWhatIsNotUtf8) {
    Json json = llama2_json(kCharacters, kLow);
    json["model"]["byte_fallback"] = false;
    EXPECT_EQ(names(tokenizer(json), json, "aßüb\xff\xff"), (Symbols{"▁", "a", "<unk>", "b", "<unk>"}));
    json["model"]["fuse_unk"] = false;
    EXPECT_EQ(names(tokenizer(json), json, "aßüb"), (Symbols{"▁", "a", "<unk>", "<unk>", "b"}));
    // A character that was begun and broken off is one U+FFFD.
    EXPECT_EQ(names(tokenizer(json), json, "a\xe2\x82"), (Symbols{"▁", "a", "<unk>"}));
    json["model"]["unk_token"] = nullptr;
    EXPECT_ERROR(tokenizer(json).encode("aß"), IoError, "test.json: the text holds U+00DF, for which there is neither");
}

TEST(CharacterBpe, FusesTheUnknownInALongTextToo) {
    Json json = llama2_json(kCharacters, kLow);
    json["model"]["byte_fallback"] = false;
    std::string text;
    for (int i = 0; i < 100; ++i) text += "ß";
    EXPECT_EQ(names(tokenizer(json), json, text), (Symbols{"▁", "<unk>"}));
}

TEST(CharacterBpe, GivesBackTheText) {
    std::mt19937 random(3);
    const Tokenizer llama = tokenizer(llama2_json(kCharacters, kLow));
    for (int i = 0; i < 300; ++i) {
        std::string text = odd_text(random, random() % 50, i % 2 == 0);
        // The one thing that cannot be told apart afterwards.
        for (std::size_t at; (at = text.find("▁")) != text.npos;) text.replace(at, 3, "_");
        EXPECT_EQ(llama.decode(llama.encode(text)), text) << printable(text);
    }
}

TEST(CharacterBpe, AgreesWithBytePairEncodingDoneByHandOnOddText) {
    std::mt19937 random(5);
    std::vector<Symbols> words;
    for (int i = 0; i < 60; ++i) words.push_back(characters_of(odd_text(random, 12)));
    const Merges merges = reference_training(words, 150);
    Symbols characters;
    for (const Symbols& word : words) characters.insert(characters.end(), word.begin(), word.end());
    Json json = llama2_json(characters, merges);
    json["normalizer"] = nullptr;
    json["added_tokens"] = Json::array();
    const Tokenizer llama = tokenizer(json);
    for (int i = 0; i < 60; ++i) {
        const std::string text = odd_text(random, 1 + random() % 60);  // long enough to be cut into words, or not
        EXPECT_EQ(names(llama, json, text), reference_bpe(characters_of(text), merges)) << printable(text);
    }
}

TEST(CharacterBpe, ReadsTheMetaspaceOfNewerFiles) {
    Json json = llama2_json(kCharacters, kLow);
    json["normalizer"] = nullptr;
    json["pre_tokenizer"] = {
        {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}, {"split", false}};
    EXPECT_EQ(names(tokenizer(json), json, "low low"), (Symbols{"▁low", "▁low"}));
    EXPECT_EQ(names(tokenizer(json), json, "low<s>low"), (Symbols{"▁low", "<s>", "low"})) << "only in front of all";
    EXPECT_EQ(names(tokenizer(json), json, " low"), (Symbols{"▁low"})) << "not where there is one";
    json["pre_tokenizer"]["prepend_scheme"] = "always";
    EXPECT_EQ(names(tokenizer(json), json, "low<s>low"), (Symbols{"▁low", "<s>", "▁low"}));
    EXPECT_EQ(names(tokenizer(json), json, "a  b"), (Symbols{"▁", "a", "▁▁", "b"})) << "in one piece";
    json["pre_tokenizer"]["split"] = true;
    EXPECT_EQ(names(tokenizer(json), json, "a  b"), (Symbols{"▁", "a", "▁", "▁", "b"})) << "cut before each";
    json["pre_tokenizer"]["prepend_scheme"] = "never";
    EXPECT_EQ(names(tokenizer(json), json, "low"), (Symbols{"low"}));
    json["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "▁"}, {"add_prefix_space", true}};
    json["decoder"] = json["pre_tokenizer"];
    EXPECT_EQ(names(tokenizer(json), json, "low low"), (Symbols{"▁low", "▁low"}));
    EXPECT_EQ(tokenizer(json).decode(tokenizer(json).encode("low  low")), "low  low");
}

TEST(CharacterBpe, TakesALongRunInNoMoreThanAMoment) {
    Merges doubling;
    for (std::string a = "a"; a.size() < 64; a += a) doubling.emplace_back(a, a);
    const Tokenizer llama = tokenizer(llama2_json(kCharacters, doubling));
    const auto seconds = [&](std::size_t bytes) {
        const std::string run(bytes, 'a');
        const auto start = std::chrono::steady_clock::now();
        EXPECT_EQ(llama.encode(run).size(), 1 + bytes / 64);
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    seconds(1 << 17);
    // Eight times the text takes eight times as long and some more, not sixty-four times.
    EXPECT_LT(seconds(1 << 20), 30 * seconds(1 << 17));
}

}  // namespace
}  // namespace invar::text
