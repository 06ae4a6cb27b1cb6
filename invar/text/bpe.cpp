#include "invar/text/bpe.h"

#include <algorithm>
#include <charconv>
#include <queue>

#include "invar/core/error.h"
#include "invar/core/printable.h"
#include "invar/io/safetensors_header.h"  // Quoted

namespace invar::text {

namespace {

constexpr std::size_t kLongestCached = 64;  // bytes; what is longer is cut where it can be, and rarely comes again
constexpr std::size_t kMostCached = 1 << 16;

std::uint64_t pair_key(std::uint32_t left, std::uint32_t right) {
    return std::uint64_t(left) << 32 | right;
}

std::size_t spread(std::uint64_t key) {
    key ^= key >> 32;
    key *= 0x9e3779b97f4a7c15u;
    return static_cast<std::size_t>(key ^ (key >> 29));
}

}  // namespace

const std::vector<TokenId>* WordCache::find(std::string_view word) const {
    const auto found = words_.find(word);
    return found == words_.end() ? nullptr : &found->second;
}

void WordCache::keep(std::string_view word, const TokenId* begin, const TokenId* end) {
    if (words_.size() < kMostCached) words_.try_emplace(std::string(word), begin, end);
}

void NumberTable::reserve(std::size_t entries) {
    std::size_t size = 16;
    while (size < 2 * entries) size *= 2;
    if (size <= slots_.size()) return;
    std::vector<Slot> old(size);
    old.swap(slots_);
    count_ = 0;
    for (const Slot& slot : old)
        if (slot.key != ~std::uint64_t(0)) set(slot.key, slot.value);
}

void NumberTable::set(std::uint64_t key, std::uint64_t value) {
    if (2 * (count_ + 1) > slots_.size()) reserve(std::max<std::size_t>(8, 2 * count_));
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = spread(key) & mask;
    while (slots_[at].key != key && slots_[at].key != ~std::uint64_t(0)) at = (at + 1) & mask;
    if (slots_[at].key != key) ++count_;
    slots_[at] = {key, value};
}

const std::uint64_t* NumberTable::find(std::uint64_t key) const {
    if (slots_.empty()) return nullptr;
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t at = spread(key) & mask; slots_[at].key != ~std::uint64_t(0); at = (at + 1) & mask)
        if (slots_[at].key == key) return &slots_[at].value;
    return nullptr;
}

int byte_of_token(std::string_view name) {
    if (name.size() != 6 || !name.starts_with("<0x") || name.back() != '>') return -1;
    int value = -1;
    const char* digits = name.data() + 3;
    const auto [end, error] = std::from_chars(digits, digits + 2, value, 16);
    const bool capitals = std::none_of(digits, digits + 2, [](char c) { return c >= 'a' && c <= 'f'; });
    return error == std::errc() && end == digits + 2 && capitals && value >= 0 ? value : -1;
}

Bpe::Bpe(BpeOptions options) : options_(std::move(options)) {
    bytes_.fill(kNoToken);
}

Bpe::Edges Bpe::edges_of(std::string_view text) const {
    const auto byte = [](char c) { return char32_t(static_cast<unsigned char>(c)); };
    if (text.empty()) return {};
    if (options_.byte_level) return {byte(text.front()), byte(text.back())};
    std::size_t last = text.size() - 1;
    while (last > 0 && (byte(text[last]) & 0xc0) == 0x80) --last;
    return {first_character(text).code, first_character(text.substr(last)).code};
}

void Bpe::add_token(std::string_view text, TokenId id) {
    if (text.empty()) return;
    ids_.emplace(text, id);
    if (edges_.size() <= id) edges_.resize(std::size_t(id) + 1);
    edges_[id] = edges_of(text);
    if (options_.byte_level) {
        if (text.size() == 1) bytes_[static_cast<unsigned char>(text[0])] = id;
        return;
    }
    if (const Character c = first_character(text); c.bytes == text.size()) characters_.emplace(c.code, id);
    if (const int byte = byte_of_token(text); byte >= 0 && options_.byte_fallback) bytes_[std::size_t(byte)] = id;
}

