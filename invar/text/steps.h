// What happens to a text before the model sees it: steps that rewrite it (normalizers, the space that some put in
// front), and steps that cut it into pieces. Read from the JSON of a tokenizer, in Hugging Face's words.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "invar/text/regex.h"
#include "invar/text/unicode.h"

namespace invar::text {

inline constexpr std::size_t kMostSteps = 64;  // normalizers or pre-tokenizers in a row
// The "type" of a component of a tokenizer.json, `what` being "normalizer" or the like.
std::string type_of(const nlohmann::json& json, std::string_view what, std::string_view source);

// A stretch of text between special tokens, on its way through the steps.
struct Segment {
    static constexpr std::size_t kNoCut = std::string::npos;
    std::string text;
    // Where the part of a longer text ends that is being encoded. What stands behind it is there to be looked at.
    std::size_t cut = kNoCut;
    bool continues = false;       // the stretch has begun before this part of the text
    bool begins_document = true;  // nothing stands before it at all

    bool open() const { return cut != kNoCut; }
};

class RewriteStep {
  public:
    enum class Kind { normal_form, prepend, replace, replace_pattern };
    static RewriteStep normal(NormalForm form);
    // `unless` is what a text may begin with to be left alone; "" for none.
    static RewriteStep prepend(std::string text, std::string unless, bool document_only);
    static RewriteStep replace(std::string from, std::string to);
    static RewriteStep replace_pattern(Regex pattern, std::string to);

    // False where the text behind the cut might have changed what stands before it.
    bool apply(Segment& segment) const;

  private:
    explicit RewriteStep(Kind kind) : kind_(kind) {}
    std::string rewritten(std::string_view text) const;
    Kind kind_;
    NormalForm form_ = NormalForm::nfc;
    std::string from_, to_;
    bool document_only_ = false;
    std::optional<Regex> pattern_;
};

struct Range {
    std::size_t begin = 0, end = 0;
};

class SplitStep {
  public:
    enum class Behavior { isolated, removed, contiguous, merged_with_previous, merged_with_next };
    SplitStep(Regex pattern, Behavior behavior, bool invert)
        : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

    // The pieces up to `cut`, or all. False where `cut` is not known to be between two of them.
    bool split(std::string_view text, std::size_t cut, std::vector<Range>& pieces) const;
    bool looks_back() const { return pattern_.looks_back(); }

    // Cuts before every occurrence of one character, whatever stands around it, as Metaspace does. Then a text may
    // also be taken up in the middle of a piece.
    bool before_each_character = false;

  private:
    Regex pattern_;
    Behavior behavior_;
    bool invert_;
};

struct PreTokenizer {
    std::vector<RewriteStep> rewrite;
    std::vector<SplitStep> splits;
    bool byte_level = false;
    std::string metaspace;  // the character that stands for a space, where Metaspace is one of the steps
};

// Both take null for none. `source` names the file in errors; what is not supported is refused by its name.
std::vector<RewriteStep> parse_normalizer(const nlohmann::json& json, std::string_view source);
PreTokenizer parse_pre_tokenizer(const nlohmann::json& json, std::string_view source);

// "Replace" and the like take {"String": "..."} or {"Regex": "..."}.
struct PatternText {
    std::string text;
    bool regex = false;
};
PatternText parse_pattern(const nlohmann::json& json, std::string_view source);

}  // namespace invar::text
