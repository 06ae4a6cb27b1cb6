// A text encoded part by part: wherever a part is accepted, its tokens and those of the rest are those of the whole.
#include <gtest/gtest.h>

#include "tests/text/families.h"

namespace invar::text {
namespace {

struct Family {
    std::string name;
    Tokenizer tokenizer;
};

std::vector<Family> families() {
    const Merges bytes = {{"t", "h"},   {"th", "e"}, {" ", "the"},  {"e", "r"},  {" ", " "},
                          {"\n", "\n"}, {"1", "2"},  {".", "."},    {"..", "."}, {"\xe6", "\x97"},
                          {"l", "o"},   {"lo", "w"}, {"e", "\xcc"}, {"\n", " "}};
    const Merges characters = {{"t", "h"}, {"th", "e"}, {"▁", "the"}, {"e", "r"},   {"▁", "▁"}, {"▁▁", "▁▁"},
                               {"l", "o"}, {"lo", "w"}, {".", "."},   {"日", "本"}, {"s", "t"}, {"e", "st"}};
    const Symbols alphabet = {"▁",  "t",  "h",  "e", "r", "l", "o", "w", ".",
                              "日", "本", "語", "s", "a", "b", "1", "2", "é"};
    std::vector<Family> all;
    const auto add = [&](const char* name, const Json& json) {
        all.push_back({name, parse_tokenizer(json.dump(), name)});
    };
    add("gpt2", gpt2_json(bytes));
    Json json = gpt2_json(bytes);
    json["pre_tokenizer"]["add_prefix_space"] = true;
    add("gpt2 with a space in front", json);
    json["pre_tokenizer"]["use_regex"] = false;
    add("bytes in one piece", json);
    json = split_json(bytes, kQwenPattern);
    json["normalizer"] = {{"type", "NFC"}};
    add("qwen", json);
    json["added_tokens"].push_back(added(400, "est", {{"normalized", true}, {"rstrip", true}, {"special", false}}));
    json["added_tokens"].push_back(added(401, "<|end", {{"lstrip", true}}));
    add("qwen with added tokens", json);
    json = split_json(bytes, kLlama3Pattern);
    json["model"]["ignore_merges"] = true;
    add("llama3", json);
    for (const char* behavior : {"Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext"}) {
        json = split_json(bytes, R"(\s+|\p{N}+)");
        json["pre_tokenizer"]["pretokenizers"][0]["behavior"] = behavior;
        add(behavior, json);
        json["pre_tokenizer"]["pretokenizers"][0]["invert"] = true;
        add(behavior, json);
    }
    add("looks back", split_json(bytes, R"((?<=e)r|\s+|\S)"));
    add("llama2", llama2_json(alphabet, characters));
    json = llama2_json(alphabet, characters);
    json["model"]["byte_fallback"] = false;
    add("llama2 without bytes", json);
    json = llama2_json(alphabet, characters);
    json["normalizer"] = nullptr;
    json["pre_tokenizer"] = {
        {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}, {"split", false}};
    add("metaspace", json);
    json["pre_tokenizer"]["split"] = true;
    add("metaspace that splits", json);
    all.push_back({"bytes", bytes_tokenizer()});
    return all;
}

TEST(EncodePart, GivesTheTokensOfTheWholeWhereverItAcceptsACut) {
    std::mt19937 random(21);
    for (const Family& family : families()) {
        WordCache cache;
        int accepted = 0, tried = 0;
        for (int i = 0; i < 60; ++i) {
            const std::string text = odd_text(random, 60, i % 3 == 0);
            const Ids whole = family.tokenizer.encode(text);
            for (std::size_t cut = 1; cut < text.size(); cut += 1 + random() % 5) {
                const std::string_view head = std::string_view(text).substr(0, cut);
                const std::string_view tail = std::string_view(text).substr(cut);
                // All that follows, or only the beginning of it.
                const std::string_view next = tail.substr(0, i % 2 == 0 ? tail.npos : 40 + random() % 20);
                ++tried;
                std::optional<Ids> ids = family.tokenizer.encode_part(head, next, true, cache);
                if (!ids) continue;
                ++accepted;
                const Ids rest = *family.tokenizer.encode_part(tail, "", false, cache);
                ids->insert(ids->end(), rest.begin(), rest.end());
                ASSERT_EQ(*ids, whole) << family.name << ": " << printable(head) << " | " << printable(tail);
            }
        }
        const int least = family.name == "looks back" ? 0 : tried / 20;  // that one hardly ever can
        EXPECT_GE(accepted, least) << family.name;
    }
}

TEST(EncodePart, AcceptsTheBeginningOfAnOrdinaryLine) {
    const std::string head = "The low tower isn't lower.\nIt has 123 rooms;\n\n", tail(200, 'x');
    WordCache cache;
    for (const Family& family : families()) {
        // Unknown characters on both sides would be one token.
        if (family.name == "llama2 without bytes") continue;
        if (family.name == "looks back" || family.name == "Removed" || family.name == "Contiguous" ||
            family.name.starts_with("Merged"))
            continue;
        EXPECT_TRUE(family.tokenizer.encode_part(head, "And this goes on. " + tail, true, cache)) << family.name;
        EXPECT_TRUE(family.tokenizer.encode_part(head, "日本語、 and so on. " + tail, true, cache)) << family.name;
    }
}

}  // namespace
}  // namespace invar::text
