#include "invar/text/train_bpe.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <queue>

#include "invar/core/error.h"
#include "invar/io/file.h"
#include "invar/text/tokenizer.h"
#include "invar/text/tokenizer_parts.h"

namespace invar::text {

namespace {

// A longer one (a line without a blank) is counted in pieces: otherwise every merge would go through all of it again.
constexpr std::size_t kLongestWord = 1024;

using Pair = std::pair<TokenId, TokenId>;

struct PairHash {
    std::size_t operator()(const Pair& pair) const {
        return std::size_t((std::uint64_t(pair.first) << 32 | pair.second) * 0x9e3779b97f4a7c15u >> 17);
    }
};

void add_word(std::string_view word, WordCounts& counts) {
    for (; !word.empty(); word.remove_prefix(std::min(word.size(), kLongestWord))) {
        const std::string_view part = word.substr(0, kLongestWord);
        const auto found = counts.find(part);
        if (found != counts.end())
            ++found->second;
        else
            counts.emplace(part, 1);
    }
}

// A tokenizer without merges, of which only the way it cuts text is used.
const Tokenizer& cutter() {
    static const Tokenizer tokenizer = parse_tokenizer(tokenizer_json({}), "the pattern of GPT-2");
    return tokenizer;
}

class Trainer {
  public:
    explicit Trainer(const WordCounts& counts) {
        std::vector<std::pair<std::string_view, std::uint64_t>> sorted(counts.begin(), counts.end());
        std::sort(sorted.begin(), sorted.end());
        words_.reserve(sorted.size());
        for (const auto& [text, count] : sorted) {
            if (text.size() < 2) continue;
            Word word{{}, std::int64_t(count)};
            for (const char byte : text) word.tokens.push_back(static_cast<unsigned char>(byte));
            words_.push_back(std::move(word));
        }
        for (std::size_t i = 0; i < words_.size(); ++i) count_pairs(i, 1);
        take_changes();
    }

    // Nothing where no pair comes twice.
    std::optional<Pair> most_frequent() {
        while (!queue_.empty()) {
            const Candidate best = queue_.top();
            const std::int64_t now = pairs_.at(best.pair).count;
            if (best.count == now) return now >= 2 ? std::optional(best.pair) : std::nullopt;
            queue_.pop();  // it has become less frequent since
            if (now > 0 && now < best.count) queue_.push({now, best.pair});
        }
        return std::nullopt;
    }

    void merge(const Pair& pair, TokenId made) {
        std::vector<std::uint32_t> where = std::move(pairs_.at(pair).words);
        std::sort(where.begin(), where.end());
        where.erase(std::unique(where.begin(), where.end()), where.end());
        for (const std::uint32_t i : where) {
            std::vector<TokenId>& tokens = words_[i].tokens;
            const auto is_pair = [&](std::size_t at) {
                return at + 1 < tokens.size() && tokens[at] == pair.first && tokens[at + 1] == pair.second;
            };
            std::size_t found = 0;
            while (found < tokens.size() && !is_pair(found)) ++found;
            if (found == tokens.size()) continue;  // it had the pair once
            count_pairs(i, -1);
            std::size_t out = found;
            for (std::size_t at = found; at < tokens.size(); ++out) {
                const bool merged = is_pair(at);
                tokens[out] = merged ? made : tokens[at];
                at += merged ? 2 : 1;
            }
            tokens.resize(out);
            count_pairs(i, 1);
        }
        take_changes();
    }

  private:
    struct Word {
        std::vector<TokenId> tokens;
        std::int64_t count;
    };
    struct PairState {
        std::int64_t count = 0, queued = 0;
        std::vector<std::uint32_t> words;  // that have it or have had it
    };
    struct Candidate {
        std::int64_t count;
        Pair pair;
        bool operator<(const Candidate& other) const {  // the largest is taken first
            return count != other.count ? count < other.count : pair > other.pair;
        }
    };

    void count_pairs(std::size_t i, int sign) {
        const Word& word = words_[i];
        for (std::size_t at = 0; at + 1 < word.tokens.size(); ++at) {
            const Pair pair{word.tokens[at], word.tokens[at + 1]};
            PairState& state = pairs_[pair];
            state.count += sign * word.count;
            if (sign > 0 && (state.words.empty() || state.words.back() != i)) state.words.push_back(std::uint32_t(i));
            changed_.push_back(pair);
        }
    }

    // Pairs that have become more frequent are put into the queue again; the others are noticed when their turn comes.
    void take_changes() {
        for (const Pair& pair : changed_) {
            PairState& state = pairs_.at(pair);
            if (state.count > state.queued) queue_.push({state.count, pair});
            state.queued = state.count;
        }
        changed_.clear();
    }

