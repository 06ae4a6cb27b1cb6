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

const DtypeName& dtype_name_of(Dtype dtype) {
    return *std::find_if(std::begin(kDtypeNames), std::end(kDtypeNames), [&](auto& n) { return n.dtype == dtype; });
}

// The format's other dtypes. Elements of less than a byte are packed.
struct ForeignName {
    std::string_view name;
    unsigned bits;
    ForeignEntry::Kind kind;
};
constexpr auto kInteger = ForeignEntry::Kind::integer, kNotInteger = ForeignEntry::Kind::not_integer;
constexpr ForeignName kForeignNames[] = {
    {"I8", 8, kInteger},         {"I16", 16, kInteger},           {"U16", 16, kInteger},
    {"U32", 32, kInteger},       {"U64", 64, kInteger},           {"C64", 64, kNotInteger},
    {"F4", 4, kNotInteger},      {"F6_E2M3", 6, kNotInteger},     {"F6_E3M2", 6, kNotInteger},
    {"F8_E8M0", 8, kNotInteger}, {"F8_E4M3FNUZ", 8, kNotInteger}, {"F8_E5M2FNUZ", 8, kNotInteger}};

template <class Names>
auto find_name(const Names& names, std::string_view name) {
    const auto found = std::find_if(std::begin(names), std::end(names), [&](auto& n) { return n.name == name; });
    return found == std::end(names) ? nullptr : found;
}

std::uint64_t count_elements(const RawEntry& raw, std::string_view source) {
    // Zeros do not excuse the other sizes: strides are products of those.
    std::uint64_t product = 1;
    bool empty = false;
    for (const std::uint64_t size : raw.shape) {
        const bool fits = size == 0 || product <= std::uint64_t(kMostElements) / size;
        check<IoError>(fits, "{}: tensor {} has the shape [{}], expected fewer than 2^63 elements", source,
                       Quoted{raw.name}, fmt::join(raw.shape, ", "));
        product *= std::max<std::uint64_t>(size, 1);
        empty = empty || size == 0;
    }
    return empty ? 0 : product;
}

Shape parse_shape(const RawEntry& raw, std::string_view source) {
    const std::size_t rank = raw.shape.size();
    check<IoError>(rank <= std::size_t(kMaxRank),
                   "{}: tensor {} has {} dimensions, expected at most {}; reshape it first", source, Quoted{raw.name},
                   rank, kMaxRank);
    Shape shape;
    for (const std::uint64_t size : raw.shape) shape.push_back(static_cast<std::int64_t>(size));
    return shape;
}

// What every entry must have, whatever its dtype.
void check_entry(const RawEntry& raw, std::uint64_t data_bytes, std::string_view source) {
    const Quoted name{raw.name};
    check<IoError>(raw.has_dtype && raw.has_shape && raw.has_offsets,
                   "{}: tensor {} lacks one of dtype, shape and data_offsets", source, name);
    check<IoError>(raw.offsets.size() == 2, "{}: tensor {} has {} data_offsets, expected 2", source, name,
                   raw.offsets.size());
    const std::uint64_t begin = raw.offsets[0], end = raw.offsets[1];
    check<IoError>(begin <= end && end <= data_bytes,
                   "{}: tensor {} has the data_offsets [{}, {}], expected a range within the file's {} data bytes",
                   source, name, begin, end, data_bytes);
}

void check_size(const RawEntry& raw, std::uint64_t bits, std::uint64_t count, std::string_view source) {
    const std::uint64_t found = raw.offsets[1] - raw.offsets[0];
    // Divided, since the product of a hostile shape would overflow.
    const bool fits = found <= std::uint64_t(kMostElements) / 8 && found * 8 % bits == 0 && found * 8 / bits == count;
    check<IoError>(fits, "{}: tensor {} has {} bytes, expected {} elements of {} each", source, Quoted{raw.name}, found,
                   count, bits % 8 == 0 ? fmt::format("{}", bits / 8) : fmt::format("{} bits", bits));
}

// All data in order, each byte in exactly one tensor.
void check_places(std::vector<const RawEntry*> entries, std::uint64_t data_bytes, std::string_view source) {
    std::sort(entries.begin(), entries.end(),
              [](const RawEntry* a, const RawEntry* b) { return a->offsets < b->offsets; });
    std::uint64_t filled = 0;
    for (const RawEntry* entry : entries) {
        const std::uint64_t begin = entry->offsets[0];
        check<IoError>(begin == filled, "{}: tensor {} begins at data byte {}, expected {}; tensors {}", source,
                       Quoted{entry->name}, begin, filled, begin < filled ? "overlap" : "leave a hole");
        filled = entry->offsets[1];
    }
    check<IoError>(filled == data_bytes,
                   "{}: the tensors end at data byte {}, but the file at {}; expected no other bytes", source, filled,
                   data_bytes);
}

}  // namespace

std::string Quoted::str() const {
    constexpr std::size_t kLongest = 120;
    std::string shown(text.substr(0, kLongest));
    if (text.size() > kLongest) shown += "...";
    return nlohmann::json(shown).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

std::string_view file_name_of(Dtype dtype) {
    return dtype_name_of(dtype).name;
}

bool comes_before(const TensorEntry& a, const TensorEntry& b) {
    const auto *rank_a = &dtype_name_of(a.dtype), *rank_b = &dtype_name_of(b.dtype);
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

SafetensorsHeader parse_header(std::string_view json, std::uint64_t data_bytes, std::string_view source,
                               ForeignDtypes foreign) {
    RawHeader raw = parse_raw_header(json, source);
    SafetensorsHeader header;
    header.metadata = std::move(raw.metadata);
    header.entries.reserve(raw.entries.size());
    std::vector<const RawEntry*> all;
    all.reserve(raw.entries.size());
    for (const RawEntry& entry : raw.entries) {
        check_entry(entry, data_bytes, source);
        all.push_back(&entry);
        const std::uint64_t count = count_elements(entry, source);
        if (const DtypeName* own = find_name(kDtypeNames, entry.dtype)) {
            check_size(entry, 8 * size_of(own->dtype), count, source);
            header.entries.push_back(
                {entry.name, own->dtype, parse_shape(entry, source), entry.offsets[0], entry.offsets[1], {}});
            continue;
        }
        check<IoError>(foreign == ForeignDtypes::list,
                       "{}: tensor {} has the dtype {}, expected one of BOOL U8 F8_E5M2 F8_E4M3 F16 BF16 I32 F32 F64 "
                       "I64; convert it first",
                       source, Quoted{entry.name}, Quoted{entry.dtype});
        const ForeignName* other = find_name(kForeignNames, entry.dtype);
        if (other != nullptr) check_size(entry, other->bits, count, source);
        header.foreign.push_back({entry.name, entry.dtype, other != nullptr ? other->kind : ForeignEntry::Kind::unknown,
                                  entry.shape, entry.offsets[0], entry.offsets[1]});
    }
    check_places(std::move(all), data_bytes, source);
    std::sort(header.entries.begin(), header.entries.end(), [](const TensorEntry& a, const TensorEntry& b) {
        return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
    });
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
            value["dtype"] = file_name_of(entry.dtype);
            value["shape"] = std::vector<std::int64_t>(entry.shape.begin(), entry.shape.end());
            value["data_offsets"] = {entry.begin, entry.end};
            add(entry.name, value);
        }
    } catch (const nlohmann::json::exception&) {
        fail<UsageError>("safetensors: a tensor name or a metadata text is not UTF-8");
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
