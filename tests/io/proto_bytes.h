// Protobuf messages and the records of event files, encoded by hand for tests of their readers.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "tests/io/event_reader.h"

namespace invar::proto {

inline std::string varint(std::uint64_t value) {
    std::string bytes;
    for (; value >= 0x80; value >>= 7) bytes += char(value | 0x80);
    return bytes + char(value);
}
inline std::string number(int field, std::uint64_t value) {
    return varint(std::uint64_t(field) << 3) + varint(value);
}
inline std::string bytes(int field, std::string_view value) {
    return (varint(std::uint64_t(field) << 3 | 2) + varint(value.size())).append(value);
}
template <class T>
std::string raw(T value) {
    return {reinterpret_cast<const char*>(&value), sizeof value};
}
inline std::string fixed(int field, float value) {
    return varint(std::uint64_t(field) << 3 | 5) + raw(value);
}
inline std::string fixed(int field, double value) {
    return varint(std::uint64_t(field) << 3 | 1) + raw(value);
}

// By the bit-wise checksum of the tests' own reader.
inline std::string masked(std::string_view data) {
    const std::uint32_t sum = slow_crc(data);
    return raw((sum >> 15 | sum << 17) + 0xA282EAD8u);
}
inline std::string record(std::string_view event) {
    const std::string length = raw(std::uint64_t(event.size()));
    return (length + masked(length)).append(event).append(masked(event));
}
// An event at a step that holds this Summary.Value.
inline std::string summary(std::uint64_t step, std::string_view value) {
    return record(fixed(1, 1.7e9) + number(2, step) + bytes(5, bytes(1, value)));
}
inline std::string simple(std::uint64_t step, std::string_view tag, float value) {
    return summary(step, bytes(1, tag) + fixed(2, value));
}
// As TensorFlow 2 writes a scalar: a tensor without dimensions, and the plug-in that shows it.
inline std::string tensor(std::uint64_t step, std::string_view tag, std::string_view tensor,
                          std::string_view plugin = "scalars") {
    return summary(step, bytes(1, tag) + bytes(8, tensor) + bytes(9, bytes(1, bytes(1, plugin))));
}

}  // namespace invar::proto
