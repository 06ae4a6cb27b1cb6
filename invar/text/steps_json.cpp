// Normalizers and pre-tokenizers as tokenizer.json spells them.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "invar/core/error.h"
#include "invar/core/printable.h"
#include "invar/io/json_fields.h"
#include "invar/io/safetensors_header.h"  // Quoted
#include "invar/text/steps.h"

namespace invar::text {

namespace {

using Json = nlohmann::json;

// GPT-2's own pattern, which ByteLevel has built in.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

Regex compile(const PatternText& pattern, std::string_view source) {
    return pattern.regex ? Regex(pattern.text, source) : Regex::literal(pattern.text, source);
}

SplitStep::Behavior parse_behavior(const std::string& text, std::string_view source) {
    using enum SplitStep::Behavior;
    if (text == "Isolated") return isolated;
    if (text == "Removed") return removed;
    if (text == "Contiguous") return contiguous;
    if (text == "MergedWithPrevious") return merged_with_previous;
    if (text == "MergedWithNext") return merged_with_next;
    fail<IoError>("{}: the pre-tokenizer Split has the behavior {}, which is not known", source, Quoted{text});
}

std::string one_character(const Json& object, const char* key, std::string_view source) {
    std::string text = text_field(object, key, source);
    check<IoError>(!text.empty() && first_character(text).bytes == text.size(),
                   "{}: \"{}\" is {}, expected one character", source, key, Quoted{text});
    return text;
}

class PreTokenizerReader {
  public:
    explicit PreTokenizerReader(std::string_view source) : source_(source) {}

    void read(const Json& json, int depth = 0) {
        const std::string type = type_of(json, "pre-tokenizer", source_);
        if (type == "Sequence") {
            check<IoError>(depth < 8, "{}: pre-tokenizers are nested too deeply", source_);
            for (const Json& each : list_field(json, "pretokenizers", source_)) read(each, depth + 1);
            return;
        }
        // ByteLevel writes the text in an alphabet of its own; what comes after it would look at that.
        check<IoError>(!result_.byte_level, "{}: the pre-tokenizer {} behind ByteLevel is not supported", source_,
                       Quoted{type});
        if (type == "ByteLevel")
            read_byte_level(json);
        else if (type == "Split")
            read_split(json);
        else if (type == "Digits")
            add_split(Regex(R"(\p{N})", source_), flag_field(json, "individual_digits", false, source_)
                                                      ? SplitStep::Behavior::isolated
                                                      : SplitStep::Behavior::contiguous);
        else if (type == "Metaspace")
            read_metaspace(json);
        else
            fail<IoError>("{}: the pre-tokenizer {} is not supported", source_, Quoted{type});
    }

    PreTokenizer take() { return std::move(result_); }

  private:
    void add_split(Regex regex, SplitStep::Behavior behavior, bool invert = false) {
        result_.splits.emplace_back(std::move(regex), behavior, invert);
    }

    void add_rewrite(RewriteStep step, std::string_view what) {
        check<IoError>(result_.splits.empty(), "{}: the pre-tokenizer {} behind one that splits is not supported",
                       source_, what);
        result_.rewrite.push_back(std::move(step));
    }

    void read_byte_level(const Json& json) {
        if (flag_field(json, "add_prefix_space", true, source_))
            add_rewrite(RewriteStep::prepend(" ", " ", false), "ByteLevel with add_prefix_space");
        if (flag_field(json, "use_regex", true, source_))
            add_split(Regex(kGpt2Pattern, source_), SplitStep::Behavior::isolated);
        result_.byte_level = true;
    }

    void read_split(const Json& json) {
        const PatternText pattern = parse_pattern(json, source_);
        add_split(compile(pattern, source_), parse_behavior(text_field(json, "behavior", source_), source_),
                  flag_field(json, "invert", false, source_));
    }

