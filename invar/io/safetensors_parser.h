// The grammar of a safetensors header: which keys and values may stand where, read without building a JSON tree,
// so that a hostile header costs no more memory than its own size.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace invar {

struct RawEntry {
    std::string name;
    std::string dtype;
    std::vector<std::uint64_t> shape;
    std::vector<std::uint64_t> offsets;
    bool has_dtype = false, has_shape = false, has_offsets = false;
};

struct RawHeader {
    std::vector<RawEntry> entries;
    std::map<std::string, std::string> metadata;
};

// Throws IoError on text that is not JSON, on any other structure, and on a key that appears twice.
RawHeader parse_raw_header(std::string_view json, std::string_view source);

}  // namespace invar
