// Patterns as tokenizers have them: what they mean, and what a match is known to depend on.
#include "invar/text/regex.h"

#include <gtest/gtest.h>

#include "tests/text/families.h"

namespace invar::text {
namespace {

Symbols matches(const Regex& regex, std::string_view text, bool open = false) {
    Symbols all;
    regex.each_match(text, open, [&](std::size_t begin, std::size_t end) {
        all.emplace_back(text.substr(begin, end - begin));
        return true;
    });
    return all;
}

TEST(Pattern, KnowsTheBlanksOfUnicodeAndNoOthers) {
    const Regex blank(R"(\s)", "test"), other(R"([^\s])", "test"), not_blank(R"(\S)", "test");
    const std::string blanks = "\t\n\v\f\r \u0085\u00a0\u1680\u2000\u200a\u2028\u2029\u202f\u205f\u3000";
    EXPECT_EQ(matches(blank, blanks), characters_of(blanks));
    EXPECT_TRUE(matches(other, blanks).empty() && matches(not_blank, blanks).empty());
    const std::string others = "\u180e\u200b\u2060\ufeffa";  // the first is one to PCRE2
    EXPECT_TRUE(matches(blank, others).empty());
    EXPECT_EQ(matches(other, others), characters_of(others));
    EXPECT_EQ(matches(not_blank, others), characters_of(others));
}

TEST(Pattern, KnowsWhatAWordIsMadeOf) {
    EXPECT_EQ(matches(Regex(R"(\w+)", "test"), "ab_1 e\u0301\u203f-日"), (Symbols{"ab_1", "e\u0301\u203f", "日"}));
    EXPECT_EQ(matches(Regex(R"([\w.]+)", "test"), "a.b c"), (Symbols{"a.b", "c"}));
    EXPECT_EQ(matches(Regex(R"((?i:'LL))", "test"), "'ll 'lL"), (Symbols{"'ll", "'lL"}));
    EXPECT_EQ(matches(Regex(R"([]a[:digit:]]+)", "test"), "]a1b"), (Symbols{"]a1"}));
}

TEST(Pattern, MatchesEmptyTextsOnceEach) {
    EXPECT_EQ(matches(Regex("x*", "test"), "axxé"), (Symbols{"", "xx", ""}));
}

TEST(Pattern, NeverReachesOverBytesThatAreNotUtf8) {
    EXPECT_EQ(matches(Regex("[^b]+", "test"),
                      "aa\xff"
                      "aa"),
              (Symbols{"aa", "aa"}));
    EXPECT_EQ(matches(Regex(R"(a(?!a))", "test"),
                      "a\xff"
                      "a"),
              (Symbols{"a", "a"}));
}

TEST(Pattern, ReportsOfAnOpenTextOnlyWhatDoesNotDependOnTheRest) {
    const Regex words(R"(\w+|\s+(?!\S)|\s+)", "test");
    EXPECT_EQ(matches(words, "ab cd ", false), (Symbols{"ab", " ", "cd", " "}));
    EXPECT_EQ(matches(words, "ab cd ", true), (Symbols{"ab", " ", "cd"})) << "the last blank may go on";
    EXPECT_EQ(matches(words, "ab cd", true), (Symbols{"ab", " "})) << "the last word may go on";
    EXPECT_TRUE(matches(Regex("a+b|a", "test"), "aaaa", true).empty()) << "a b may follow";
}

TEST(Pattern, SaysWhetherItLooksBack) {
    for (const char* pattern : {R"((?<=a)b)", R"((?<!a)b)", "^a", R"(\Aa)"})
        EXPECT_TRUE(Regex(pattern, "test").looks_back()) << pattern;
    for (const char* pattern : {"a(?=b)", "[^a]", R"(\^a)", "a$"})
        EXPECT_FALSE(Regex(pattern, "test").looks_back()) << pattern;
}

TEST(Pattern, MakesNoPartOfATextThatTheRestMightChange) {
    Json json = split_json({{"a", "a"}}, "a+b|a");
    json["added_tokens"] = Json::array();
    const Tokenizer tokenizer = parse_tokenizer(json.dump(), "test.json");
    WordCache cache;
    EXPECT_FALSE(tokenizer.encode_part("a", "aaaa", true, cache)) << "with a b behind it, it is one piece";
    EXPECT_TRUE(tokenizer.encode_part("a", "aaaac", true, cache));
}

}  // namespace
}  // namespace invar::text
