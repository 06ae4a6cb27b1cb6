#include "invar/data/zip.h"

#include <zlib.h>

#include <algorithm>

#include "invar/core/error.h"
#include "invar/io/safetensors_header.h"

namespace invar {

namespace {

constexpr std::uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50;
constexpr std::size_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22;
constexpr std::size_t kMostComment = 65535;

// Little-endian numbers at places that are checked to be there.
class Reader {
  public:
    Reader(std::span<const std::uint8_t> bytes, const std::string& file) : bytes_(bytes), file_(file) {}
    std::span<const std::uint8_t> part(std::size_t at, std::size_t size) const {
        check<IoError>(at <= bytes_.size() && size <= bytes_.size() - at,
                       "{}: its zip directory points beyond its end; fetch the file again", file_);
        return bytes_.subspan(at, size);
    }
    std::uint32_t number(std::size_t at, int width) const {
        std::uint32_t value = 0;
        const auto digits = part(at, std::size_t(width));
        for (int i = width - 1; i >= 0; --i) value = value << 8 | digits[std::size_t(i)];
        return value;
    }

  private:
    std::span<const std::uint8_t> bytes_;
    const std::string& file_;
};

// Where the record that ends an archive begins; only a comment may stand behind it.
std::size_t find_end(const Reader& reader, std::size_t size, const std::string& file) {
    check<IoError>(size >= kEndBytes, "{}: {} bytes are too few for a zip archive", file, size);
    const std::size_t last = size - kEndBytes, first = last > kMostComment ? last - kMostComment : 0;
    for (std::size_t at = last + 1; at-- > first;)
        if (reader.number(at, 4) == kEnd && at + kEndBytes + reader.number(at + 20, 2) == size) return at;
    fail<IoError>("{}: a zip archive without a directory; fetch the file again", file);
}

}  // namespace

bool is_zip(std::span<const std::uint8_t> bytes) {
    return bytes.size() >= 4 && bytes[0] == 'P' && bytes[1] == 'K' &&
           ((bytes[2] == 3 && bytes[3] == 4) || (bytes[2] == 5 && bytes[3] == 6));
}

std::vector<ZipEntry> zip_entries(std::span<const std::uint8_t> archive, const std::string& file) {
    const Reader reader(archive, file);
    const std::size_t end = find_end(reader, archive.size(), file);
    const std::uint32_t count = reader.number(end + 10, 2);
    std::size_t at = reader.number(end + 16, 4);
    check<IoError>(count != 0xffff && at != 0xffffffff, "{}: a zip archive of more than 4 GiB; split it", file);
    std::vector<ZipEntry> entries;
    for (std::uint32_t i = 0; i < count; ++i) {
        check<IoError>(reader.number(at, 4) == kCentral, "{}: its zip directory is damaged; fetch the file again",
                       file);
        const std::uint32_t flags = reader.number(at + 8, 2), method = reader.number(at + 10, 2);
        const std::uint32_t packed = reader.number(at + 20, 4), size = reader.number(at + 24, 4);
        const std::uint32_t name = reader.number(at + 28, 2), extra = reader.number(at + 30, 2);
        const std::uint32_t comment = reader.number(at + 32, 2), local = reader.number(at + 42, 4);
        ZipEntry entry;
        const auto letters = reader.part(at + kCentralBytes, name);
        entry.name.assign(letters.begin(), letters.end());
        check<IoError>((flags & 1) == 0, "{}: {} in it is encrypted", file, Quoted{entry.name});
        check<IoError>(method == 0 || method == 8, "{}: {} in it is packed by method {}; only deflate is known", file,
                       Quoted{entry.name}, method);
        check<IoError>(packed != 0xffffffff && size != 0xffffffff && local != 0xffffffff,
                       "{}: {} in it has more than 4 GiB; split it", file, Quoted{entry.name});
        check<IoError>(reader.number(local, 4) == kLocal, "{}: {} in it is not where the directory says", file,
                       Quoted{entry.name});
        const std::size_t data =
            std::size_t(local) + kLocalBytes + reader.number(local + 26, 2) + reader.number(local + 28, 2);
        entry.deflated = method == 8;
        entry.crc = reader.number(at + 16, 4);
        entry.size = size;
        entry.packed = reader.part(data, packed);
        check<IoError>(entry.deflated || packed == size, "{}: {} in it has {} bytes, and {} of them are there", file,
                       Quoted{entry.name}, size, packed);
        entries.push_back(std::move(entry));
        at += kCentralBytes + name + extra + comment;
    }
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
