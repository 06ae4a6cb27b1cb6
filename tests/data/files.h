// Small data files for the tests: IDX and CIFAR bytes, gzip of our own making, and a folder that goes away again.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "invar/core/error.h"
#include "invar/data/file_bytes.h"

namespace invar::testing {

class TempFolder {
  public:
    TempFolder() {
        static std::atomic<int> count = 0;
        path_ = std::filesystem::temp_directory_path() /
                fmt::format("invar-data-{}-{}", static_cast<long>(getpid()), count.fetch_add(1));
        std::filesystem::create_directories(path_);
    }
    ~TempFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TempFolder(const TempFolder&) = delete;
    TempFolder& operator=(const TempFolder&) = delete;

    std::string str() const { return path_.string(); }
    std::string write(const std::string& name, const Bytes& bytes) const {
        const std::filesystem::path path = path_ / name;
        std::filesystem::create_directories(path.parent_path());
        std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), long(bytes.size()));
        return path.string();
    }

  private:
    std::filesystem::path path_;
};

inline Bytes idx_bytes(const std::vector<std::uint32_t>& sizes, const Bytes& values) {
    Bytes bytes = {0, 0, 8, std::uint8_t(sizes.size())};
    for (const std::uint32_t size : sizes) {
        for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(std::uint8_t(size >> shift));
    }
    bytes.insert(bytes.end(), values.begin(), values.end());
    return bytes;
}

// 0, 1, 2, ... 255, 0, ...
inline Bytes counting(std::size_t count, std::uint8_t first = 0) {
    Bytes bytes(count);
    for (std::size_t i = 0; i < count; ++i) bytes[i] = std::uint8_t(first + i);
    return bytes;
}

// A gzip file of stored blocks (at most 65,535 bytes each), so that the tests need no compressor.
inline Bytes gzip_bytes(const Bytes& plain) {
    std::uint32_t crc = ~0u;
    for (const std::uint8_t byte : plain) {
        crc ^= byte;
        for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xEDB88320u : 0u);
    }
    const auto append = [](Bytes& to, std::uint32_t value, int count) {
        for (int i = 0; i < count; ++i) to.push_back(std::uint8_t(value >> (8 * i)));
    };
    Bytes packed = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3};
    std::size_t at = 0;
    do {
        const std::size_t count = std::min<std::size_t>(65535, plain.size() - at);
        packed.push_back(at + count == plain.size() ? 1 : 0);
        append(packed, std::uint32_t(count), 2);
        append(packed, ~std::uint32_t(count), 2);
        packed.insert(packed.end(), plain.begin() + long(at), plain.begin() + long(at + count));
        at += count;
    } while (at < plain.size());
    append(packed, ~crc, 4);
    append(packed, std::uint32_t(plain.size()), 4);
    return packed;
}

// Runs f, expects an E that is one line and holds all of `parts`.
template <class E, class F>
void expect_error(F&& f, const std::vector<std::string>& parts) {
    try {
        f();
    } catch (const E& error) {
        const std::string what = error.what();
        for (const std::string& part : parts) {
            EXPECT_NE(what.find(part), std::string::npos) << "\"" << part << "\" is not in: " << what;
        }
        EXPECT_EQ(what.find('\n'), std::string::npos) << what;
        return;
    } catch (const std::exception& error) {
        FAIL() << "another kind of error: " << error.what();
    }
    FAIL() << "no error; expected one with \"" << (parts.empty() ? "" : parts[0]) << "\"";
}

}  // namespace invar::testing
