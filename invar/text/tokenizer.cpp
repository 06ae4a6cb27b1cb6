#include "invar/text/tokenizer.h"

#include <algorithm>

#include "invar/core/error.h"
#include "invar/core/printable.h"
#include "invar/text/tokenizer_parts.h"
#include "invar/text/unicode.h"

namespace invar::text {

namespace {

// Without the beginning of a character at the end, which what follows would finish.
std::string_view whole_characters(std::string_view text) {
    for (std::size_t back = 1; back <= 3 && back <= text.size(); ++back) {
        const auto byte = static_cast<unsigned char>(text[text.size() - back]);
        if (byte < 0x80) return text;
        if (byte >= 0xc0)
            return first_character(text.substr(text.size() - back)).bytes == 0 ? text.substr(0, text.size() - back)
                                                                               : text;
    }
    return text;
}

// A text on its way to tokens. With a cut, only what stands before it is encoded.
class Encoding {
  public:
    using Special = std::function<void(TokenId)>;
    Encoding(const TokenizerParts& parts, const Tokenizer::Piece& piece, const Special& special)
        : parts_(parts), piece_(piece), special_(special) {}

    // False where it is not certain that the tokens end at the cut.
    bool run(std::string_view text, std::size_t cut, bool begins_document) {
        return each_part(parts_.in_text, text, cut, [&](std::size_t begin, std::size_t end, std::size_t cut_here) {
            Segment segment{std::string(text.substr(begin, end - begin)), cut_here, begin == 0 && !begins_document,
                            begin == 0 && begins_document};
            return encode_segment(segment);
        });
    }

  private:
    // Emits the added tokens and hands on what is between them, up to the cut.
    template <class F>
    bool each_part(const AddedTokens& added, std::string_view text, std::size_t cut, F&& between) {
        const bool open = cut != Segment::kNoCut;
        if (open && (added.looks_back() || text.size() < cut + added.reach())) return false;
        // Behind this, a token may begin whose end is not in sight.
        const std::size_t known =
            open ? whole_characters(text.substr(0, text.size() - added.reach())).size() : text.size();
        if (open && known <= cut) return false;
        bool sure = true;
        added.split(text, [&](std::size_t begin, std::size_t end, std::optional<TokenId> id) {
            if (begin >= cut) return false;
            if (id) {
                sure = end < cut;  // right behind it the text begins anew, which the next part could not know
                special_(*id);
            } else {
                const bool reaches_over = end > cut;
                sure =
                    between(begin, std::min(end, std::max(known, begin)), reaches_over ? cut - begin : Segment::kNoCut);
            }
            return sure;
        });
        return sure;
    }

    bool encode_segment(Segment& segment) {
        for (const RewriteStep& step : parts_.normalizer)
            if (!step.apply(segment)) return false;
        return each_part(parts_.in_normalized_text, segment.text, segment.cut,
                         [&](std::size_t begin, std::size_t end, std::size_t cut_here) {
                             if (begin == 0 && end == segment.text.size()) return encode_stretch(segment);
                             Segment stretch{segment.text.substr(begin, end - begin), cut_here,
                                             begin == 0 && segment.continues, begin == 0 && segment.begins_document};
                             return encode_stretch(stretch);
                         });
    }

    bool encode_stretch(Segment& segment) {
        const PreTokenizer& pre = parts_.pre_tokenizer;
        for (const RewriteStep& step : pre.rewrite)
            if (!step.apply(segment)) return false;
        const std::string_view text = segment.text;
        std::vector<Range> pieces = {{0, std::min(text.size(), segment.cut)}};
        bool inside_piece = segment.open();
        if (!pre.splits.empty()) {
            const SplitStep& first = pre.splits.front();
            if (segment.open() && first.looks_back()) return false;
            if (!first.split(text, segment.cut, pieces)) return false;
            inside_piece = segment.open() && first.before_each_character;
        }
        if (inside_piece && !parts_.bpe.separable(text, segment.cut)) return false;
        for (std::size_t i = 1; i < pre.splits.size(); ++i) pieces = split_further(text, pieces, pre.splits[i]);
        for (const Range& piece : pieces) piece_(text.substr(piece.begin, piece.end - piece.begin));
        return true;
    }

