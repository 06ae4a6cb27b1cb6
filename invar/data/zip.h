// The files of a zip archive that lies in memory, listed from its directory and unpacked one by one; each checked
// against its size and checksum.
#pragma once

#include "invar/data/file_bytes.h"

namespace invar {

struct ZipEntry {
    std::string name;
    bool deflated = false;                 // else stored as it is
    std::uint32_t crc = 0;                 // of the unpacked bytes
    std::size_t size = 0;                  // of them, as the directory says
    std::span<const std::uint8_t> packed;  // into the archive
};

bool is_zip(std::span<const std::uint8_t> bytes);
// Throws IoError for an archive that is damaged, encrypted, larger than 4 GiB, or packed in a way of later times.
std::vector<ZipEntry> zip_entries(std::span<const std::uint8_t> archive, const std::string& file);
// The first `limit` bytes, or all of them, checksum verified, where there are fewer.
Bytes unzip(const ZipEntry& entry, const std::string& file, std::size_t limit);

}  // namespace invar
