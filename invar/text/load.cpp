// A tokenizer.json made into a Tokenizer. Whatever it asks for that would be left undone is refused by its name.
#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "invar/core/error.h"
#include "invar/core/printable.h"
#include "invar/io/file.h"
#include "invar/io/json_fields.h"
#include "invar/io/safetensors_header.h"  // Quoted
#include "invar/text/decoder.h"
#include "invar/text/raw_tokenizer.h"
#include "invar/text/tokenizer.h"
#include "invar/text/tokenizer_parts.h"

namespace invar::text {

namespace {

using Json = nlohmann::json;

// GPT-2's alphabet: bytes that can be printed are themselves in Latin-1, the others follow from U+0100 on.
struct ByteAlphabet {
    std::array<char32_t, 256> character{};
    std::unordered_map<char32_t, char> byte;

    ByteAlphabet() {
        char32_t more = 256;
        for (int b = 0; b < 256; ++b) {
            const bool printable = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
            character[std::size_t(b)] = printable ? char32_t(b) : more++;
            byte.emplace(character[std::size_t(b)], char(b));
        }
    }
    static const ByteAlphabet& get() {
        static const ByteAlphabet alphabet;
        return alphabet;
    }
};

Json value_or_null(const Json& object, const char* key) {
    return object.is_object() && object.contains(key) ? object.at(key) : Json();
}

class Builder {
  public:
    Builder(RawTokenizer raw, std::string_view source) : raw_(std::move(raw)), source_(source) {}

    std::shared_ptr<const TokenizerParts> build() {
        check_model();
        PreTokenizer pre_tokenizer = parse_pre_tokenizer(value_or_null(raw_.rest, "pre_tokenizer"), source_);
        byte_level_ = pre_tokenizer.byte_level;
        const std::unordered_map<std::string_view, TokenId> ids = index_vocabulary();
        parts_ = std::make_shared<TokenizerParts>(read_options(ids));
        parts_->name = source_;
        parts_->pre_tokenizer = std::move(pre_tokenizer);
        parts_->normalizer = parse_normalizer(value_or_null(raw_.rest, "normalizer"), source_);
        read_added_tokens(ids);
        fill_model();
        write_texts();
        find_added_tokens();
        return parts_;
    }

  private:
    void check_model() {
        model_ = value_or_null(raw_.rest, "model");
        check<IoError>(model_.is_object(), "{}: \"model\" is missing; not a tokenizer.json", source_);
        // The oldest files do not say what they are; those with merges are BPE.
        std::string type = raw_.has_merges ? "BPE" : "of no type";
        if (model_.contains("type")) type = text_field(model_, "type", source_);
        check<IoError>(type == "BPE", "{}: the model {} is not supported; only BPE is", source_, Quoted{type});
        check<IoError>(raw_.problem.empty(), "{}: {}", source_, raw_.problem);
        check<IoError>(!raw_.vocabulary.empty(), "{}: the vocabulary is missing or empty", source_);
        const Json dropout = value_or_null(model_, "dropout");
        check<IoError>(dropout.is_null() || dropout == 0, "{}: the model has a dropout, which is not supported",
                       source_);
        for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
            const Json value = value_or_null(model_, key);
            check<IoError>(value.is_null() || value == "", "{}: the model has a {}, which is not supported", source_,
                           key);
        }
    }

    std::unordered_map<std::string_view, TokenId> index_vocabulary() {
        std::unordered_map<std::string_view, TokenId> ids;
        ids.reserve(raw_.vocabulary.size());
        std::sort(raw_.vocabulary.begin(), raw_.vocabulary.end(),
                  [](const auto& a, const auto& b) { return a.second < b.second; });
        const std::pair<std::string, std::uint32_t>* before = nullptr;
        for (const auto& entry : raw_.vocabulary) {
            check<IoError>(before == nullptr || before->second != entry.second,
                           "{}: the tokens {} and {} both have the id {}", source_, Quoted{before ? before->first : ""},
                           Quoted{entry.first}, entry.second);
            check<IoError>(ids.emplace(entry.first, entry.second).second, "{}: the token {} is in the vocabulary twice",
                           source_, Quoted{entry.first});
            before = &entry;
        }
        return ids;
    }