    static std::vector<Range> split_further(std::string_view text, const std::vector<Range>& pieces,
                                            const SplitStep& step) {
        std::vector<Range> all, some;
        for (const Range& piece : pieces) {
            step.split(text.substr(piece.begin, piece.end - piece.begin), Segment::kNoCut, some);
            for (const Range& range : some) all.push_back({piece.begin + range.begin, piece.begin + range.end});
        }
        return all;
    }

    const TokenizerParts& parts_;
    const Tokenizer::Piece& piece_;
    const Special& special_;
};

// Whether bytes that are not UTF-8 have tokens.
bool keeps_bytes(const TokenizerParts& parts) {
    return parts.bpe.options().byte_level || parts.bpe.options().byte_fallback;
}

constexpr std::string_view kEndNames[] = {kEndOfText, "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "[EOS]"};

}  // namespace

std::optional<std::vector<TokenId>> Tokenizer::encode_part(std::string_view text, std::string_view next,
                                                           bool begins_document, WordCache& cache) const {
    std::vector<TokenId> out;
    out.reserve(text.size() / 3);
    const bool sure = encode_with(
        text, next, begins_document, [&](std::string_view piece) { parts_->bpe.encode(piece, cache, out); },
        [&](TokenId id) { out.push_back(id); });
    return sure ? std::optional(std::move(out)) : std::nullopt;
}

bool Tokenizer::each_piece(std::string_view text, std::string_view next, bool begins_document,
                           const Piece& piece) const {
    return encode_with(text, next, begins_document, piece, [](TokenId) {});
}

bool Tokenizer::encode_with(std::string_view text, std::string_view next, bool begins_document, const Piece& piece,
                            const std::function<void(TokenId)>& special) const {
    if (text.empty()) return true;
    std::string together;
    std::size_t cut = Segment::kNoCut;
    if (!next.empty()) {
        if ((static_cast<unsigned char>(next.front()) & 0xc0) == 0x80) return false;  // inside a character
        together.append(text).append(whole_characters(next));
        cut = text.size();
        text = together;
    }
    std::string mended;
    if (!keeps_bytes(*parts_) && valid_utf8_prefix(text) != text.size()) {
        mended = replace_invalid_utf8(text.substr(0, cut));
        if (cut != Segment::kNoCut) {
            const std::size_t at = std::exchange(cut, mended.size());
            mended += replace_invalid_utf8(text.substr(at));
        }
        text = mended;
    }
    return Encoding(*parts_, piece, special).run(text, cut, begins_document);
}

std::vector<TokenId> Tokenizer::encode(std::string_view text) const {
    WordCache cache;
    return *encode_part(text, "", true, cache);
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
    std::string text;
    for (const TokenId id : ids) {
        check<UsageError>(id < parts_->texts.size(), "there is no token {}: {} has {}", id, parts_->name,
                          parts_->texts.size());
        if (!skip_special || !parts_->special[id]) text.append(parts_->texts[id]);
    }
    const std::string& strip = parts_->strip;
    for (std::size_t i = 0; i < parts_->strip_front && text.starts_with(strip); ++i) text.erase(0, strip.size());
    for (std::size_t i = 0; i < parts_->strip_back && text.ends_with(strip); ++i)
        text.resize(text.size() - strip.size());
    return text;
}

std::size_t Tokenizer::vocabulary_size() const {
    return parts_->texts.size();
}

std::optional<TokenId> Tokenizer::id_of(std::string_view name) const {
    for (const AddedToken& token : parts_->added)
        if (token.content == name) return token.id;
    std::optional<std::string> text = std::string(name);
    if (parts_->bpe.options().byte_level) text = bytes_of_name(name);
    const TokenId id = text ? parts_->bpe.find(*text) : kNoToken;
    return id == kNoToken ? std::nullopt : std::optional(id);
}

const std::vector<AddedToken>& Tokenizer::added_tokens() const {
    return parts_->added;
}

std::optional<TokenId> Tokenizer::end_of_text() const {
    for (const std::string_view name : kEndNames)
        for (const AddedToken& token : parts_->added)
            if (token.special && token.content == name) return token.id;
    return std::nullopt;
}

const std::string& Tokenizer::name() const {
    return parts_->name;
}

TokenTexts::TokenTexts(const std::vector<std::pair<TokenId, std::string>>& texts) {
    for (const auto& [id, text] : texts) {
        begins_.resize(std::size_t(id) + 1, std::uint32_t(all_.size()));
        all_.append(text);
    }
    begins_.push_back(std::uint32_t(all_.size()));
}

}  // namespace invar::text
