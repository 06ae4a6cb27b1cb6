// Regular expressions as tokenizers use them: written for Oniguruma, run by PCRE2 (UTF and Unicode properties, compiled
// to machine code where the system allows). What the two would understand differently is translated or refused.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>

namespace invar::text {

class Regex {
  public:
    // `source` names the file in errors. An IoError where the pattern is no such expression.
    Regex(std::string_view pattern, std::string_view source);
    // One that matches this text and nothing else.
    static Regex literal(std::string_view text, std::string_view source);

    // Calls found(begin, end) for each match from left to right, until that returns false. Bytes that are not UTF-8
    // match nothing, and no match reaches over them.
    //
    // With `open`, more text follows that is not known. Matches are then reported as long as they do not depend on it:
    // false comes back where the next one might, or where none was found any more.
    using Found = std::function<bool(std::size_t, std::size_t)>;
    bool each_match(std::string_view text, bool open, const Found& found) const;

    // Whether a match may depend on what stands before it, so that a text cannot be taken up in the middle.
    bool looks_back() const { return looks_back_; }

  private:
    struct Code;  // of PCRE2
    Regex() = default;
    void compile(std::string_view pattern, std::string_view original, bool literal, std::string_view source);
    std::shared_ptr<const Code> code_;
    bool looks_back_ = false;
};

}  // namespace invar::text
