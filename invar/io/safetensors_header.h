// The JSON header of a safetensors file: parsed strictly and checked against the file before any of it is believed.
// Laying one out gives the bytes that the reference implementation writes.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "invar/core/dtype.h"
#include "invar/core/shape.h"

namespace invar {

using Metadata = std::map<std::string, std::string>;

struct TensorEntry {
    std::string name;
    Dtype dtype = Dtype::f32;
    Shape shape;
    std::uint64_t begin = 0;  // bytes into the data, which follow the header
    std::uint64_t end = 0;
    std::optional<std::uint32_t> crc32c;  // of its bytes, where the file says it
};

// A tensor of a dtype that Invar has no tensors of. Its place in the file is checked as any other's.
struct ForeignEntry {
    enum class Kind { integer, not_integer, unknown };  // unknown: a name that the format does not have, of any size
    std::string name;
    std::string dtype;  // as the file spells it
    Kind kind = Kind::unknown;
    std::vector<std::uint64_t> shape;
    std::uint64_t begin = 0, end = 0;  // as in TensorEntry
};
enum class ForeignDtypes { refuse, list };

struct SafetensorsHeader {
    std::vector<TensorEntry> entries;   // in the order of their data
    std::vector<ForeignEntry> foreign;  // in the order of the header; only where asked for
    Metadata metadata;
};

inline constexpr std::uint64_t kLengthBytes = 8;
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

// The length of the JSON, from the first 8 bytes of a file of `file_bytes` bytes. `source` names the file in errors.
std::uint64_t parse_header_length(std::string_view first, std::uint64_t file_bytes, std::string_view source);

// Throws IoError unless the entries fill exactly `data_bytes` bytes, each as large as its shape and dtype say.
SafetensorsHeader parse_header(std::string_view json, std::uint64_t data_bytes, std::string_view source,
                               ForeignDtypes foreign = ForeignDtypes::refuse);

// What the format calls a dtype: F32, BOOL.
std::string_view file_name_of(Dtype dtype);

// Length and padded JSON. The entries must be in the order of their data.
std::string format_header(const SafetensorsHeader& header);

// Whether the data of `a` comes before that of `b`: wider types first, then by name, as the format's own library does.
bool comes_before(const TensorEntry& a, const TensorEntry& b);

// A name as it stands in a one-line message: in quotes, control characters escaped, not longer than a line. Worked out
// only when the message is.
struct Quoted {
    std::string_view text;
    std::string str() const;
};

}  // namespace invar

template <>
struct fmt::formatter<invar::Quoted> : fmt::formatter<std::string_view> {
    template <class Context>
    auto format(const invar::Quoted& quoted, Context& context) const {
        return fmt::formatter<std::string_view>::format(quoted.str(), context);
    }
};
