// Bytes of data files, plain or gzip, read so that no header or compressed stream can make us allocate more than
// the file really holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace invar {

using Bytes = std::vector<std::uint8_t>;

// No data file, packed or unpacked, may be larger.
inline constexpr std::size_t kMaxDataBytes = std::size_t(2) << 30;

std::string read_data_file(const std::filesystem::path& path);
inline std::span<const std::uint8_t> bytes_of(const std::string& content) {
    return {reinterpret_cast<const std::uint8_t*>(content.data()), content.size()};
}

bool is_gzip(std::span<const std::uint8_t> bytes);
// The first `limit` bytes of the unpacked data, or all of it, checksum verified, where it is shorter than that.
Bytes gunzip(std::span<const std::uint8_t> packed, const std::string& file, std::size_t limit);
// The same of a bare deflate stream, as zip archives hold them, without a checksum of its own.
Bytes inflate_bytes(std::span<const std::uint8_t> packed, const std::string& file, std::size_t limit);

// The first of `folders` that holds every one of `files`, where each may also be there with ".gz" at its end: their
// full paths, in order.
std::optional<std::vector<std::filesystem::path>> find_files(const std::vector<std::filesystem::path>& folders,
                                                             const std::vector<std::string>& files);

}  // namespace invar
