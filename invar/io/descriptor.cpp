#include "invar/io/descriptor.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "invar/core/error.h"
#include "invar/io/file.h"
#include "invar/io/watch.h"

namespace invar {

namespace {

// Linux moves at most 2 GiB in one call.
constexpr std::size_t kMostPerCall = std::size_t(1) << 30;

const char* advice_for(int error) {
    switch (error) {
        case ENOSPC:
        case EDQUOT:
        case EFBIG:
            return "free space or choose another folder";
        case EACCES:
        case EPERM:
            return "change its permissions or choose another path";
        case EROFS:
            return "the disk is read-only; choose another folder";
        case EIO:
            return "the disk reports a fault; check it and choose another folder";
        case ENOENT:
        case ENOTDIR:
        case ELOOP:
            return "check the path";
        case ENXIO:
            return "that is a socket or a pipe; name an ordinary file";
        case EISDIR:
            return "that is a folder; name a file";
        case EMFILE:
        case ENFILE:
            return "too many files are open; raise `ulimit -n`";
        case ENAMETOOLONG:
            return "use a shorter path";
        default:
            return "check the path and the disk";
    }
}

const char* kind_of(mode_t mode) {
    return S_ISFIFO(mode)   ? "a pipe"
           : S_ISSOCK(mode) ? "a socket"
           : S_ISCHR(mode)  ? "a device"
           : S_ISBLK(mode)  ? "a disk"
                            : "something else";
}

// Whether it names a descriptor of this process and not a place on a disk.
bool names_descriptor(const std::string& path) {
    return path == "/dev/stdin" || path.starts_with("/dev/fd/") || path.starts_with("/proc/self/fd/");
}

const IoWatch::See*& watching() {
    thread_local const IoWatch::See* see = nullptr;
    return see;
}

}  // namespace

IoWatch::IoWatch(See see) : see_(std::move(see)), previous_(watching()) {
    watching() = &see_;
}
IoWatch::~IoWatch() {
    watching() = previous_;
}
IoWatch::See IoWatch::told() {
    return watching() != nullptr ? *watching() : See();
}
void IoWatch::tell(FileAct act, const std::filesystem::path& path) {
    if (const See* const see = watching(); see != nullptr) (*see)(act, path);
}

void fail_with_errno(std::string_view what, const std::filesystem::path& path, int error) {
    fail<IoError>("cannot {} {}: {}; {}", what, without_temporary_name(path).string(),
                  std::generic_category().message(error), advice_for(error));
}

NamedNow named_in(const Descriptor& folder, const std::filesystem::path& name, const Descriptor& file) {
    struct stat ours {
    }, there{};
    if (::fstat(file.get(), &ours) != 0) fail_with_errno("look at", name, errno);
    if (::fstatat(folder.get(), name.c_str(), &there, 0) != 0) {
        if (errno != ENOENT) fail_with_errno("look at", name, errno);
        return NamedNow::nothing;
    }
    const bool same = ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
    return same ? NamedNow::this_file : NamedNow::another_file;
}

Descriptor Descriptor::open(const std::filesystem::path& path, int flags, std::string_view what) {
    return open(path, flags, what, false);
}

Descriptor Descriptor::open_stream(const std::filesystem::path& path) {
    return open(path, O_RDONLY, "read", names_descriptor(path.string()));
}

Descriptor Descriptor::open(const std::filesystem::path& path, int flags, std::string_view what, bool pipes) {
    int fd;
    do fd = ::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) fail_with_errno(what, path, errno);
    Descriptor file(fd, path);
    struct stat status {};
    if (::fstat(fd, &status) != 0) fail_with_errno("look at", path, errno);
    if (S_ISDIR(status.st_mode) && (flags & O_DIRECTORY) == 0) fail_with_errno(what, path, EISDIR);
    if (pipes && S_ISFIFO(status.st_mode)) {
        (void)::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);  // whoever writes into it may take his time
        return file;
    }
    check<IoError>(S_ISREG(status.st_mode) || S_ISDIR(status.st_mode), "cannot {} {}: it is {}; name an ordinary file",
                   what, path.string(), kind_of(status.st_mode));
    return file;
}

Descriptor::Descriptor(Descriptor&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(path_, other.path_);
    return *this;
}

Descriptor::~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
}

std::uint64_t Descriptor::size() const {
    struct stat status {};
    if (::fstat(fd_, &status) != 0) fail_with_errno("look at", path_, errno);
    return static_cast<std::uint64_t>(status.st_size);
}

void Descriptor::read_at(std::uint64_t offset, char* out, std::size_t bytes) const {
    while (bytes > 0) {
        const ssize_t got = ::pread(fd_, out, std::min(bytes, kMostPerCall), static_cast<off_t>(offset));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) fail_with_errno("read", path_, errno);
        check<IoError>(got > 0, "cannot read {}: it ends at byte {}, {} bytes early; the file is truncated",
                       path_.string(), offset, bytes);
        out += got;
        offset += static_cast<std::uint64_t>(got);
        bytes -= static_cast<std::size_t>(got);
    }
}

void Descriptor::announce(std::uint64_t offset, std::size_t bytes) const {
    (void)::posix_fadvise(fd_, static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_WILLNEED);
}

void Descriptor::write_all(std::string_view bytes) const {
    IoWatch::tell(FileAct::write, path_);
    while (!bytes.empty()) {
        const ssize_t put = ::write(fd_, bytes.data(), std::min(bytes.size(), kMostPerCall));
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) fail_with_errno("write", path_, errno);
        bytes.remove_prefix(static_cast<std::size_t>(put));
    }
}

void Descriptor::write_at(std::uint64_t offset, std::string_view bytes) const {
    IoWatch::tell(FileAct::write, path_);
    while (!bytes.empty()) {
        const ssize_t put =
            ::pwrite(fd_, bytes.data(), std::min(bytes.size(), kMostPerCall), static_cast<off_t>(offset));
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) fail_with_errno("write", path_, errno);
        offset += static_cast<std::uint64_t>(put);
        bytes.remove_prefix(static_cast<std::size_t>(put));
    }
}

void Descriptor::sync() const {
    int failed;
    do failed = ::fsync(fd_);
    while (failed != 0 && errno == EINTR);
    // Pipes, terminals and some network folders cannot be synchronised; there is nothing to lose on them.
    if (failed != 0 && errno != EINVAL && errno != ENOTSUP) fail_with_errno("write", path_, errno);
    IoWatch::tell(FileAct::sync, path_);
}

}  // namespace invar