    void read_metaspace(const Json& json) {
        const std::string space = one_character(json, "replacement", source_);
        // Older files say add_prefix_space, newer ones prepend_scheme.
        std::string scheme = flag_field(json, "add_prefix_space", true, source_) ? "always" : "never";
        if (json.contains("prepend_scheme")) scheme = text_field(json, "prepend_scheme", source_);
        check<IoError>(scheme == "always" || scheme == "first" || scheme == "never",
                       "{}: the pre-tokenizer Metaspace has the prepend_scheme {}, which is not known", source_,
                       Quoted{scheme});
        add_rewrite(RewriteStep::replace(" ", space), "Metaspace");
        if (scheme != "never") add_rewrite(RewriteStep::prepend(space, space, scheme == "first"), "Metaspace");
        if (flag_field(json, "split", true, source_)) {
            add_split(Regex::literal(space, source_), SplitStep::Behavior::merged_with_next);
            result_.splits.back().before_each_character = true;
        }
    }

    std::string_view source_;
    PreTokenizer result_;
};

// How many times as long replacements may make a text, one after the other; those of real files make three of one.
constexpr double kMostGrowth = 1024;

struct Normalizers {
    std::vector<RewriteStep> steps;
    double growth = 1;
};

void read_normalizer(const Json& json, std::string_view source, int depth, Normalizers& found) {
    std::vector<RewriteStep>& steps = found.steps;
    const std::string type = type_of(json, "normalizer", source);
    if (type == "Sequence") {
        check<IoError>(depth < 8, "{}: normalizers are nested too deeply", source);
        for (const Json& each : list_field(json, "normalizers", source))
            read_normalizer(each, source, depth + 1, found);
    } else if (type == "NFC") {
        steps.push_back(RewriteStep::normal(NormalForm::nfc));
    } else if (type == "NFD") {
        steps.push_back(RewriteStep::normal(NormalForm::nfd));
    } else if (type == "NFKC") {
        steps.push_back(RewriteStep::normal(NormalForm::nfkc));
    } else if (type == "NFKD") {
        steps.push_back(RewriteStep::normal(NormalForm::nfkd));
    } else if (type == "Prepend") {
        steps.push_back(RewriteStep::prepend(text_field(json, "prepend", source), "", false));
    } else if (type == "Replace") {
        const PatternText pattern = parse_pattern(json, source);
        std::string content = text_field(json, "content", source);
        found.growth *= std::max(1.0, double(content.size()) / (pattern.regex ? 1.0 : double(pattern.text.size())));
        check<IoError>(found.growth <= kMostGrowth, "{}: normalizers that make a text {:.3g} times as long", source,
                       found.growth);
        steps.push_back(pattern.regex ? RewriteStep::replace_pattern(compile(pattern, source), std::move(content))
                                      : RewriteStep::replace(pattern.text, std::move(content)));
    } else {
        fail<IoError>("{}: the normalizer {} is not supported", source, Quoted{type});
    }
    check<IoError>(steps.size() <= kMostSteps, "{}: more than {} normalizers", source, kMostSteps);
}

}  // namespace

std::string type_of(const Json& json, std::string_view what, std::string_view source) {
    const Json* const type = find_field(json, "type");
    check<IoError>(type != nullptr && type->is_string(), "{}: a {} without a \"type\"", source, what);
    return type->get<std::string>();
}

PatternText parse_pattern(const Json& json, std::string_view source) {
    const Json& pattern = field(json, "pattern", source);
    for (const char* kind : {"String", "Regex"}) {
        if (!pattern.is_object() || !pattern.contains(kind)) continue;
        PatternText result{text_field(pattern, kind, source), std::string_view(kind) == "Regex"};
        check<IoError>(!result.text.empty(), "{}: a pattern is empty", source);
        return result;
    }
    fail<IoError>("{}: a \"pattern\" is neither a String nor a Regex", source);
}

std::vector<RewriteStep> parse_normalizer(const Json& json, std::string_view source) {
    Normalizers found;
    if (!json.is_null()) read_normalizer(json, source, 0, found);
    return found.steps;
}

PreTokenizer parse_pre_tokenizer(const Json& json, std::string_view source) {
    PreTokenizerReader reader(source);
    if (!json.is_null()) reader.read(json);
    PreTokenizer result = reader.take();
    check<IoError>(result.splits.size() <= kMostSteps, "{}: more than {} pre-tokenizers", source, kMostSteps);
    return result;
}

}  // namespace invar::text