TokenId Bpe::find(std::string_view text) const {
    const auto found = ids_.find(text);
    return found == ids_.end() ? kNoToken : found->second;
}

void Bpe::prepare_merges(std::size_t merges) {
    merges_.reserve(merges);
}

void Bpe::add_merge(std::string_view left, std::string_view right) {
    const auto id_of = [&](std::string_view text) {
        const TokenId id = find(text);
        check<IoError>(id != kNoToken, "{}: merge {} names {}, which is not in the vocabulary", options_.source,
                       merge_count_ + 1, Quoted{text});
        return id;
    };
    const TokenId a = id_of(left), b = id_of(right);
    // So that a byte of an unknown character never becomes part of something larger, and text can be cut beside it.
    check<IoError>(!options_.byte_fallback || (byte_of_token(left) < 0 && byte_of_token(right) < 0),
                   "{}: merge {} joins the token of a byte, which is not supported", options_.source, merge_count_ + 1);
    merges_.set(pair_key(a, b), pair_key(std::uint32_t(merge_count_++), id_of(std::string(left).append(right))));
    seams_.set(pair_key(edges_[a].last, edges_[b].first), 1);
}

bool Bpe::joinable(TokenId left, TokenId right) const {
    if (options_.fuse_unk && left == options_.unk && right == options_.unk) return true;
    return seams_.find(pair_key(edges_[left].last, edges_[right].first)) != nullptr;
}

std::size_t Bpe::append_symbols(std::string_view text, std::vector<TokenId>& symbols) const {
    const auto byte = [&](std::size_t i) { return bytes_[static_cast<unsigned char>(text[i])]; };
    if (options_.byte_level) {
        if (byte(0) != kNoToken || options_.unk != kNoToken) {
            symbols.push_back(byte(0) != kNoToken ? byte(0) : options_.unk);
            return 1;
        }
        fail<IoError>("{}: the text holds the byte 0x{:02x}, for which there is neither a token nor an unk_token",
                      options_.source, static_cast<unsigned char>(text[0]));
    }
    const Character c = first_character(text);
    const std::size_t size = std::max<std::size_t>(c.bytes, 1);  // a byte that is not UTF-8 stands for itself
    if (const auto found = characters_.find(c.code); c.bytes > 0 && found != characters_.end()) {
        symbols.push_back(found->second);
        return size;
    }
    bool all = options_.byte_fallback;
    for (std::size_t i = 0; i < size; ++i) all = all && byte(i) != kNoToken;
    if (all) {
        for (std::size_t i = 0; i < size; ++i) symbols.push_back(byte(i));
        return size;
    }
    check<IoError>(options_.unk != kNoToken,
                   "{}: the text holds U+{:04X}, for which there is neither a token nor an unk_token", options_.source,
                   static_cast<unsigned>(c.code));
    if (!options_.fuse_unk || symbols.empty() || symbols.back() != options_.unk) symbols.push_back(options_.unk);
    return size;
}

bool Bpe::separable(std::string_view text, std::size_t at) const {
    if (options_.ignore_merges) return false;  // a piece that is a token may reach over any place
    if (at == 0 || at >= text.size()) return true;
    std::size_t before = at - 1;
    if (!options_.byte_level) {
        const auto continues = [&](std::size_t i) { return (static_cast<unsigned char>(text[i]) & 0xc0) == 0x80; };
        while (before > 0 && at - before < 4 && continues(before)) --before;
        if (first_character(text.substr(before)).bytes != at - before) before = at - 1;
    }
    std::vector<TokenId> left, right;
    append_symbols(text.substr(before, at - before), left);
    append_symbols(text.substr(at), right);
    return !joinable(left.back(), right.front());
}

