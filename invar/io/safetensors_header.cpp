#include "invar/io/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>

#include "invar/core/error.h"
#include "invar/io/safetensors_parser.h"

namespace invar {

namespace {

constexpr std::int64_t kMostElements = std::numeric_limits<std::int64_t>::max();

// The format's names, in its order of increasing alignment.
struct DtypeName {
    std::string_view name;
    Dtype dtype;
};
constexpr DtypeName kDtypeNames[] = {{"BOOL", Dtype::boolean},   {"U8", Dtype::u8},   {"F8_E5M2", Dtype::f8e5m2},
                                     {"F8_E4M3", Dtype::f8e4m3}, {"F16", Dtype::f16}, {"BF16", Dtype::bf16},
                                     {"I32", Dtype::i32},        {"F32", Dtype::f32}, {"F64", Dtype::f64},
                                     {"I64", Dtype::i64}};
static_assert(std::size(kDtypeNames) == std::size(kAllDtypes));

const DtypeName& file_name_of(Dtype dtype) {
    return *std::find_if(std::begin(kDtypeNames), std::end(kDtypeNames), [&](auto& n) { return n.dtype == dtype; });
}

Dtype parse_file_dtype(const RawEntry& raw, std::string_view source) {
    for (const DtypeName& known : kDtypeNames)
        if (known.name == raw.dtype) return known.dtype;
    fail<IoError>(
        "{}: tensor {} has the dtype {}, expected one of BOOL U8 F8_E5M2 F8_E4M3 F16 BF16 I32 F32 F64 I64; "
        "convert it first",
        source, Quoted{raw.name}, Quoted{raw.dtype});
}

Shape parse_shape(const RawEntry& raw, std::string_view source) {
    const std::size_t rank = raw.shape.size();
    check<IoError>(rank <= std::size_t(kMaxRank),
                   "{}: tensor {} has {} dimensions, expected at most {}; reshape it first", source, Quoted{raw.name},
                   rank, kMaxRank);
    Shape shape;
    // Zeros do not excuse the other sizes: strides are products of those.
    std::uint64_t product = 1;
    for (const std::uint64_t size : raw.shape) {
        const bool fits = size == 0 || product <= std::uint64_t(kMostElements) / size;
        check<IoError>(fits, "{}: tensor {} has the shape [{}], expected fewer than 2^63 elements", source,
                       Quoted{raw.name}, fmt::join(raw.shape, ", "));
        product *= std::max<std::uint64_t>(size, 1);
        shape.push_back(static_cast<std::int64_t>(size));
    }
    return shape;
}

TensorEntry parse_entry(const RawEntry& raw, std::uint64_t data_bytes, std::string_view source) {
    const Quoted name{raw.name};
    check<IoError>(raw.has_dtype && raw.has_shape && raw.has_offsets,
                   "{}: tensor {} lacks one of dtype, shape and data_offsets", source, name);
    check<IoError>(raw.offsets.size() == 2, "{}: tensor {} has {} data_offsets, expected 2", source, name,
                   raw.offsets.size());
    TensorEntry entry{raw.name, parse_file_dtype(raw, source), parse_shape(raw, source), raw.offsets[0],
                      raw.offsets[1]};
    check<IoError>(entry.begin <= entry.end && entry.end <= data_bytes,
                   "{}: tensor {} has the data_offsets [{}, {}], expected a range within the file's {} data bytes",
                   source, name, entry.begin, entry.end, data_bytes);
    const auto count = static_cast<std::uint64_t>(entry.shape.numel());
    const std::uint64_t found = entry.end - entry.begin, width = size_of(entry.dtype);
    check<IoError>(found % width == 0 && found / width == count,
                   "{}: tensor {} has {} bytes, expected {} elements of {} each", source, name, found, count, width);
    return entry;
}

}  // namespace

std::string Quoted::str() const {
    constexpr std::size_t kLongest = 120;
    std::string shown(text.substr(0, kLongest));
    if (text.size() > kLongest) shown += "...";
    return nlohmann::json(shown).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

bool comes_before(const TensorEntry& a, const TensorEntry& b) {
    const auto *rank_a = &file_name_of(a.dtype), *rank_b = &file_name_of(b.dtype);
    return rank_a != rank_b ? rank_a > rank_b : a.name < b.name;
}

std::uint64_t parse_header_length(std::string_view first, std::uint64_t file_bytes, std::string_view source) {
    check<IoError>(first.size() >= kLengthBytes && file_bytes >= kLengthBytes,
                   "{}: {} bytes are too few for a safetensors file; the file is truncated", source, file_bytes);
    std::uint64_t length = 0;
    for (std::size_t i = 0; i < kLengthBytes; ++i)
        length |= std::uint64_t(static_cast<unsigned char>(first[i])) << (8 * i);
    check<IoError>(length <= kMaxHeaderBytes,
                   "{}: the header is {} bytes long, expected at most {}; not a safetensors file?", source, length,
                   kMaxHeaderBytes);
    check<IoError>(length <= file_bytes - kLengthBytes,
                   "{}: the header is {} bytes long, but only {} follow; the file is truncated", source, length,
                   file_bytes - kLengthBytes);
    return length;
}

SafetensorsHeader parse_header(std::string_view json, std::uint64_t data_bytes, std::string_view source) {
    RawHeader raw = parse_raw_header(json, source);
    SafetensorsHeader header;
    header.metadata = std::move(raw.metadata);
    header.entries.reserve(raw.entries.size());
    for (const RawEntry& entry : raw.entries) header.entries.push_back(parse_entry(entry, data_bytes, source));
    std::sort(header.entries.begin(), header.entries.end(), [](const TensorEntry& a, const TensorEntry& b) {
        return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
    });
    std::uint64_t filled = 0;
    for (const TensorEntry& entry : header.entries) {
        check<IoError>(entry.begin == filled, "{}: tensor {} begins at data byte {}, expected {}; tensors {}", source,
                       Quoted{entry.name}, entry.begin, filled, entry.begin < filled ? "overlap" : "leave a hole");
        filled = entry.end;
    }
    check<IoError>(filled == data_bytes,
                   "{}: the tensors end at data byte {}, but the file at {}; expected no other bytes", source, filled,
                   data_bytes);
    return header;
}

std::string format_header(const SafetensorsHeader& header) {
    using Json = nlohmann::ordered_json;
    std::string text = "{";
    const auto add = [&](std::string_view key, const Json& value) {
        if (text.size() > 1) text += ',';
        text += Json(key).dump() + ':' + value.dump();
    };
    try {
        if (!header.metadata.empty()) add("__metadata__", Json(header.metadata));
        for (const TensorEntry& entry : header.entries) {
            Json value;
            value["dtype"] = file_name_of(entry.dtype).name;
            value["shape"] = std::vector<std::int64_t>(entry.shape.begin(), entry.shape.end());
            value["data_offsets"] = {entry.begin, entry.end};
            add(entry.name, value);
        }
    } catch (const nlohmann::json::exception& error) {
        fail<UsageError>("safetensors: a tensor name or a metadata text is not UTF-8 ({})", error.what());
    }
    text += '}';
    text.resize((text.size() + 7) / 8 * 8, ' ');
    check<UsageError>(text.size() <= kMaxHeaderBytes,
                      "safetensors: the header would be {} bytes, expected at most {}; store "
                      "less metadata",
                      text.size(), kMaxHeaderBytes);
    std::string length;
    for (std::size_t i = 0; i < kLengthBytes; ++i) length += static_cast<char>(text.size() >> (8 * i));
    return length + text;
}

}  // namespace invar
