#include "invar/io/events.h"

#include <cmath>
#include <cstring>

#include "invar/io/file.h"
#include "scratch.h"

namespace invar {

namespace {

// An independent reader: bit-wise checksum, then just enough protobuf to read scalars.
std::uint32_t slow_crc(std::string_view bytes) {
    std::uint32_t crc = ~0u;
    for (const unsigned char byte : bytes) {
        crc ^= byte;
        for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? (crc >> 1) ^ 0x82F63B78u : crc >> 1;
    }
    return ~crc;
}

template <class T>
T take(std::string_view& bytes) {
    T value;
    EXPECT_GE(bytes.size(), sizeof value);
    std::memcpy(&value, bytes.data(), sizeof value);
    bytes.remove_prefix(sizeof value);
    return value;
}

std::uint32_t unmask(std::uint32_t masked) {
    const std::uint32_t rotated = masked - 0xA282EAD8u;
    return (rotated >> 17) | (rotated << 15);
}

std::uint64_t take_varint(std::string_view& bytes) {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        const auto byte = take<unsigned char>(bytes);
        value |= std::uint64_t(byte & 0x7f) << shift;
        if (byte < 0x80) return value;
    }
}

struct Event {
    double wall_time = 0;
    std::int64_t step = 0;
    std::string version, tag;
    float value = 0;
    bool session_start = false;
};

// Fills `event` from a message; `path` says which one: Event, Summary (5), Summary.Value (5, 1), SessionLog (7).
void read_message(std::string_view bytes, int path, Event& event) {
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

std::vector<Event> read_events(const std::filesystem::path& path) {
    const std::string content = read_file(path);
    std::string_view bytes = content;
    std::vector<Event> events;
    while (!bytes.empty()) {
        const std::string_view length_bytes = bytes.substr(0, 8);
        const auto length = take<std::uint64_t>(bytes);
        EXPECT_EQ(unmask(take<std::uint32_t>(bytes)), slow_crc(length_bytes));
        const std::string_view data = bytes.substr(0, length);
        bytes.remove_prefix(data.size());
        EXPECT_EQ(unmask(take<std::uint32_t>(bytes)), slow_crc(data));
        read_message(data, 0, events.emplace_back());
    }
    return events;
}

}  // namespace

TEST(EventFile, WritesRecordsThatAnIndependentReaderUnderstands) {
    ASSERT_EQ(slow_crc("123456789"), 0xE3069283u);
    const Scratch scratch;
    EventFile file(scratch / "tensorboard");
    EXPECT_TRUE(file.path().filename().string().starts_with("events.out.tfevents."));
    file.scalar("loss/train", 1, 0.1);
    file.scalar("scale", 300, 65536);
    file.scalar("grad_norm", std::int64_t(1) << 40, INFINITY);
    file.scalar(std::string(500, 'x'), -1, -0.0);
    file.flush();
    const std::vector<Event> events = read_events(file.path());
    ASSERT_EQ(events.size(), 5u);
    EXPECT_EQ(events[0].version, "brain.Event:2");
    EXPECT_GT(events[0].wall_time, 1.6e9);
    EXPECT_EQ(events[1].tag, "loss/train");
    EXPECT_EQ(events[1].step, 1);
    EXPECT_EQ(events[1].value, 0.1f);
    EXPECT_EQ(events[2].step, 300);
    EXPECT_EQ(events[2].value, 65536.f);
    EXPECT_EQ(events[3].step, std::int64_t(1) << 40);
    EXPECT_TRUE(std::isinf(events[3].value));
    EXPECT_EQ(events[4].step, -1);
    EXPECT_EQ(events[4].tag.size(), 500u);
    EXPECT_FALSE(events[1].session_start);
}

TEST(EventFile, HoldsOnlyWholeRecordsAtAnyFlush) {
    const Scratch scratch;
    EventFile file(scratch.path());
    for (int step = 0; step < 3000; ++step) {
        file.scalar("a", step, step);
        if (step % 500 == 0) (void)read_events(file.path());
    }
    file.flush();
    EXPECT_EQ(read_events(file.path()).size(), 3001u);
}

TEST(EventFile, OfAResumedRunTellsTensorBoardWhereItStarts) {
    const Scratch scratch;
    const EventFile file(scratch.path(), 42);
    const std::vector<Event> events = read_events(file.path());
    ASSERT_EQ(events.size(), 2u);
    EXPECT_TRUE(events[1].session_start);
    EXPECT_EQ(events[1].step, 42);
}

TEST(EventFile, TwoOfOneSecondDoNotShareAFile) {
    const Scratch scratch;
    const EventFile a(scratch.path()), b(scratch.path()), c(scratch.path());
    EXPECT_EQ(scratch.names().size(), 3u);
}

TEST(EventFile, WritesWhatIsPendingWhenItEnds) {
    const Scratch scratch;
    std::filesystem::path path;
    {
        EventFile file(scratch.path());
        path = file.path();
        file.scalar("a", 1, 2);
    }
    EXPECT_EQ(read_events(path).size(), 2u);
}

TEST(EventFile, RefusesAFolderItCannotMake) {
    const Scratch scratch;
    put(scratch / "file", "x");
    EXPECT_THROW(EventFile(scratch / "file"), IoError);
}

}  // namespace invar
