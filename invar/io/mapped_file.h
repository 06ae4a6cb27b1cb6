// A file mapped into memory for reading once, from front to back. Each piece is brought in before it is touched, so
// that a disk that fails or a file that shrinks is an error and not a signal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string_view>

#include "invar/io/descriptor.h"

namespace invar {

class MappedFile {
  public:
    explicit MappedFile(const std::filesystem::path& path);
    ~MappedFile();
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;

    std::uint64_t size() const { return size_; }
    // The bytes from `offset` on, in memory when this returns. Safe from several threads.
    std::string_view bytes(std::uint64_t offset, std::size_t count) const;
    // That they will be asked for soon.
    void announce(std::uint64_t offset, std::size_t count) const;
    // All of it, whether in memory or not.
    std::string_view all() const { return {data_, static_cast<std::size_t>(size_)}; }

  private:
    std::filesystem::path path_;
    Descriptor file_;
    std::uint64_t size_ = 0;
    char* data_ = nullptr;
};

}  // namespace invar
