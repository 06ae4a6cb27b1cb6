// Files that are no tokenizers, or of a kind that is not supported: one line that says so, and no more memory than the
// file has bytes.
#include <gtest/gtest.h>

#include "invar/text/raw_tokenizer.h"
#include "tests/core/expect_error.h"
#include "tests/text/families.h"

namespace invar::text {
namespace {

const Merges kMerges = {{"a", "b"}};

void refuses(const Json& json, const std::string& fragment) {
    EXPECT_ERROR(parse_tokenizer(json.dump(), "hostile.json"), IoError, "hostile.json: ");
    EXPECT_ERROR(parse_tokenizer(json.dump(), "hostile.json"), IoError, fragment);
}

// GPT-2 in small with one thing changed.
Json changed(const char* path, const Json& value) {
    Json json = gpt2_json(kMerges);
    json[Json::json_pointer(path)] = value;
    return json;
}

TEST(HostileFile, ThatIsNotJson) {
    for (const char* text : {"", "{", "x", "{\"model\": }", "[1, 2", "{\"a\": \"\xff\"}"})
        EXPECT_ERROR(parse_tokenizer(text, "hostile.json"), IoError, "hostile.json: not valid JSON at byte");
    EXPECT_ERROR(parse_tokenizer(std::string("{}\0{", 4), "hostile.json"), IoError, "zero byte");
    for (const char* text : {"[]", "3", "null", "\"text\""})
        EXPECT_ERROR(parse_tokenizer(text, "hostile.json"), IoError, "hostile.json: it is no JSON object");
    for (const char* text : {"{}", "{\"model\": 3}", "{\"model\": [{}]}"})
        EXPECT_ERROR(parse_tokenizer(text, "hostile.json"), IoError, "\"model\" is missing");
}

TEST(HostileFile, ThatIsNestedTooDeeply) {
    for (const char* open : {"[", "{\"a\":"}) {
        std::string text = "{\"model\":";
        for (int i = 0; i < 100'000; ++i) text += open;
        EXPECT_ERROR(parse_tokenizer(text, "hostile.json"), IoError, "nested more than 32 levels deep");
    }
    Json deep = {{"type", "NFC"}};
    for (int i = 0; i < 12; ++i) deep = {{"type", "Sequence"}, {"normalizers", {deep}}};
    refuses(changed("/normalizer", deep), "normalizers are nested too deeply");
}

TEST(HostileFile, ThatIsFullOfOtherThings) {
    std::string text = "{\"added_tokens\":[0";
    for (int i = 0; i < 1'100'000; ++i) text += ",0";
    EXPECT_ERROR(parse_tokenizer(text + "]}", "hostile.json"), IoError, "more than 1048576 values");
}

TEST(HostileFile, WithAnotherModel) {
    for (const char* type : {"WordPiece", "Unigram", "WordLevel", "Nonsense\x1b[2J"}) {
        Json json = changed("/model/type", type);
        refuses(json, std::string("the model \"") + std::string(type).substr(0, 7));
        json["model"]["vocab"] = Json::array({Json::array({"a", -1.5})});  // as Unigram has it
        refuses(json, "is not supported; only BPE is");
    }
    Json json = gpt2_json(kMerges);
    json["model"].erase("type");
    json["model"].erase("merges");
    refuses(json, "is not supported; only BPE is");
}

TEST(HostileFile, WithComponentsThatAreNotSupported) {
    refuses(changed("/normalizer", {{"type", "Lowercase"}}), "the normalizer \"Lowercase\" is not supported");
    refuses(changed("/normalizer", 3), "a normalizer without a \"type\"");
    refuses(changed("/pre_tokenizer", {{"type", "Whitespace"}}), "the pre-tokenizer \"Whitespace\" is not supported");
    refuses(changed("/decoder", {{"type", "WordPiece"}}), "the decoder \"WordPiece\" is not supported");
    refuses(changed("/model/dropout", 0.1), "dropout");
    refuses(changed("/model/continuing_subword_prefix", "##"), "continuing_subword_prefix");
    refuses(changed("/model/end_of_word_suffix", "</w>"), "end_of_word_suffix");
    refuses(changed("/model/byte_fallback", true), "byte_fallback together with");
    refuses(changed("/model/fuse_unk", "yes"), "fuse_unk = \"yes\": is neither true nor false");
    const Json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", true}};
    const Json digits = {{"type", "Digits"}, {"individual_digits", true}};
    refuses(changed("/pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {bytes, digits}}}), "behind ByteLevel");
    refuses(changed("/pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {digits, bytes}}}),
            "add_prefix_space behind");
    refuses(changed("/pre_tokenizer", {{"type", "Sequence"}}), "\"pretokenizers\" is missing");
    refuses(changed("/decoder", {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}),
            "Strip without Fuse");
}

Json split(const std::string& pattern) {
    return {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
}

TEST(HostileFile, WithPatternsThatAreNoneOrMeanSomethingElse) {
    refuses(changed("/pre_tokenizer", split("(a")), "is no regular expression");
    refuses(changed("/pre_tokenizer", split("")), "a pattern is empty");
    refuses(changed("/pre_tokenizer", split("\\h+")), "uses \\h");
    refuses(changed("/pre_tokenizer", split("[a-z&&[^x]]")), "&& inside brackets");
    refuses(changed("/pre_tokenizer", split("[a[b]]")), "brackets inside brackets");
    refuses(changed("/pre_tokenizer", split("(*LIMIT_MATCH=1)a")), "uses (*");
    refuses(changed("/pre_tokenizer", split(std::string(70'000, 'a'))), "more than the 65536");
    refuses(changed("/pre_tokenizer", split("((a{1000}){1000}){1000}")), "is no regular expression");
    Json odd = split("a");
    odd["behavior"] = "Sideways";
    refuses(changed("/pre_tokenizer", odd), "the behavior \"Sideways\"");
    odd["pattern"] = 3;
    refuses(changed("/pre_tokenizer", odd), "neither a String nor a Regex");
}

TEST(HostileFile, WithAPatternThatNeverEnds) {
    const Tokenizer tokenizer = parse_tokenizer(split_json(kMerges, "(a|a|aa)+$").dump(), "hostile.json");
    EXPECT_ERROR(tokenizer.encode(std::string(200, 'a') + "b"), IoError, "takes too long on this text");
}

TEST(HostileFile, WithReplacementsThatGrowWithoutEnd) {
    const Json longer = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(40, 'a')}};
    const auto times = [&](int count) {
        return changed("/normalizer",
                       {{"type", "Sequence"}, {"normalizers", std::vector<Json>(std::size_t(count), longer)}});
    };
    EXPECT_EQ(parse_tokenizer(times(1).dump(), "long.json").encode("a").size(), 40u);
    refuses(times(2), "a text 1.6e+03 times as long");
}

TEST(HostileFile, WithAVocabularyThatIsNone) {
    refuses(changed("/model/vocab", Json::object()), "the vocabulary is missing or empty");
    refuses(changed("/model/vocab", 5), "the vocabulary is missing or empty");
    refuses(changed("/model/vocab", Json::array({"a", "b"})), "the vocabulary is a list");
    refuses(changed("/model/vocab", {{"a", "x"}}), "the id of \"a\" is a text");
    refuses(changed("/model/vocab", {{"a", -1}}), "the id of \"a\" is a negative number");
    refuses(changed("/model/vocab", {{"a", 1.5}}), "the id of \"a\" is a number that is not a whole one");
    refuses(changed("/model/vocab", {{"a", {{"b", 1}}}}), "the id of \"a\" is an object");
    refuses(changed("/model/vocab", {{"a", Json::array({1})}}), "the id of \"a\" is a list");
    refuses(changed("/model/vocab/a", 4'294'967'296), "the token \"a\" has the id 4294967296; ids from 0 to");
    refuses(changed("/model/vocab/a", 4'194'304), "the token \"a\" has the id 4194304");
    refuses(changed("/model/vocab/a", 7), "both have the id 7");
    std::string twice = gpt2_json(kMerges).dump();
    twice.insert(twice.find("\"vocab\":{") + 9, "\"b\":5000,");
    EXPECT_ERROR(parse_tokenizer(twice, "hostile.json"), IoError, "the token \"b\" is in the vocabulary twice");
    std::string again = gpt2_json(kMerges).dump();
    again.insert(again.find("\"vocab\":{"), "\"vocab\":{},");
    EXPECT_ERROR(parse_tokenizer(again, "hostile.json"), IoError, "the key \"vocab\" appears twice");
}

TEST(HostileFile, WithMergesThatAreNone) {
    refuses(changed("/model/merges", {"a x"}), "merge 1 names \"ax\", which is not in the vocabulary");
    refuses(changed("/model/merges", {"a b", "ab ca"}), "merge 2 names \"ca\"");
    refuses(changed("/model/merges", {"ab"}), "merge 1 is \"ab\", expected two tokens");
    refuses(changed("/model/merges", {"a b c"}), "expected two tokens");
    refuses(changed("/model/merges", {" a"}), "merge 1 names \"\"");
    refuses(changed("/model/merges", {{"a", "b", "c"}}), "merge 1 is not a pair");
    refuses(changed("/model/merges", Json::array({Json::array({"a", 3})})), "the merges hold a number");
    refuses(changed("/model/merges", Json::array({{{"a", "b"}}})), "the merges hold an object");
    refuses(changed("/model/merges", Json::array({nullptr})), "the merges hold null");
    refuses(changed("/model/merges", {"\u4e00 b"}), "not written in the alphabet of bytes");
    Json llama = llama2_json({"a"}, {});
    llama["model"]["vocab"]["<0x41>a"] = 5000;
    llama["model"]["merges"] = {"<0x41> a"};
    refuses(llama, "merge 1 joins the token of a byte");
}

TEST(HostileFile, WithAddedTokensThatContradictIt) {
    refuses(changed("/added_tokens", 3), "added_tokens = 3: is not a list");
    refuses(changed("/added_tokens", Json::array({3})), "\"content\" is missing");
    refuses(changed("/added_tokens", Json::array({added(900, "")})), "no content");
    refuses(changed("/added_tokens", Json::array({added(900, "a")})),
            "the added token \"a\" has the id 900, but the vocabulary");
    refuses(changed("/added_tokens", Json::array({added(97, "<new>")})),
            "the added token \"<new>\" has the id 97, but");
    refuses(changed("/added_tokens", Json::array({added(900, "<x>"), added(900, "<y>")})),
            "the added token \"<y>\" of id 900 comes twice");
    refuses(changed("/added_tokens", Json::array({added(900, "<x>"), added(901, "<x>")})), "comes twice");
    refuses(changed("/added_tokens", Json::array({added(5'000'000, "<x>")})), "an id that is not a number from 0 to");
    refuses(changed("/added_tokens", Json::array({added(1, "<x>", {{"id", "one"}})})), "an id that is not a number");
    refuses(changed("/model/unk_token", "<none>"), "the unk_token \"<none>\" is not in the vocabulary");
}

TEST(HostileFile, WithAHugeText) {
    const std::string huge(10'000'000, 'a');
    const Tokenizer tokenizer =
        parse_tokenizer(changed("/added_tokens", Json::array({added(900, huge)})).dump(), "hostile.json");
    EXPECT_EQ(tokenizer.encode(huge), (Ids{900}));
    refuses(changed("/model/type", huge), "is not supported; only BPE is");
}

}  // namespace
}  // namespace invar::text