    std::vector<Word> words_;
    std::unordered_map<Pair, PairState, PairHash> pairs_;
    std::vector<Pair> changed_;
    std::priority_queue<Candidate> queue_;
};

struct CountedPart : PartResult {
    WordCounts counts;
};

}  // namespace

void count_words(std::string_view text, WordCounts& counts) {
    cutter().each_piece(text, "", true, [&](std::string_view word) { add_word(word, counts); });
}

bool count_words(const std::vector<std::filesystem::path>& files, const FilePartsOptions& options, WordCounts& counts) {
    return work_on_files(
        files, options,
        [](const FilePart& part, int) -> std::unique_ptr<PartResult> {
            auto result = std::make_unique<CountedPart>();
            const bool sure = cutter().each_piece(part.text, part.next, part.begins_file,
                                                  [&](std::string_view word) { add_word(word, result->counts); });
            return sure ? std::move(result) : nullptr;
        },
        [&](const FilePart&, PartResult& result) {
            for (const auto& [word, count] : static_cast<CountedPart&>(result).counts) counts[word] += count;
        });
}

LearnedBpe train_bpe(const WordCounts& counts, std::size_t vocabulary_size,
                     const std::function<bool(std::size_t)>& progress) {
    check<UsageError>(vocabulary_size >= kSmallestVocabulary && vocabulary_size <= kMostTokens,
                      "a vocabulary of {} tokens cannot be learned; from {} (bytes and {}) to {} are possible",
                      vocabulary_size, kSmallestVocabulary, kEndOfText, kMostTokens);
    LearnedBpe learned;
    const auto text_of = [&](TokenId id) { return id < 256 ? std::string(1, char(id)) : learned.tokens[id - 256]; };
    Trainer trainer(counts);
    while (learned.vocabulary_size() < vocabulary_size) {
        if (progress && !progress(learned.tokens.size())) break;
        const std::optional<Pair> pair = trainer.most_frequent();
        if (!pair) break;
        // No other pair makes the same text: between two places where tokens meet, the merges so far have made the same
        // of it everywhere.
        trainer.merge(*pair, TokenId(256 + learned.tokens.size()));
        learned.tokens.push_back(text_of(pair->first) + text_of(pair->second));
        learned.merges.push_back(*pair);
    }
    return learned;
}

LearnedBpe train_bpe(std::span<const std::string> texts, std::size_t vocabulary_size) {
    WordCounts counts;
    for (const std::string& text : texts) count_words(text, counts);
    return train_bpe(counts, vocabulary_size);
}

std::string tokenizer_json(const LearnedBpe& learned) {
    const auto quoted = [](std::string_view text) { return nlohmann::json(text).dump(); };
    std::vector<std::string> names;
    for (int byte = 0; byte < 256; ++byte) names.push_back(name_of_bytes(std::string(1, char(byte))));
    for (const std::string& token : learned.tokens) names.push_back(name_of_bytes(token));
    std::vector<std::string> vocabulary, merges;
    for (std::size_t id = 0; id < names.size(); ++id)
        vocabulary.push_back(fmt::format("\n      {}: {}", quoted(names[id]), id));
    vocabulary.push_back(fmt::format("\n      {}: {}", quoted(kEndOfText), names.size()));
    for (const auto& [left, right] : learned.merges)
        merges.push_back("\n      " + quoted(names[left] + " " + names[right]));
    const auto byte_level = [](bool prefix, bool trim) {
        return fmt::format(R"({{"type": "ByteLevel", "add_prefix_space": {}, "trim_offsets": {}, "use_regex": true}})",
                           prefix, trim);
    };
    return fmt::format(R"({{
  "version": "1.0",
  "truncation": null,
  "padding": null,
  "added_tokens": [
    {{"id": {}, "content": {}, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}}
  ],
  "normalizer": null,
  "pre_tokenizer": {},
  "post_processor": {},
  "decoder": {},
  "model": {{
    "type": "BPE",
    "dropout": null,
    "unk_token": null,
    "continuing_subword_prefix": null,
    "end_of_word_suffix": null,
    "fuse_unk": false,
    "byte_fallback": false,
    "ignore_merges": false,
    "vocab": {{{}
    }},
    "merges": [{}
    ]
  }}
}}
)",
                       names.size(), quoted(kEndOfText), byte_level(false, true), byte_level(true, false),
                       byte_level(true, true), fmt::join(vocabulary, ","), fmt::join(merges, ","));
}

void save_tokenizer_json(const std::filesystem::path& path, const LearnedBpe& learned) {
    write_file_atomically(path, tokenizer_json(learned));
}

}  // namespace invar::text