    BpeOptions read_options(const std::unordered_map<std::string_view, TokenId>& ids) const {
        BpeOptions options;
        options.source = source_;
        options.byte_level = byte_level_;
        options.byte_fallback = flag_field(model_, "byte_fallback", false, source_);
        options.fuse_unk = flag_field(model_, "fuse_unk", false, source_);
        options.ignore_merges = flag_field(model_, "ignore_merges", false, source_);
        check<IoError>(!options.byte_level || !options.byte_fallback,
                       "{}: byte_fallback together with the pre-tokenizer ByteLevel is not supported", source_);
        if (const Json unk = value_or_null(model_, "unk_token"); !unk.is_null()) {
            const std::string name = text_field(model_, "unk_token", source_);
            const auto found = ids.find(name);
            check<IoError>(found != ids.end(), "{}: the unk_token {} is not in the vocabulary", source_, Quoted{name});
            options.unk = found->second;
        }
        return options;
    }

    void read_added_tokens(const std::unordered_map<std::string_view, TokenId>& ids) {
        if (find_field(raw_.rest, "added_tokens") == nullptr) return;
        const Json& list = list_field(raw_.rest, "added_tokens", source_);
        std::unordered_set<TokenId> in_vocabulary, seen;
        for (const auto& [name, id] : raw_.vocabulary) in_vocabulary.insert(id);
        std::unordered_set<std::string> contents;
        for (const Json& entry : list) {
            AddedToken token;
            token.content = text_field(entry, "content", source_);
            const Json& id = field(entry, "id", source_);
            check<IoError>(id.is_number_unsigned() && id.get<std::uint64_t>() < kMostTokens,
                           "{}: the added token {} has an id that is not a number from 0 to {}", source_,
                           Quoted{token.content}, kMostTokens - 1);
            token.id = id.get<TokenId>();
            token.special = flag_field(entry, "special", false, source_);
            token.normalized = flag_field(entry, "normalized", !token.special, source_);
            token.single_word = flag_field(entry, "single_word", false, source_);
            token.lstrip = flag_field(entry, "lstrip", false, source_);
            token.rstrip = flag_field(entry, "rstrip", false, source_);
            check<IoError>(!token.content.empty(), "{}: an added token has no content", source_);
            const auto found = ids.find(token.content);
            check<IoError>(found == ids.end() ? !in_vocabulary.contains(token.id) : found->second == token.id,
                           "{}: the added token {} has the id {}, but the vocabulary says otherwise", source_,
                           Quoted{token.content}, token.id);
            check<IoError>(seen.insert(token.id).second && contents.insert(token.content).second,
                           "{}: the added token {} of id {} comes twice", source_, Quoted{token.content}, token.id);
            parts_->added.push_back(std::move(token));
        }
    }

    // A name of the file in the alphabet of the model: bytes, or the characters that stand there.
    std::optional<std::string> model_text(const std::string& name) const {
        return byte_level_ ? bytes_of_name(name) : name;
    }

    void fill_model() {
        for (const auto& [name, id] : raw_.vocabulary)
            if (const std::optional<std::string> text = model_text(name)) parts_->bpe.add_token(*text, id);
        parts_->bpe.prepare_merges(raw_.merges.size());
        for (const auto& [left, right] : raw_.merges) {
            const std::optional<std::string> a = model_text(left), b = model_text(right);
            check<IoError>(a && b, "{}: a merge names {}, which is not written in the alphabet of bytes", source_,
                           Quoted{a ? right : left});
            parts_->bpe.add_merge(*a, *b);
        }
    }

