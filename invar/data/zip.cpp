#include "invar/data/zip.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "invar/core/error.h"
#include "invar/io/protobuf.h"  // little_endian_number
#include "invar/io/safetensors_header.h"

namespace invar {

namespace {

constexpr std::uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50;
constexpr std::uint32_t kEnd64 = 0x06064b50, kLocator64 = 0x07064b50;
constexpr std::size_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kEnd64Bytes = 56, kLocator64Bytes = 20;
constexpr std::size_t kMostComment = 65535;
constexpr std::uint64_t kMostDirectory = std::uint64_t(256) << 20;
constexpr std::uint32_t kInExtra = 0xffffffff;  // a number that stands in the extra field instead

// Parts of the archive, each checked to be there.
class Reader {
  public:
    Reader(const ReadAt& read, std::uint64_t bytes, const std::string& file)
        : read_(read), bytes_(bytes), file_(file) {}
    std::string part(std::uint64_t at, std::uint64_t size) const {
        check<IoError>(at <= bytes_ && size <= bytes_ - at,
                       "{}: its zip directory points beyond its end; fetch the file again", file_);
        std::string bytes(std::size_t(size), '\0');
        if (size > 0) read_(at, bytes.data(), bytes.size());
        return bytes;
    }
    std::uint64_t size() const { return bytes_; }
    const std::string& file() const { return file_; }

