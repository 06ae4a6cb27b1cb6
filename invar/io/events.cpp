#include "invar/io/events.h"

#include <unistd.h>

#include <bit>
#include <charconv>
#include <chrono>
#include <utility>

#include "invar/core/error.h"
#include "invar/io/checksum.h"

namespace invar {

namespace {

constexpr std::size_t kFlushBytes = std::size_t(64) << 10;

template <class T>
std::string little_endian(T value) {
    std::string bytes;
    for (std::size_t i = 0; i < sizeof value; ++i) bytes += static_cast<char>(value >> (8 * i));
    return bytes;
}

std::string varint(std::uint64_t value) {
    std::string bytes;
    for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
    return bytes + static_cast<char>(value);
}

// The fields of a protobuf message: a key (field number and wire type), then the value.
enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
std::string key(int field, WireType type) {
    return varint(std::uint64_t(field) << 3 | type);
}
std::string field(int number, std::int64_t value) {
    return key(number, kVarint) + varint(static_cast<std::uint64_t>(value));
}
std::string field(int number, double value) {
    return key(number, kFixed64) + little_endian(std::bit_cast<std::uint64_t>(value));
}
std::string field(int number, float value) {
    return key(number, kFixed32) + little_endian(std::bit_cast<std::uint32_t>(value));
}
std::string field(int number, std::string_view bytes) {
    return (key(number, kBytes) + varint(bytes.size())).append(bytes);
}

double wall_time() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string event(std::int64_t step, std::string_view rest) {
    return (field(1, wall_time()) + field(2, step)).append(rest);
}

std::string version() {
    return event(0, field(3, std::string_view("brain.Event:2")));
}

std::string masked_sum(std::string_view bytes) {
    return little_endian(masked_crc32c(bytes));
}

std::string record_of(std::string_view event) {
    const std::string length = little_endian(std::uint64_t(event.size()));
    return (length + masked_sum(length)).append(event).append(masked_sum(event));
}

constexpr std::string_view kPrefix = "events.out.tfevents.";
constexpr std::size_t kHeader = 12;  // the length, and its checksum

// How many bytes of the content are whole records. Damage is left for readers to complain of: only a last record that
// says to be longer than what is there, or has not even a length, is torn.
std::uint64_t whole_records(std::string_view content) {
    std::size_t whole = 0;
    while (content.size() - whole >= kHeader) {
        const std::string_view header = content.substr(whole, kHeader);
        std::uint64_t length = 0;
        for (std::size_t i = 8; i-- > 0;) length = length << 8 | static_cast<unsigned char>(header[i]);
        if (masked_sum(header.substr(0, 8)) != header.substr(8)) return content.size();
        const std::uint64_t rest = content.size() - whole - kHeader;
        if (rest < 4 || length > rest - 4) return whole;
        whole += kHeader + std::size_t(length) + 4;
    }
    return whole;
}

void drop_torn_ends(const std::filesystem::path& folder) {
    std::error_code error;
    for (std::filesystem::directory_iterator files(folder, error), end; !error && files != end;
         files.increment(error)) {
        std::error_code ignored;
        if (!files->path().filename().string().starts_with(kPrefix) || !files->is_regular_file(ignored)) continue;
        const std::string content = read_file(files->path());
        if (const std::uint64_t whole = whole_records(content); whole < content.size())
            AppendFile(files->path()).truncate(whole);
    }
}

// The latest second in the names that are there, where it lies ahead: a clock may have been set back meanwhile, and
// TensorBoard reads files in the order of their names.
std::int64_t second_for_name(const std::filesystem::path& folder) {
    auto second = std::max<std::int64_t>(0, static_cast<std::int64_t>(wall_time()));
    std::error_code error;
    for (std::filesystem::directory_iterator files(folder, error), end; !error && files != end;
         files.increment(error)) {
        const std::string name = files->path().filename().string();
        std::int64_t there = 0;
        if (name.starts_with(kPrefix) &&
            std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), there).ec == std::errc())
            second = std::max(second, there);
    }
    return second;
}

AppendFile create_in(const std::filesystem::path& folder) {
    char host[256] = {};
    if (::gethostname(host, sizeof host - 1) != 0 || host[0] == '\0') host[0] = '-';
    const std::string name = fmt::format("{}{}.{}", kPrefix, second_for_name(folder), host);
    make_folders(folder);
    // Two sessions begun in one second must not share a file.
    std::filesystem::path path = folder / name;
    for (int again = 1; std::filesystem::exists(path); ++again) path = folder / fmt::format("{}.{:03}", name, again);
    return AppendFile::create(path);
}

}  // namespace

EventFile::EventFile(const std::filesystem::path& folder, std::optional<std::int64_t> resumed_at)
    : file_(create_in(folder)) {
    constexpr std::int64_t kSessionStart = 1;
    if (resumed_at) drop_torn_ends(folder);
    record(version());
    // TensorBoard takes the first start of a session it sees for the run's own and purges nothing; at any later one it
    // drops the points of that step and after.
    record(event(resumed_at ? *resumed_at + 1 : 0, field(7, field(1, kSessionStart))));
    flush();
}

EventFile::~EventFile() {
    try {
        flush();
    } catch (const Error&) {
        // Whoever must know calls flush().
    }
}

void EventFile::scalar(std::string_view tag, std::int64_t step, double value) {
    const std::string summary_value = field(1, tag) + field(2, static_cast<float>(value));
    record(event(step, field(5, field(1, summary_value))));
    if (pending_.size() >= kFlushBytes) flush();
}

void EventFile::record(std::string_view event) {
    pending_ += record_of(event);
}

void EventFile::flush() {
    if (pending_.empty()) return;
    // Where somebody has cut the file in the middle of a record, no reader would find the next one.
    if (file_.is_cut()) {
        file_.drop_torn(whole_records(file_.content()));
        if (file_.size() == 0) pending_.insert(0, record_of(version()));
    }
    file_.append(std::exchange(pending_, {}));
}

void EventFile::sync() {
    flush();
    file_.sync();
}

}  // namespace invar
