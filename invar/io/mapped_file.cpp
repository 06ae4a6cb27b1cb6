#include "invar/io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "invar/core/error.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

namespace invar {

namespace {

// The whole pages around a piece of the file.
std::pair<std::uint64_t, std::size_t> pages_around(std::uint64_t offset, std::size_t count, std::uint64_t size) {
    static const auto kPage = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    const std::uint64_t begin = offset / kPage * kPage, end = std::min(offset + count, size);
    return {begin, static_cast<std::size_t>(end - begin)};
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path)
    : path_(path), file_(Descriptor::open(path, O_RDONLY, "read")), size_(file_.size()) {
    if (size_ == 0) return;
    void* mapped = ::mmap(nullptr, static_cast<std::size_t>(size_), PROT_READ, MAP_SHARED, file_.get(), 0);
    if (mapped == MAP_FAILED) fail_with_errno("map", path_, errno);
    data_ = static_cast<char*>(mapped);
    (void)::madvise(data_, static_cast<std::size_t>(size_), MADV_SEQUENTIAL);
}

MappedFile::~MappedFile() {
    if (data_ != nullptr) ::munmap(data_, static_cast<std::size_t>(size_));
}

std::string_view MappedFile::bytes(std::uint64_t offset, std::size_t count) const {
    check<IoError>(offset <= size_ && count <= size_ - offset, "{}: has no bytes {} to {}", path_.string(), offset,
                   offset + count);
    if (count == 0) return {};
    const auto [begin, length] = pages_around(offset, count, size_);
    int failed;
    do failed = ::madvise(data_ + begin, length, MADV_POPULATE_READ);
    while (failed != 0 && (errno == EINTR || errno == EAGAIN));
    // Before Linux 5.14 there is no such call (EINVAL); pages then come in as they are touched.
    if (failed != 0 && (errno == EFAULT || errno == EHWPOISON || errno == ENOMEM))
        fail<IoError>("cannot read {}: it became shorter, or the disk failed, while it was being read; try again",
                      path_.string());
    return {data_ + offset, count};
}

void MappedFile::announce(std::uint64_t offset, std::size_t count) const {
    if (offset >= size_ || count == 0) return;
    const auto [begin, length] = pages_around(offset, count, size_);
    (void)::madvise(data_ + begin, length, MADV_WILLNEED);
}

}  // namespace invar