  private:
    const ReadAt& read_;
    std::uint64_t bytes_;
    const std::string& file_;
};

std::uint64_t number(std::string_view bytes, std::size_t at, std::size_t width) {
    return little_endian_number(bytes.substr(at, width));
}

struct Directory {
    std::uint64_t begin = 0, bytes = 0, count = 0;
};

// From the record that ends an archive, behind which only a comment may stand; larger numbers are in one before it.
Directory find_directory(const Reader& reader) {
    const std::string& file = reader.file();
    check<IoError>(reader.size() >= kEndBytes, "{}: {} bytes are too few for a zip archive", file, reader.size());
    const std::uint64_t tail = std::min<std::uint64_t>(reader.size(), kEndBytes + kMostComment);
    const std::string last = reader.part(reader.size() - tail, tail);
    std::optional<std::size_t> found;
    for (std::size_t at = last.size() - kEndBytes + 1; at-- > 0 && !found;)
        if (number(last, at, 4) == kEnd && at + kEndBytes + number(last, at + 20, 2) == last.size()) found = at;
    check<IoError>(found.has_value(), "{}: a zip archive without a directory; fetch the file again", file);
    const std::string_view end = std::string_view(last).substr(*found);
    Directory directory{number(end, 16, 4), number(end, 12, 4), number(end, 10, 2)};
    if (directory.count == 0xffff || directory.begin == kInExtra || directory.bytes == kInExtra) {
        const std::uint64_t at = reader.size() - tail + *found;
        check<IoError>(at >= kLocator64Bytes, "{}: its zip directory is damaged; fetch the file again", file);
        const std::string locator = reader.part(at - kLocator64Bytes, kLocator64Bytes);
        check<IoError>(number(locator, 0, 4) == kLocator64, "{}: its zip directory is damaged; fetch the file again",
                       file);
        const std::string large = reader.part(number(locator, 8, 8), kEnd64Bytes);
        check<IoError>(number(large, 0, 4) == kEnd64, "{}: its zip directory is damaged; fetch the file again", file);
        directory = {number(large, 48, 8), number(large, 40, 8), number(large, 32, 8)};
    }
    check<IoError>(directory.bytes <= kMostDirectory && directory.count <= directory.bytes / kCentralBytes,
                   "{}: its zip directory of {} files in {} bytes is damaged, or too large", file, directory.count,
                   directory.bytes);
    return directory;
}

// Numbers that did not fit their places, in the order in which they would have stood.
void read_extra(std::string_view extra, std::uint64_t* const (&numbers)[3], const std::string& file) {
    while (extra.size() >= 4) {
        const std::size_t size = std::size_t(number(extra, 2, 2));
        std::string_view data = extra.substr(4, size);
        if (number(extra, 0, 2) == 1)
            for (std::uint64_t* value : numbers) {
                if (*value != kInExtra) continue;
                check<IoError>(data.size() >= 8, "{}: its zip directory is damaged; fetch the file again", file);
                *value = number(data, 0, 8);
                data.remove_prefix(8);
            }
        extra.remove_prefix(std::min(extra.size(), 4 + size));
    }
}

void check_apart(const std::vector<std::pair<std::uint64_t, const ZipMember*>>& starts, const std::string& file) {
    for (std::size_t i = 1; i < starts.size(); ++i) {
        const ZipMember& before = *starts[i - 1].second;
        check<IoError>(starts[i].first >= before.begin + before.packed,
                       "{}: {} and {} in it overlap; the archive is damaged, or made to harm", file,
                       Quoted{before.name}, Quoted{starts[i].second->name});
    }
}

}  // namespace

bool is_zip(std::span<const std::uint8_t> bytes) {
    return bytes.size() >= 4 && bytes[0] == 'P' && bytes[1] == 'K' &&
           ((bytes[2] == 3 && bytes[3] == 4) || (bytes[2] == 5 && bytes[3] == 6));
}

std::vector<ZipMember> zip_members(const ReadAt& read, std::uint64_t archive_bytes, const std::string& file) {
    const Reader reader(read, archive_bytes, file);
    const Directory directory = find_directory(reader);
    const std::string all = reader.part(directory.begin, directory.bytes);
    std::vector<ZipMember> members;
    std::vector<std::pair<std::uint64_t, const ZipMember*>> starts;
    members.reserve(std::size_t(directory.count));
    for (std::string_view rest = all; members.size() < directory.count;) {
        check<IoError>(rest.size() >= kCentralBytes && number(rest, 0, 4) == kCentral,
                       "{}: its zip directory is damaged; fetch the file again", file);
        const std::uint64_t flags = number(rest, 8, 2), method = number(rest, 10, 2);
        const std::size_t name = number(rest, 28, 2), extra = number(rest, 30, 2), comment = number(rest, 32, 2);
        check<IoError>(name + extra + comment <= rest.size() - kCentralBytes,
                       "{}: its zip directory points beyond its end; fetch the file again", file);
        ZipMember member;
        member.name = rest.substr(kCentralBytes, name);
        member.crc = std::uint32_t(number(rest, 16, 4));
        member.packed = number(rest, 20, 4);
        member.size = number(rest, 24, 4);
        std::uint64_t local = number(rest, 42, 4);
        read_extra(rest.substr(kCentralBytes + name, extra), {&member.size, &member.packed, &local}, file);
        check<IoError>((flags & 1) == 0, "{}: {} in it is encrypted", file, Quoted{member.name});
        check<IoError>(method == 0 || method == 8, "{}: {} in it is packed by method {}; only deflate is known", file,
                       Quoted{member.name}, method);
        member.deflated = method == 8;
        const std::string header = reader.part(local, kLocalBytes);
        check<IoError>(number(header, 0, 4) == kLocal, "{}: {} in it is not where the directory says", file,
                       Quoted{member.name});
        member.begin = local + kLocalBytes + number(header, 26, 2) + number(header, 28, 2);
        check<IoError>(member.begin <= directory.begin && member.packed <= directory.begin - member.begin,
                       "{}: its zip directory points beyond its end; fetch the file again", file);
        check<IoError>(member.deflated || member.packed == member.size,
                       "{}: {} in it has {} bytes, and {} of them are there", file, Quoted{member.name}, member.size,
                       member.packed);
        members.push_back(std::move(member));
        starts.emplace_back(local, &members.back());
        rest.remove_prefix(kCentralBytes + name + extra + comment);
    }
    std::sort(starts.begin(), starts.end());
    check_apart(starts, file);
    return members;
}

struct ZipStream::Inflating {
    Inflating() { check(inflateInit2(&stream, -MAX_WBITS) == Z_OK, "zlib: out of memory"); }
    ~Inflating() { inflateEnd(&stream); }
    z_stream stream{};
    std::vector<char> packed = std::vector<char>(std::size_t(64) << 10);
    bool ended = false;
};

ZipStream::ZipStream(const ZipMember& member, const ReadAt& read, const std::string& file)
    : member_(member), read_(read), file_(file) {
    if (member.deflated) inflating_ = std::make_unique<Inflating>();
}

ZipStream::~ZipStream() = default;

void ZipStream::refill() {
    const auto count = std::size_t(std::min<std::uint64_t>(inflating_->packed.size(), member_.packed - taken_));
    if (count > 0) read_(member_.begin + taken_, inflating_->packed.data(), count);
    taken_ += count;
    inflating_->stream.next_in = reinterpret_cast<Bytef*>(inflating_->packed.data());
    inflating_->stream.avail_in = static_cast<uInt>(count);
}

std::size_t ZipStream::inflate(char* out, std::size_t most) {
    z_stream& stream = inflating_->stream;
    std::size_t made = 0;
    while (made < most && !inflating_->ended) {
        if (stream.avail_in == 0) refill();
        const std::size_t room = std::min<std::size_t>(most - made, std::size_t(1) << 30);
        stream.next_out = reinterpret_cast<Bytef*>(out + made);
        stream.avail_out = static_cast<uInt>(room);
        const int status = ::inflate(&stream, Z_NO_FLUSH);
        made += room - stream.avail_out;
        inflating_->ended = status == Z_STREAM_END;
        check<IoError>(status == Z_OK || status == Z_STREAM_END,
                       "{}: the packed data of {} in it are damaged ({}); fetch the file again", file_,
                       Quoted{member_.name}, stream.msg != nullptr ? stream.msg : "they end too early");
    }
    return made;
}

std::size_t ZipStream::read(char* out, std::size_t most) {
    const std::uint64_t left = member_.size - given_;
    auto count = std::size_t(std::min<std::uint64_t>(most, left));
    if (count == 0) return 0;
    if (inflating_)
        count = inflate(out, count);
    else
        read_(member_.begin + given_, out, count);
    given_ += count;
    crc_ = std::uint32_t(crc32_z(crc_, reinterpret_cast<const Bytef*>(out), count));
    char more = 0;
    const bool too_short = count == 0 && given_ < member_.size;
    const bool at_end = given_ == member_.size;
    const bool too_long = at_end && inflating_ && inflate(&more, 1) > 0;
    check<IoError>(!too_short && !too_long, "{}: {} in it does not have the {} bytes that its directory says", file_,
                   Quoted{member_.name}, member_.size);
    check<IoError>(!at_end || crc_ == member_.crc, "{}: {} in it is damaged (checksum); fetch the file again", file_,
                   Quoted{member_.name});
    return count;
}

std::vector<ZipEntry> zip_entries(std::span<const std::uint8_t> archive, const std::string& file) {
    const ReadAt read = [archive](std::uint64_t offset, char* out, std::size_t bytes) {
        std::memcpy(out, archive.data() + offset, bytes);
    };
    std::vector<ZipEntry> entries;
    for (ZipMember& member : zip_members(read, archive.size(), file))
        entries.push_back({std::move(member.name), member.deflated, member.crc, std::size_t(member.size),
                           archive.subspan(std::size_t(member.begin), std::size_t(member.packed))});
    return entries;
}

Bytes unzip(const ZipEntry& entry, const std::string& file, std::size_t limit) {
    limit = std::min(limit, kMaxDataBytes);
    Bytes bytes;
    if (entry.deflated) {
        // One byte more than there should be is enough to see that there is too much.
        bytes = inflate_bytes(entry.packed, file, std::min(limit, entry.size + 1));
    } else {
        const std::size_t size = std::min(limit, entry.packed.size());
        bytes.assign(entry.packed.begin(), entry.packed.begin() + std::ptrdiff_t(size));
    }
    if (limit <= entry.size) return bytes;
    check<IoError>(bytes.size() == entry.size, "{}: {} in it does not have the {} bytes that its directory says", file,
                   Quoted{entry.name}, entry.size);
    std::uint32_t crc = std::uint32_t(crc32_z(0, bytes.data(), bytes.size()));
    check<IoError>(crc == entry.crc, "{}: {} in it is damaged (checksum); fetch the file again", file,
                   Quoted{entry.name});
    return bytes;
}

}  // namespace invar