    void write_texts() {
        const Decoder decoder = parse_decoder(value_or_null(raw_.rest, "decoder"), byte_level_, source_);
        std::map<TokenId, std::string> texts;
        for (const auto& [name, id] : raw_.vocabulary) texts.emplace(id, decoder.text_of(name));
        for (const AddedToken& token : parts_->added) texts[token.id] = token.content;
        parts_->texts = TokenTexts({texts.begin(), texts.end()});
        parts_->strip = decoder.strip;
        parts_->strip_front = decoder.strip_front;
        parts_->strip_back = decoder.strip_back;
        parts_->special.resize(parts_->texts.size());
        for (const AddedToken& token : parts_->added) parts_->special[token.id] = token.special;
    }

    void find_added_tokens() {
        std::vector<AddedToken> plain, normalized;
        std::vector<std::string> contents, normalized_contents;
        for (const AddedToken& token : parts_->added) {
            (token.normalized ? normalized : plain).push_back(token);
            Segment segment{token.content};
            if (token.normalized)
                for (const RewriteStep& step : parts_->normalizer) step.apply(segment);
            (token.normalized ? normalized_contents : contents).push_back(segment.text);
        }
        parts_->in_text = AddedTokens(std::move(plain), std::move(contents));
        parts_->in_normalized_text = AddedTokens(std::move(normalized), std::move(normalized_contents));
    }

    RawTokenizer raw_;
    std::string source_;
    Json model_;
    bool byte_level_ = false;
    std::shared_ptr<TokenizerParts> parts_;
};

}  // namespace

std::optional<std::string> bytes_of_name(std::string_view name) {
    const ByteAlphabet& alphabet = ByteAlphabet::get();
    std::string bytes;
    while (!name.empty()) {
        const Character c = first_character(name);
        const auto found = alphabet.byte.find(c.code);
        if (c.bytes == 0 || found == alphabet.byte.end()) return std::nullopt;
        bytes.push_back(found->second);
        name.remove_prefix(c.bytes);
    }
    return bytes;
}

std::string name_of_bytes(std::string_view bytes) {
    std::string name;
    for (const char byte : bytes) append_utf8(name, ByteAlphabet::get().character[static_cast<unsigned char>(byte)]);
    return name;
}

Tokenizer parse_tokenizer(std::string_view json, std::string_view source) {
    return Tokenizer(Builder(parse_raw_tokenizer(json, source), source).build());
}

Tokenizer load_tokenizer(const std::filesystem::path& path) {
    std::error_code ignored;
    const std::filesystem::path file = std::filesystem::is_directory(path, ignored) ? path / "tokenizer.json" : path;
    return parse_tokenizer(read_file(file, kMostTokenizerBytes), file.string());
}

Tokenizer bytes_tokenizer(bool with_end_of_text) {
    BpeOptions options;
    options.byte_level = true;
    options.source = "bytes";
    auto parts = std::make_shared<TokenizerParts>(std::move(options));
    parts->name = "bytes";
    std::vector<std::pair<TokenId, std::string>> texts;
    for (TokenId byte = 0; byte < 256; ++byte) {
        texts.emplace_back(byte, std::string(1, char(byte)));
        parts->bpe.add_token(texts.back().second, byte);
    }
    if (with_end_of_text) {
        parts->added.push_back({.id = 256, .content = std::string(kEndOfText), .special = true});
        texts.emplace_back(256, kEndOfText);
        parts->in_text = AddedTokens(parts->added, {std::string(kEndOfText)});
    }
    parts->texts = TokenTexts(texts);
    parts->special.resize(parts->texts.size());
    if (with_end_of_text) parts->special[256] = true;
    return Tokenizer(std::move(parts));
}

Tokenizer tokenizer_by_name(const std::string& name) {
    return name == "bytes" ? bytes_tokenizer() : load_tokenizer(name);
}

}  // namespace invar::text
