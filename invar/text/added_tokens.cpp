#include "invar/text/added_tokens.h"

#include <algorithm>

#include "invar/text/unicode.h"

namespace invar::text {

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, std::vector<std::string> contents) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        if (contents[i].empty()) continue;
        begins_[static_cast<unsigned char>(contents[i][0])] = true;
        reach_ = std::max(reach_, contents[i].size() + 4);  // and the character behind it
        looks_back_ = looks_back_ || tokens[i].single_word;
        entries_.push_back({std::move(contents[i]), std::move(tokens[i])});
    }
    std::stable_sort(entries_.begin(), entries_.end(),
                     [](const Entry& a, const Entry& b) { return a.content < b.content; });
}

const AddedTokens::Entry* AddedTokens::longest_at(std::string_view text) const {
    // The entries that begin as the text does are neighbours; byte by byte there are fewer of them.
    auto first = entries_.begin(), last = entries_.end();
    const Entry* longest = nullptr;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        const auto byte_of = [i](const Entry& entry) {
            return i < entry.content.size() ? int(static_cast<unsigned char>(entry.content[i])) : -1;
        };
        first = std::partition_point(first, last, [&](const Entry& entry) { return byte_of(entry) < byte; });
        last = std::partition_point(first, last, [&](const Entry& entry) { return byte_of(entry) == byte; });
        if (first == last) break;
        if (first->content.size() == i + 1) longest = &*first;
    }
    return longest;
}

bool AddedTokens::split(std::string_view text, const Part& part) const {
    std::size_t done = 0;
    for (std::size_t at = 0; at < text.size();) {
        if (entries_.empty()) break;
        const Entry* found = begins_[static_cast<unsigned char>(text[at])] ? longest_at(text.substr(at)) : nullptr;
        if (found == nullptr) {
            ++at;
            continue;
        }
        std::size_t begin = at, end = at + found->content.size();
        at = end;
        const AddedToken& token = found->token;
        if (token.single_word && (ends_with_word(text.substr(0, begin)) || begins_with_word(text.substr(end))))
            continue;
        if (token.lstrip) begin = trailing_space_begin(text.substr(0, begin));
        begin = std::max(begin, done);
        if (token.rstrip) end += leading_space(text.substr(end));
        if (done < begin && !part(done, begin, std::nullopt)) return false;
        if (!part(begin, end, token.id)) return false;
        done = at = end;
    }
    return done == text.size() || part(done, text.size(), std::nullopt);
}

}  // namespace invar::text
