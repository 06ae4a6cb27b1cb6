// An independent reader of event files for tests: bit-wise checksums, then just enough protobuf to read scalars; and
// what TensorBoard makes of the files of a folder.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "invar/io/file.h"

namespace invar {

inline std::uint32_t slow_crc(std::string_view bytes) {
    std::uint32_t crc = ~0u;
    for (const unsigned char byte : bytes) {
        crc ^= byte;
        for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? (crc >> 1) ^ 0x82F63B78u : crc >> 1;
    }
    return ~crc;
}

template <class T>
T take(std::string_view& bytes) {
    T value{};
    EXPECT_GE(bytes.size(), sizeof value);
    std::memcpy(&value, bytes.data(), std::min(sizeof value, bytes.size()));
    bytes.remove_prefix(std::min(sizeof value, bytes.size()));
    return value;
}

inline std::uint32_t unmask(std::uint32_t masked) {
    const std::uint32_t rotated = masked - 0xA282EAD8u;
    return (rotated >> 17) | (rotated << 15);
}

inline std::uint64_t take_varint(std::string_view& bytes) {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        const auto byte = take<unsigned char>(bytes);
        value |= std::uint64_t(byte & 0x7f) << shift;
        if (byte < 0x80) break;
    }
    return value;
}

struct Event {
    double wall_time = 0;
    std::int64_t step = 0;
    std::string version, tag;
    float value = 0;
    bool session_start = false;
};

// Fills `event` from a message; `path` says which one: Event, Summary (5), Summary.Value (5, 1), SessionLog (7).
inline void read_message(std::string_view bytes, int path, Event& event) {
    while (!bytes.empty()) {
        const std::uint64_t key = take_varint(bytes);
        const int field = path * 10 + int(key >> 3);
        if ((key & 7) == 0) {
            const std::uint64_t value = take_varint(bytes);
            if (field == 2) event.step = std::int64_t(value);
            if (field == 71) event.session_start = value == 1;
        } else if ((key & 7) == 1) {
            EXPECT_EQ(field, 1);
            event.wall_time = take<double>(bytes);
        } else if ((key & 7) == 5) {
            EXPECT_EQ(field, 512);
            event.value = take<float>(bytes);
        } else {
            ASSERT_EQ(key & 7, 2u);
            const std::size_t size = take_varint(bytes);
            ASSERT_LE(size, bytes.size());
            const std::string_view inner = bytes.substr(0, size);
            bytes.remove_prefix(size);
            if (field == 3)
                event.version = inner;
            else if (field == 511)
                event.tag = inner;
            else
                read_message(inner, field, event);
        }
    }
}

// A record that a kill has torn may end the file where `may_be_torn`; every other one must be right.
inline std::vector<Event> read_events(const std::filesystem::path& path, bool may_be_torn = false) {
    const std::string content = read_file(path);
    std::string_view bytes = content;
    std::vector<Event> events;
    while (!bytes.empty()) {
        const std::string_view length_bytes = bytes.substr(0, 8);
        if (may_be_torn && bytes.size() < 12) break;
        const auto length = take<std::uint64_t>(bytes);
        EXPECT_EQ(unmask(take<std::uint32_t>(bytes)), slow_crc(length_bytes));
        if (may_be_torn && bytes.size() < length + 4) break;
        const std::string_view data = bytes.substr(0, length);
        bytes.remove_prefix(data.size());
        EXPECT_EQ(unmask(take<std::uint32_t>(bytes)), slow_crc(data));
        read_message(data, 0, events.emplace_back());
    }
    return events;
}

// The points of each tag that TensorBoard shows: files in the order of their names, and at every start of a session but
// the first what was logged at its step and after is dropped.
using Points = std::vector<std::pair<std::int64_t, float>>;
inline std::map<std::string, Points> shown_by_tensorboard(const std::filesystem::path& folder) {
    std::set<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
        if (entry.path().filename().string().starts_with("events.out.tfevents.")) files.insert(entry.path());
    std::map<std::string, Points> points;
    bool seen_start = false;
    for (const std::filesystem::path& file : files)
        for (const Event& event : read_events(file, true)) {
            if (event.session_start && std::exchange(seen_start, true))
                for (auto& [tag, all] : points)
                    std::erase_if(all, [&](const auto& point) { return point.first >= event.step; });
            if (!event.tag.empty()) points[event.tag].emplace_back(event.step, event.value);
        }
    return points;
}

}  // namespace invar
