#include "invar/text/decoder.h"

#include <nlohmann/json.hpp>

#include "invar/core/error.h"
#include "invar/io/json_fields.h"
#include "invar/io/safetensors_header.h"  // Quoted
#include "invar/text/bpe.h"               // byte_of_token
#include "invar/text/steps.h"
#include "invar/text/tokenizer_parts.h"

namespace invar::text {

namespace {

using Json = nlohmann::json;

class DecoderReader {
  public:
    DecoderReader(Decoder& decoder, std::string_view source) : decoder_(decoder), source_(source) {}

    void read(const Json& json, int depth = 0) {
        const std::string type = type_of(json, "decoder", source_);
        if (type == "Sequence") {
            check<IoError>(depth < 8, "{}: decoders are nested too deeply", source_);
            for (const Json& each : list_field(json, "decoders", source_)) read(each, depth + 1);
        } else if (type == "ByteLevel") {
            check<IoError>(decoder_.byte_level,
                           "{}: the decoder ByteLevel without the pre-tokenizer ByteLevel is not supported", source_);
        } else if (type == "Replace") {
            read_replace(json);
        } else if (type == "ByteFallback") {
            decoder_.byte_fallback = true;
        } else if (type == "Fuse") {
            fused_ = true;
        } else if (type == "Strip") {
            // Before Fuse it would be done to each token.
            check<IoError>(fused_, "{}: the decoder Strip without Fuse before it is not supported", source_);
            strip(text_field(json, "content", source_), count(json, "start"), count(json, "stop"));
        } else if (type == "Metaspace") {
            const std::string space = text_field(json, "replacement", source_);
            bool prepended = flag_field(json, "add_prefix_space", true, source_);
            if (json.contains("prepend_scheme")) prepended = text_field(json, "prepend_scheme", source_) != "never";
            add_replace(space, " ");
            strip(" ", prepended ? 1 : 0, 0);
        } else {
            fail<IoError>("{}: the decoder {} is not supported", source_, Quoted{type});
        }
    }

  private:
    void read_replace(const Json& json) {
        const PatternText pattern = parse_pattern(json, source_);
        check<IoError>(!pattern.regex, "{}: the decoder Replace with a Regex is not supported", source_);
        check<IoError>(!fused_, "{}: the decoder Replace behind Fuse is not supported", source_);
        add_replace(pattern.text, text_field(json, "content", source_));
    }

    void add_replace(std::string from, std::string to) {
        check<IoError>(!from.empty() && decoder_.replace.size() < kMostSteps,
                       "{}: a decoder replaces nothing, or too much", source_);
        decoder_.replace.emplace_back(std::move(from), std::move(to));
    }

    void strip(std::string content, std::size_t front, std::size_t back) {
        check<IoError>(decoder_.strip.empty() && !content.empty(),
                       "{}: more than one decoder strips, or one strips nothing", source_);
        decoder_.strip = std::move(content);
        decoder_.strip_front = front;
        decoder_.strip_back = back;
    }

    std::size_t count(const Json& json, const char* key) const {
        const Json& value = field(json, key, source_);
        check<IoError>(value.is_number_unsigned() && value.get<std::uint64_t>() < 1000,
                       "{}: \"{}\" of a decoder is not a small number", source_, key);
        return value.get<std::size_t>();
    }

    Decoder& decoder_;
    std::string_view source_;
    bool fused_ = false;
};

}  // namespace

std::string Decoder::text_of(const std::string& name) const {
    if (byte_level) return bytes_of_name(name).value_or(name);
    if (const int byte = byte_fallback ? byte_of_token(name) : -1; byte >= 0) return std::string(1, char(byte));
    Segment segment{name};
    for (const auto& [from, to] : replace) RewriteStep::replace(from, to).apply(segment);
    return segment.text;
}

Decoder parse_decoder(const Json& json, bool byte_level, std::string_view source) {
    Decoder decoder;
    decoder.byte_level = byte_level;
    if (!json.is_null()) DecoderReader(decoder, source).read(json);
    return decoder;
}

}  // namespace invar::text
