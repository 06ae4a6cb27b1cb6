#include "invar/text/raw_tokenizer.h"

#include <fmt/format.h>

#include "invar/core/error.h"
#include "invar/io/safetensors_header.h"  // Quoted
#include "invar/text/tokenizer_parts.h"   // kMostTokens

namespace invar::text {

namespace {

using Json = nlohmann::json;

constexpr std::size_t kDeepest = 32;
constexpr std::size_t kMostValues = std::size_t(1) << 20;  // outside the vocabulary and the merges
constexpr std::size_t kMostMerges = 2 * kMostTokens;

// Receives the JSON parser's events. Most of them build a small tree; those of model.vocab and model.merges do not.
class TokenizerEvents : public nlohmann::json_sax<Json> {
  public:
    TokenizerEvents(RawTokenizer& raw, std::string_view source) : raw_(raw), source_(source) {}

    bool start_object(std::size_t) override {
        check_depth();
        if (place_ != Place::tree) return skip("an object");
        if (at_model("vocab")) return go_apart(Place::vocabulary);
        open_.push_back(&put(Json::object()));
        return true;
    }

    bool start_array(std::size_t) override {
        check_depth();
        if (place_ == Place::merges) {
            pair_.clear();
            return go(Place::pair);
        }
        if (place_ != Place::tree) return skip("a list");
        if (at_model("merges")) {
            raw_.has_merges = true;
            return go_apart(Place::merges);
        }
        if (at_model("vocab")) {
            note("the vocabulary is a list");
            return go_apart(Place::skipped);
        }
        open_.push_back(&put(Json::array()));
        return true;
    }

    bool end_object() override { return end_container(); }
    bool end_array() override { return end_container(); }

    bool key(std::string& text) override {
        key_ = std::move(text);
        if (depth_ == 1) top_key_ = key_;
        if (place_ != Place::tree) return true;
        check<IoError>(!open_.back()->contains(key_) && !seen_apart(), "{}: the key {} appears twice in one object",
                       source_, Quoted{key_});
        return true;
    }

    bool string(std::string& text) override {
        if (place_ == Place::tree) return put(std::move(text)), true;
        if (place_ == Place::pair) {
            if (pair_.size() <= 2) pair_.push_back(std::move(text));
        } else if (place_ == Place::merges) {
            const std::size_t space = text.find(' ');
            if (space == text.npos || text.find(' ', space + 1) != text.npos)
                note(fmt::format("merge {} is {}, expected two tokens with a space between them",
                                 raw_.merges.size() + 1, Quoted{text}));
            else
                add_merge(text.substr(0, space), text.substr(space + 1));
        } else if (place_ == Place::vocabulary) {
            note(fmt::format("the id of {} is a text", Quoted{key_}));
        }
        return true;
    }

    bool number_unsigned(std::uint64_t value) override {
        if (place_ == Place::tree) return put(value), true;
        if (place_ != Place::vocabulary) return other("a number");
        check<IoError>(value < kMostTokens, "{}: the token {} has the id {}; ids from 0 to {} are supported", source_,
                       Quoted{key_}, value, kMostTokens - 1);
        check<IoError>(raw_.vocabulary.size() < kMostTokens, "{}: the vocabulary has more than {} tokens", source_,
                       kMostTokens);
        raw_.vocabulary.emplace_back(std::move(key_), std::uint32_t(value));
        return true;
    }

    bool number_integer(std::int64_t value) override {
        return place_ == Place::tree ? (put(value), true) : other("a negative number");
    }
    bool number_float(double value, const std::string&) override {
        return place_ == Place::tree ? (put(value), true) : other("a number that is not a whole one");
    }
    bool null() override { return place_ == Place::tree ? (put(nullptr), true) : other("null"); }
    bool boolean(bool value) override { return place_ == Place::tree ? (put(value), true) : other("true or false"); }
    bool binary(binary_t&) override { return other("binary data"); }

    bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
        fail<IoError>("{}: not valid JSON at byte {}; not a tokenizer.json, or damaged", source_, position);
    }

  private:
    enum class Place { tree, vocabulary, merges, pair, skipped };
    static constexpr std::size_t kModelDepth = 2;  // inside the object "model" of the whole

    bool go(Place place) {
        place_ = place;
        return true;
    }
    bool go_apart(Place place) {
        apart_depth_ = depth_;
        return go(place);
    }
    // What has no business in a vocabulary or in merges is passed over together with all that follows, and reported in
    // the end.
    bool skip(std::string_view found) {
        other(found);
        return go(Place::skipped);
    }

    bool end_container() {
        --depth_;
        if (place_ == Place::tree) {
            open_.pop_back();
        } else if (depth_ < apart_depth_) {
            place_ = Place::tree;
        } else if (place_ == Place::pair) {
            if (pair_.size() == 2)
                add_merge(std::move(pair_[0]), std::move(pair_[1]));
            else
                note(fmt::format("merge {} is not a pair", raw_.merges.size() + 1));
            place_ = Place::merges;
        }
        return true;
    }

    bool other(std::string_view found) {
        if (place_ == Place::vocabulary) note(fmt::format("the id of {} is {}", Quoted{key_}, found));
        if (place_ == Place::merges || place_ == Place::pair) note(fmt::format("the merges hold {}", found));
        return true;
    }

    bool at_model(std::string_view key) const {
        return depth_ == kModelDepth + 1 && top_key_ == "model" && key_ == key && open_.back()->is_object();
    }
    // The two that are not in the tree would not be found there.
    bool seen_apart() {
        if (depth_ != kModelDepth || top_key_ != "model") return false;
        bool* seen = key_ == "vocab" ? &saw_vocabulary_ : key_ == "merges" ? &saw_merges_ : nullptr;
        return seen != nullptr && std::exchange(*seen, true);
    }

    void check_depth() {
        check<IoError>(++depth_ <= kDeepest, "{}: nested more than {} levels deep; not a tokenizer.json", source_,
                       kDeepest);
    }

    template <class T>
    Json& put(T&& value) {
        check<IoError>(++values_ <= kMostValues, "{}: more than {} values beside its vocabulary; not a tokenizer.json",
                       source_, kMostValues);
        if (open_.empty()) return raw_.rest = std::forward<T>(value);
        if (open_.back()->is_array()) return open_.back()->emplace_back(std::forward<T>(value));
        return (*open_.back())[key_] = std::forward<T>(value);
    }

    void add_merge(std::string left, std::string right) {
        check<IoError>(raw_.merges.size() < kMostMerges, "{}: more than {} merges", source_, kMostMerges);
        raw_.merges.emplace_back(std::move(left), std::move(right));
    }

    void note(std::string problem) {
        if (raw_.problem.empty()) raw_.problem = std::move(problem);
    }

    RawTokenizer& raw_;
    std::string_view source_;
    Place place_ = Place::tree;
    std::vector<Json*> open_;
    std::string key_, top_key_;
    std::vector<std::string> pair_;
    std::size_t depth_ = 0, apart_depth_ = 0, values_ = 0;
    bool saw_vocabulary_ = false, saw_merges_ = false;
};

}  // namespace

RawTokenizer parse_raw_tokenizer(std::string_view json, std::string_view source) {
    // The JSON parser takes a zero byte for the end and would not look at what follows.
    check<IoError>(json.find('\0') == json.npos, "{}: it holds a zero byte; not a tokenizer.json, or damaged", source);
    RawTokenizer raw;
    TokenizerEvents events(raw, source);
    nlohmann::json::sax_parse(json, &events);
    check<IoError>(raw.rest.is_object(), "{}: it is no JSON object; not a tokenizer.json", source);
    return raw;
}

}  // namespace invar::text
