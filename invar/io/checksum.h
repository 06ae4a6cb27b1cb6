// CRC-32C (Castagnoli): the checksum of safetensors and event files, by the CPU's own instruction where it has one.
// Chain pieces by passing the checksum so far: crc32c(b, crc32c(a)) == crc32c(ab).
#pragma once

#include <cstdint>
#include <string_view>

namespace invar {

std::uint32_t crc32c(std::string_view bytes, std::uint32_t so_far = 0);
// As the records of event files have it, rotated and shifted: a checksum of data that holds checksums is a weak one.
std::uint32_t masked_crc32c(std::string_view bytes);
// That of two pieces in a row from those of each, as when they were read at the same time.
std::uint32_t crc32c_combine(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes);

// That of a whole whose parts come in any order and from anywhere: of as many zeros, XOR what each part adds to it,
// with so many bytes behind the part.
std::uint32_t crc32c_of_zeros(std::uint64_t bytes);
std::uint32_t crc32c_added(std::string_view part, std::uint64_t bytes_behind);

// The same without the instruction, for CPUs that lack it and for tests that compare the two.
std::uint32_t crc32c_portable(std::string_view bytes, std::uint32_t so_far = 0);

}  // namespace invar
