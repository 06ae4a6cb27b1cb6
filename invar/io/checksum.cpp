#include "invar/io/checksum.h"

#include <array>
#include <bit>
#include <cstring>

#include "invar/core/cpu_features.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace invar {

namespace {

// A checksum is a polynomial over the bits, its highest power in the lowest bit; x to the power 0 is the highest bit.
constexpr std::uint32_t kPolynomial = 0x82F63B78u, kOne = 0x80000000u, kX = kOne >> 1;

using Table = std::array<std::array<std::uint32_t, 256>, 8>;

// kTable[k][b]: what byte b contributes when k more bytes follow it, so that eight bytes go in at once.
constexpr Table make_table() {
    Table table{};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        std::uint32_t value = byte;
        for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ (value & 1 ? kPolynomial : 0u);
        table[0][byte] = value;
    }
    for (std::size_t k = 1; k < 8; ++k)
        for (std::size_t byte = 0; byte < 256; ++byte)
            table[k][byte] = (table[k - 1][byte] >> 8) ^ table[0][table[k - 1][byte] & 0xff];
    return table;
}

constexpr Table kTable = make_table();

std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
    std::uint32_t product = 0;
    for (std::uint32_t bit = kOne; bit != 0; bit >>= 1) {
        if (a & bit) product ^= b;
        b = (b >> 1) ^ (b & 1 ? kPolynomial : 0u);  // times x
    }
    return product;
}

std::uint64_t load_word(const char* data) {
    std::uint64_t word;
    std::memcpy(&word, data, sizeof word);
    return word;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t crc32c_sse42(std::string_view bytes, std::uint32_t so_far) {
    std::uint64_t crc = ~so_far;
    while (bytes.size() >= 8) {
        crc = _mm_crc32_u64(crc, load_word(bytes.data()));
        bytes.remove_prefix(8);
    }
    auto narrow = static_cast<std::uint32_t>(crc);
    for (const char byte : bytes) narrow = _mm_crc32_u8(narrow, static_cast<unsigned char>(byte));
    return ~narrow;
}
#endif

}  // namespace

std::uint32_t crc32c_portable(std::string_view bytes, std::uint32_t so_far) {
    std::uint32_t crc = ~so_far;
    while (bytes.size() >= 8) {
        const std::uint64_t word = load_word(bytes.data()) ^ crc;
        crc = 0;
        for (std::size_t k = 0; k < 8; ++k) crc ^= kTable[7 - k][(word >> (8 * k)) & 0xff];
        bytes.remove_prefix(8);
    }
    for (const char byte : bytes) crc = (crc >> 8) ^ kTable[0][(crc ^ static_cast<unsigned char>(byte)) & 0xff];
    return ~crc;
}

std::uint32_t crc32c_combine(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes) {
    // The first is moved up by as many bits as follow it.
    std::uint32_t shift = kOne, power = kX;
    for (int i = 0; i < 3; ++i) power = multiply(power, power);  // of a byte
    for (; second_bytes != 0; second_bytes >>= 1, power = multiply(power, power))
        if (second_bytes & 1) shift = multiply(shift, power);
    return multiply(shift, first) ^ second;
}

std::uint32_t crc32c_of_zeros(std::uint64_t bytes) {
    return crc32c_combine(~0u, ~0u, bytes);
}

std::uint32_t crc32c_added(std::string_view part, std::uint64_t bytes_behind) {
    return crc32c_combine(crc32c(part) ^ crc32c_of_zeros(part.size()), 0, bytes_behind);
}

std::uint32_t crc32c(std::string_view bytes, std::uint32_t so_far) {
#if defined(__x86_64__)
    if (cpu_features().sse42) return crc32c_sse42(bytes, so_far);
#endif
    return crc32c_portable(bytes, so_far);
}

std::uint32_t masked_crc32c(std::string_view bytes) {
    return std::rotr(crc32c(bytes), 15) + 0xA282EAD8u;
}

}  // namespace invar
