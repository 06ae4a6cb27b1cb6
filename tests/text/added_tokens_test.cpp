// Tokens that are found in the text before anything else happens to it.
#include <gtest/gtest.h>

#include "tests/text/families.h"

namespace invar::text {
namespace {

// GPT-2 in small with these tokens, numbered from 300.
Tokenizer with(const std::vector<std::pair<std::string, Json>>& tokens, const Json& normalizer = nullptr) {
    Json json = gpt2_json({});
    TokenId id = 300;
    for (const auto& [content, more] : tokens) json["added_tokens"].push_back(added(id++, content, more));
    json["normalizer"] = normalizer;
    return parse_tokenizer(json.dump(), "test.json");
}

TEST(AddedTokens, AreFoundAnywhereTheLongestFirst) {
    const Tokenizer tokenizer = with({{"<a>", {}}, {"<a><b>", {}}, {"b>", {}}});
    EXPECT_EQ(tokenizer.encode("x<a>y"), (Ids{'x', 300, 'y'}));
    EXPECT_EQ(tokenizer.encode("<a><b>"), (Ids{301}));
    EXPECT_EQ(tokenizer.encode("<a><c"), (Ids{300, '<', 'c'}));
    EXPECT_EQ(tokenizer.encode("<b>"), (Ids{'<', 302}));
    EXPECT_EQ(tokenizer.encode("<<a>"), (Ids{'<', 300}));
}

TEST(AddedTokens, AreCalledByTheirNames) {
    const Tokenizer tokenizer = with({{"<a>", {}}, {"<b>", {{"special", false}}}});
    EXPECT_EQ(tokenizer.id_of("<a>"), 300u);
    EXPECT_EQ(tokenizer.id_of("<|endoftext|>"), 256u);
    EXPECT_EQ(tokenizer.id_of("Ġ"), 32u) << "others as the file spells them";
    EXPECT_FALSE(tokenizer.id_of("<c>"));
    EXPECT_EQ(tokenizer.end_of_text(), 256u);
    EXPECT_EQ(tokenizer.vocabulary_size(), 302u);
    EXPECT_EQ(tokenizer.decode(Ids{'x', 300, 301, 256}), "x<a><b><|endoftext|>");
    EXPECT_EQ(tokenizer.decode(Ids{'x', 300, 301, 256}, true), "x<b>") << "only special ones are left out";
    EXPECT_EQ(tokenizer.decode(Ids{'x', 280}), "x") << "a gap between the ids";
}

TEST(AddedTokens, TakeTheBlanksBesideThem) {
    const Tokenizer tokenizer = with({{"<l>", {{"lstrip", true}}}, {"<r>", {{"rstrip", true}}}});
    EXPECT_EQ(tokenizer.encode("a \t\u00a0<l> b"), (Ids{'a', 300, ' ', 'b'}));
    EXPECT_EQ(tokenizer.encode("a <r> \n b"), (Ids{'a', ' ', 301, 'b'}));
    EXPECT_EQ(tokenizer.encode("<r>  <l>"), (Ids{301, 300})) << "blanks are taken once";
}

TEST(AddedTokens, MayBeWordsOfTheirOwnOnly) {
    const Tokenizer tokenizer = with({{"ab", {{"single_word", true}}}});
    EXPECT_EQ(tokenizer.encode("ab"), (Ids{300}));
    EXPECT_EQ(tokenizer.encode("-ab."), (Ids{'-', 300, '.'}));
    EXPECT_EQ(tokenizer.encode("abc"), (Ids{'a', 'b', 'c'}));
    EXPECT_EQ(tokenizer.encode("_ab").size(), 3u);
    EXPECT_EQ(tokenizer.encode("éab").size(), 4u);
}

TEST(AddedTokens, MayBeLookedForInTheNormalizedText) {
    const Json nfc = {{"type", "NFC"}};
    const Tokenizer normalized = with({{"éé", {{"normalized", true}}}}, nfc), plain = with({{"éé", {}}}, nfc);
    EXPECT_EQ(normalized.encode("xe\u0301é"), (Ids{'x', 300}));
    EXPECT_EQ(normalized.encode("xéé"), (Ids{'x', 300}));
    EXPECT_EQ(plain.encode("xe\u0301é").size(), 5u) << "found before the text is normalized, or not at all";
    EXPECT_EQ(plain.encode("xéé"), (Ids{'x', 300}));
}

TEST(AddedTokens, AreKeptFromTheNormalizer) {
    Json json = llama2_json({"▁", "a"}, {});
    const Tokenizer llama = parse_tokenizer(json.dump(), "test.json");
    const TokenId space = *llama.id_of("▁"), a = *llama.id_of("a");
    EXPECT_EQ(llama.encode("a</s>a"), (Ids{space, a, 2, space, a}));
    EXPECT_EQ(llama.end_of_text(), 2u);
    // A token that is looked for in the normalized text is normalized itself, and so begins with the space.
    json["added_tokens"][2]["normalized"] = true;
    const Tokenizer old = parse_tokenizer(json.dump(), "test.json");
    EXPECT_EQ(old.encode("</s>a"), (Ids{2, a}));
    EXPECT_EQ(old.encode("a</s>").size(), 6u);
}

}  // namespace
}  // namespace invar::text
