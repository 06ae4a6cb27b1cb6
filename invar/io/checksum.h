// CRC-32C (Castagnoli): the checksum of safetensors and event files, by the CPU's own instruction where it has one.
// Chain pieces by passing the checksum so far: crc32c(b, crc32c(a)) == crc32c(ab).
#pragma once

#include <cstdint>
#include <string_view>

namespace invar {

std::uint32_t crc32c(std::string_view bytes, std::uint32_t so_far = 0);
// That of two pieces in a row from those of each, as when they were read at the same time.
std::uint32_t crc32c_combine(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes);

// The same without the instruction, for CPUs that lack it and for tests that compare the two.
std::uint32_t crc32c_portable(std::string_view bytes, std::uint32_t so_far = 0);

}  // namespace invar
