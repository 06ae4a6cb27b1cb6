// The files of a zip archive, listed from its directory; each is read from front to back, or unpacked whole where the
// archive lies in memory, and checked against its size and checksum.
#pragma once

#include <functional>
#include <memory>

#include "invar/data/file_bytes.h"

namespace invar {

// What an archive is read from: exactly so many bytes from an offset, which are there.
using ReadAt = std::function<void(std::uint64_t offset, char* out, std::size_t bytes)>;

struct ZipMember {
    std::string name;
    bool deflated = false;     // else stored as it is
    std::uint32_t crc = 0;     // of the unpacked bytes
    std::uint64_t size = 0;    // of them, as the directory says
    std::uint64_t begin = 0;   // of the packed bytes in the archive
    std::uint64_t packed = 0;  // how many there are
};

bool is_zip(std::span<const std::uint8_t> bytes);
// Throws IoError for an archive that is damaged, encrypted, packed in a way of later times, or whose files overlap, as
// those of an archive that unpacks to far more than it holds.
std::vector<ZipMember> zip_members(const ReadAt& read, std::uint64_t archive_bytes, const std::string& file);

// A member from front to back, in memory that does not grow with it.
class ZipStream {
  public:
    // The member and what it is read from must outlive this; `file` names the archive in errors.
    ZipStream(const ZipMember& member, const ReadAt& read, const std::string& file);
    ~ZipStream();
    // As many bytes as are asked for, or those that are left. Throws IoError where what came in the end is not what the
    // directory says.
    std::size_t read(char* out, std::size_t most);

  private:
    struct Inflating;
    void refill();
    std::size_t inflate(char* out, std::size_t most);
    const ZipMember& member_;
    const ReadAt& read_;
    const std::string& file_;
    std::unique_ptr<Inflating> inflating_;
    std::uint64_t taken_ = 0, given_ = 0;  // packed bytes so far, and unpacked ones
    std::uint32_t crc_ = 0;
};

// A member of an archive that lies in memory.
struct ZipEntry {
    std::string name;
    bool deflated = false;
    std::uint32_t crc = 0;
    std::size_t size = 0;
    std::span<const std::uint8_t> packed;  // into the archive
};
std::vector<ZipEntry> zip_entries(std::span<const std::uint8_t> archive, const std::string& file);
// The first `limit` bytes, or all of them, checksum verified, where there are fewer.
Bytes unzip(const ZipEntry& entry, const std::string& file, std::size_t limit);

}  // namespace invar
