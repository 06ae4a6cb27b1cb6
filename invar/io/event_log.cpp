#include "invar/io/event_log.h"

#include <bit>
#include <optional>

#include "invar/core/error.h"
#include "invar/core/formats.h"
#include "invar/io/checksum.h"
#include "invar/io/protobuf.h"

namespace invar {

namespace {

constexpr std::size_t kHeader = 12, kSum = 4;  // a record: its length and the sum of that; the event; its sum
constexpr std::uint64_t kSessionStart = 1;

// TensorFlow's numbers of the dtypes that a scalar may have.
enum TensorType { kFloat = 1, kDouble = 2, kInt32 = 3, kUint8 = 4, kInt16 = 5, kInt8 = 6, kInt64 = 9, kBool = 10 };
enum { kBfloat16 = 14, kHalf = 19 };

// One value of a tensor from its raw bytes.
std::optional<double> value_of(std::uint64_t type, std::string_view bytes) {
    const std::uint64_t bits = little_endian_number(bytes.substr(0, 8));
    const auto is = [&](std::uint64_t wanted, std::size_t width) { return type == wanted && bytes.size() == width; };
    if (is(kFloat, 4)) return std::bit_cast<float>(std::uint32_t(bits));
    if (is(kDouble, 8)) return std::bit_cast<double>(bits);
    if (is(kInt32, 4)) return std::int32_t(bits);
    if (is(kInt64, 8)) return double(std::int64_t(bits));
    if (is(kInt16, 2)) return std::int16_t(bits);
    if (is(kInt8, 1)) return std::int8_t(bits);
    if (is(kUint8, 1) || is(kBool, 1)) return double(bits);
    if (is(kBfloat16, 2)) return double(bf16::from_bits(std::uint16_t(bits)));
    if (is(kHalf, 2)) return double(f16::from_bits(std::uint16_t(bits)));
    return std::nullopt;
}

// A number that stands in a field of its own kind: alone, or packed.
std::optional<double> typed_value(std::uint64_t type, ProtobufReader& reader, const std::string& where) {
    std::uint64_t bits = reader.number();
    if (reader.is_bytes()) {
        if (reader.bytes().empty()) return std::nullopt;
        if (type == kFloat || type == kDouble) return value_of(type, reader.bytes());
        std::string number(1, '\x08');  // a field of them: the first must be the last
        number += reader.bytes();
        ProtobufReader only(number, where);
        if (!only.next() || !only.is_number() || only.next()) return std::nullopt;
        bits = only.number();
    } else if (reader.is_fixed32() || reader.is_fixed64()) {
        return reader.float_value();
    }
    if (type == kHalf || type == kBfloat16) {
        const char raw[] = {char(bits), char(bits >> 8)};
        return value_of(type, {raw, 2});
    }
    return double(std::int64_t(bits));
}

// The value of a tensor without dimensions; nothing where it is text, empty or larger.
std::optional<double> scalar_of(ProtobufReader tensor, const std::string& where) {
    std::uint64_t type = 0;
    std::optional<double> found;
    int values = 0;
    while (tensor.next()) {
        const int field = tensor.field();
        constexpr int kDim = 2;
        if (field == 1 && tensor.is_number()) type = tensor.number();
        if (field == 2 && tensor.is_bytes())
            for (ProtobufReader shape = tensor.message(); shape.next();)
                if (shape.field() == kDim) return std::nullopt;
        if (field == 4 && tensor.is_bytes() && !tensor.bytes().empty())
            found = value_of(type, tensor.bytes()), ++values;
        if ((field >= 5 && field <= 7) || field == 10 || field == 11 || field == 13)
            found = typed_value(type, tensor, where), ++values;
    }
    return values == 1 ? found : std::nullopt;
}

// The name of the plug-in that a summary is for; "" where it does not say.
std::string_view plugin_of(ProtobufReader metadata) {
    std::string_view name;
    while (metadata.next())
        if (metadata.field() == 1 && metadata.is_bytes())
            for (ProtobufReader plugin = metadata.message(); plugin.next();)
                if (plugin.field() == 1 && plugin.is_bytes()) name = plugin.bytes();
    return name;
}

}  // namespace

bool is_event_file(const std::filesystem::path& path) {
    return path.filename().string().find("tfevents") != std::string::npos;
}

void EventLog::add_value(std::string_view value, std::int64_t step, const std::string& where) {
    std::string tag;
    std::optional<double> number;
    for (ProtobufReader reader(value, where); reader.next();) {
        if (reader.field() == 1 && reader.is_bytes()) tag = reader.bytes();
        if (reader.field() == 2 && reader.is_fixed32()) number = reader.float_value();
        if (reader.field() == 8 && reader.is_bytes() && !number) number = scalar_of(reader.message(), where);
        if (reader.field() == 9 && reader.is_bytes())
            if (const std::string_view plugin = plugin_of(reader.message()); !plugin.empty() && plugin != "scalars")
                other_.insert(tag);
    }
    if (number && !tag.empty() && !other_.contains(tag)) scalars_[tag][step] = *number;
}

void EventLog::add_event(std::string_view event, const std::string& where) {
    std::int64_t step = 0;
    bool starts = false;
    for (ProtobufReader reader(event, where); reader.next();) {
        if (reader.field() == 2 && reader.is_number()) step = std::int64_t(reader.number());
        if (reader.field() == 7 && reader.is_bytes())
            for (ProtobufReader session = reader.message(); session.next();)
                starts = starts || (session.field() == 1 && session.is_number() && session.number() == kSessionStart);
    }
    if (starts)
        for (auto& [tag, points] : scalars_) points.erase(points.lower_bound(step), points.end());
    for (ProtobufReader reader(event, where); reader.next();)
        if (reader.field() == 5 && reader.is_bytes())
            for (ProtobufReader summary = reader.message(); summary.next();)
                if (summary.field() == 1 && summary.is_bytes()) add_value(summary.bytes(), step, where);
}

void EventLog::add(std::string_view file, const std::string& source) {
    for (std::size_t at = 0, number = 1; at < file.size(); ++number) {
        const std::string where = fmt::format("{}: record {}", source, number);
        const std::string_view header = file.substr(at, kHeader);
        const bool cut = header.size() < kHeader;
        check<IoError>(cut || masked_crc32c(header.substr(0, 8)) == little_endian_number(header.substr(8)),
                       "{}, at byte {}, has a length whose checksum is wrong; the file is damaged, or is no event file",
                       where, at);
        const std::uint64_t length = cut ? 0 : little_endian_number(header.substr(0, 8));
        const std::uint64_t rest = file.size() - at - header.size();
        if (cut || rest < kSum || length > rest - kSum) {
            note_ = fmt::format("{} ends in the middle of a record, which is left out", source);
            return;
        }
        const std::string_view event = file.substr(at + kHeader, static_cast<std::size_t>(length));
        at += kHeader + event.size();
        check<IoError>(masked_crc32c(event) == little_endian_number(file.substr(at, kSum)),
                       "{} has a wrong checksum; the file is damaged, use another copy of it", where);
        at += kSum;
        add_event(event, where);
    }
}

}  // namespace invar
