#include "invar/io/safetensors_parser.h"

#include <nlohmann/json.hpp>
#include <set>

#include "invar/core/error.h"
#include "invar/io/safetensors_header.h"

namespace invar {

namespace {

// Longer lists than any rank or pair of offsets need not be kept to be refused.
constexpr std::size_t kLongestList = 64;

// Receives the JSON parser's events. The only nesting is header > metadata or tensor > list of numbers.
class HeaderEvents : public nlohmann::json_sax<nlohmann::json> {
  public:
    HeaderEvents(RawHeader& header, std::string_view source) : header_(header), source_(source) {}

    bool start_object(std::size_t) override {
        if (place_ == Place::start) return go(Place::header);
        if (place_ != Place::header) return refuse("an object");
        if (key_ == "__metadata__") return go(Place::metadata);
        header_.entries.emplace_back().name = key_;
        return go(Place::tensor);
    }

    bool end_object() override { return go(place_ == Place::header ? Place::end : Place::header); }

    bool key(std::string& text) override {
        key_ = text;
        if (place_ == Place::tensor) return tensor_key();
        const bool fresh = place_ == Place::metadata ? !header_.metadata.contains(text) : names_.insert(text).second;
        check<IoError>(fresh, "{}: the key {} appears twice in the header", source_, Quoted{text});
        return true;
    }

    bool string(std::string& text) override {
        if (place_ == Place::metadata) {
            header_.metadata.emplace(key_, text);
            return true;
        }
        if (place_ != Place::tensor || key_ != "dtype") return refuse("a text");
        header_.entries.back().dtype = text;
        return true;
    }

    bool start_array(std::size_t) override {
        if (place_ != Place::tensor || key_ == "dtype") return refuse("a list");
        return go(Place::list);
    }
    bool end_array() override { return go(Place::tensor); }

    bool number_unsigned(std::uint64_t value) override {
        if (place_ != Place::list) return refuse("a number");
        RawEntry& entry = header_.entries.back();
        std::vector<std::uint64_t>& list = key_ == "shape" ? entry.shape : entry.offsets;
        check<IoError>(list.size() < kLongestList, "{}: the {} of tensor {} has more than {} numbers", source_, key_,
                       Quoted{entry.name}, kLongestList);
        list.push_back(value);
        return true;
    }

    bool number_integer(std::int64_t) override { return refuse("a negative number"); }
    bool number_float(double, const std::string&) override { return refuse("a number that is not a whole one"); }
    bool null() override { return refuse("null"); }
    bool boolean(bool) override { return refuse("true or false"); }
    bool binary(binary_t&) override { return refuse("binary data"); }

    bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
        fail<IoError>("{}: the header is not valid JSON at its byte {}; not a safetensors file, or damaged", source_,
                      position);
    }

  private:
    enum class Place { start, header, metadata, tensor, list, end };

    bool go(Place place) {
        place_ = place;
        return true;
    }

    bool tensor_key() {
        RawEntry& entry = header_.entries.back();
        bool* seen = key_ == "dtype"          ? &entry.has_dtype
                     : key_ == "shape"        ? &entry.has_shape
                     : key_ == "data_offsets" ? &entry.has_offsets
                                              : nullptr;
        check<IoError>(seen != nullptr, "{}: tensor {} has the key {}, expected dtype, shape and data_offsets", source_,
                       Quoted{entry.name}, Quoted{key_});
        check<IoError>(!*seen, "{}: tensor {} has the key {} twice", source_, Quoted{entry.name}, Quoted{key_});
        *seen = true;
        return true;
    }

    [[noreturn]] bool refuse(std::string_view found) const {
        switch (place_) {
            case Place::metadata:
                fail<IoError>("{}: metadata {} is {}, expected a text", source_, Quoted{key_}, found);
            case Place::tensor:
                fail<IoError>("{}: the {} of tensor {} is {}, expected {}", source_, Quoted{key_},
                              Quoted{header_.entries.back().name}, found,
                              key_ == "dtype" ? "a text" : "a list of whole numbers");
            case Place::list:
                fail<IoError>("{}: the {} of tensor {} holds {}, expected whole numbers from 0 to 2^64 - 1", source_,
                              Quoted{key_}, Quoted{header_.entries.back().name}, found);
            case Place::header:
                fail<IoError>("{}: the header's entry {} is {}, expected an object", source_, Quoted{key_}, found);
            default:
                fail<IoError>("{}: the header is {}, expected an object", source_, found);
        }
    }

    RawHeader& header_;
    std::string_view source_;
    Place place_ = Place::start;
    std::string key_;
    std::set<std::string> names_;
};

}  // namespace

RawHeader parse_raw_header(std::string_view json, std::string_view source) {
    check<IoError>(json.starts_with('{'), "{}: the header does not begin with '{{'; not a safetensors file?", source);
    // The JSON parser takes a zero byte for the end and would not look at what follows.
    check<IoError>(json.find('\0') == json.npos, "{}: the header holds a zero byte; not a safetensors file, or damaged",
                   source);
    RawHeader header;
    HeaderEvents events(header, source);
    nlohmann::json::sax_parse(json, &events);
    return header;
}

}  // namespace invar