void Bpe::encode(std::string_view piece, WordCache& cache, std::vector<TokenId>& out) const {
    if (piece.size() <= kLongestCached || options_.ignore_merges) return encode_word(piece, cache, out);
    // A long piece, or a text that nothing has cut, falls into words wherever no merge can reach over.
    std::size_t begin = 0, at = 0;
    std::vector<TokenId> symbols;
    while (at < piece.size()) {
        const TokenId before = symbols.empty() ? kNoToken : symbols.back();
        symbols.clear();
        const std::size_t size = append_symbols(piece.substr(at), symbols);
        if (before != kNoToken && !joinable(before, symbols.front())) {
            encode_word(piece.substr(begin, at - begin), cache, out);
            begin = at;
        }
        at += size;
    }
    encode_word(piece.substr(begin), cache, out);
}

void Bpe::encode_word(std::string_view word, WordCache& cache, std::vector<TokenId>& out) const {
    const bool cached = word.size() <= kLongestCached;
    if (cached)
        if (const std::vector<TokenId>* known = cache.find(word)) {
            out.insert(out.end(), known->begin(), known->end());
            return;
        }
    std::vector<TokenId> symbols;
    if (const TokenId whole = options_.ignore_merges ? find(word) : kNoToken; whole != kNoToken) {
        symbols.push_back(whole);
    } else {
        symbols.reserve(word.size());
        for (std::size_t at = 0; at < word.size();) at += append_symbols(word.substr(at), symbols);
        merge(symbols);
    }
    if (cached) cache.keep(word, symbols.data(), symbols.data() + symbols.size());
    out.insert(out.end(), symbols.begin(), symbols.end());
}

// Of all pairs that can be merged the one of the lowest rank, and of those the leftmost, is taken from a heap. Symbols
// are a linked list, so that a merge costs no more in a long word; what a merge has made void is skipped when its turn
// comes.
void Bpe::merge(std::vector<TokenId>& symbols) const {
    struct Candidate {
        std::uint32_t rank, at;
        TokenId left, right, made;
        bool operator<(const Candidate& other) const {  // the largest is taken first
            return rank != other.rank ? rank > other.rank : at > other.at;
        }
    };
    constexpr std::uint32_t kEnd = ~std::uint32_t(0);
    const std::size_t count = symbols.size();
    check(count < kEnd, "a word of {} symbols is too long to be encoded", count);
    if (count < 2) return;
    std::vector<std::uint32_t> next(count), previous(count);
    for (std::size_t i = 0; i < count; ++i) {
        next[i] = i + 1 < count ? std::uint32_t(i + 1) : kEnd;
        previous[i] = i > 0 ? std::uint32_t(i - 1) : kEnd;
    }
    std::vector<Candidate> storage;
    storage.reserve(count);
    const auto candidate_at = [&](std::uint32_t at) -> const std::uint64_t* {
        return next[at] == kEnd ? nullptr : merges_.find(pair_key(symbols[at], symbols[next[at]]));
    };
    const auto candidate = [&](std::uint32_t at, std::uint64_t merge) {
        return Candidate{std::uint32_t(merge >> 32), at, symbols[at], symbols[next[at]], TokenId(merge)};
    };
    for (std::uint32_t i = 0; i < count; ++i)
        if (const std::uint64_t* merge = candidate_at(i)) storage.push_back(candidate(i, *merge));
    std::priority_queue<Candidate> queue(std::less<Candidate>(), std::move(storage));
    while (!queue.empty()) {
        const Candidate best = queue.top();
        queue.pop();
        const std::uint32_t at = best.at, right = next[at];
        if (symbols[at] != best.left || right == kEnd || symbols[right] != best.right) continue;
        symbols[at] = best.made;
        symbols[right] = kNoToken;
        next[at] = next[right];
        if (next[at] != kEnd) previous[next[at]] = at;
        if (const std::uint64_t* merge = candidate_at(at)) queue.push(candidate(at, *merge));
        if (const std::uint32_t before = previous[at]; before != kEnd)
            if (const std::uint64_t* merge = candidate_at(before)) queue.push(candidate(before, *merge));
    }
    std::erase(symbols, kNoToken);
}

}  // namespace invar::text
