#include "invar/io/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#include "invar/core/error.h"
#include "invar/io/watch.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kTemporarySuffix = ".invar-tmp";
constexpr std::size_t kMostWaiting = std::size_t(16) << 20;  // bytes of a log; some ten thousand lines

fs::path folder_of(const fs::path& path) {
    return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

fs::path temporary_name(const fs::path& target) {
    static std::atomic<unsigned> count{0};
    const std::string name =
        fmt::format(".{}.{}-{}{}", target.filename().string(), ::getpid(), count++, kTemporarySuffix);
    return folder_of(target) / name;
}

// Where an ordinary file may be put.
fs::path writable_target(fs::path path) {
    check<UsageError>(path.has_filename(), "cannot write '{}': the path names no file", path.string());
    std::error_code ignored;
    const fs::file_status there = fs::status(path, ignored);
    // A rename would put an ordinary file in the place of /dev/null.
    check<IoError>(!fs::exists(there) || fs::is_regular_file(there),
                   "cannot write {}: it exists and is not an ordinary file; choose another path", path.string());
    return path;
}

}  // namespace

std::string read_file(const fs::path& path, std::uint64_t most) {
    const Descriptor file = Descriptor::open_stream(path);
    const auto check_size = [&](std::uint64_t bytes) {
        check<IoError>(bytes <= most, "cannot read {}: it holds more than the {} bytes that such a file may have",
                       path.string(), most);
    };
    check_size(file.size());
    std::string content;
    // Files under /proc and pipes have no size to trust, hence reading to the end.
    content.reserve(file.size() + 1);
    std::string buffer(1 << 16, '\0');  // not on the stack, which `ulimit -s` may have made smaller than that
    for (;;) {
        const ssize_t got = ::read(file.get(), buffer.data(), buffer.size());
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) fail_with_errno("read", path, errno);
        if (got == 0) return content;
        content.append(buffer, 0, static_cast<std::size_t>(got));
        check_size(content.size());
    }
}

fs::path free_name(const fs::path& path, std::string_view suffix) {
    const std::string wanted = path.string().append(suffix);
    std::error_code ignored;
    fs::path name = wanted;
    for (int again = 2; fs::exists(fs::symlink_status(name, ignored)); ++again)
        name = fmt::format("{}_{}", wanted, again);
    return name;
}

AtomicFile::AtomicFile(fs::path path)
    : target_(writable_target(std::move(path))), path_(temporary_name(target_)), file_(create()) {}

AtomicFile::~AtomicFile() {
    if (!committed_) ::unlink(path_.c_str());
}

Descriptor AtomicFile::create() const {
    for (;;) {
        Descriptor file = Descriptor::open(path_, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, "write");
        (void)::flock(file.get(), LOCK_EX);  // on a disk without locks, nothing will sweep it either
        struct stat status {};
        // A sweep may have taken it between its making and its locking; then it has no name any more.
        if (::fstat(file.get(), &status) != 0 || status.st_nlink > 0) return file;
    }
}

void AtomicFile::commit() {
    file_.sync();
    if (::rename(path_.c_str(), target_.c_str()) != 0) fail_with_errno("write", target_, errno);
    committed_ = true;
    IoWatch::tell(FileAct::rename, target_);
    sync_folder(folder_of(target_));
}

void write_file_atomically(const fs::path& path, std::span<const std::string_view> pieces) {
    AtomicFile file(path);
    for (const std::string_view piece : pieces) file.write(piece);
    file.commit();
}

void write_file_atomically(const fs::path& path, std::string_view content) {
    write_file_atomically(path, std::span(&content, 1));
}

bool is_temporary(const fs::path& path) {
    const std::string name = path.filename().string();
    return name.starts_with('.') && name.ends_with(kTemporarySuffix);
}

// ".NAME.PROCESS-NUMBER.invar-tmp"
fs::path without_temporary_name(const fs::path& path) {
    if (!is_temporary(path)) return path;
    const std::string name = path.filename().string();
    const std::size_t dot = name.rfind('.', name.size() - kTemporarySuffix.size() - 1);
    return dot == 0 || dot == name.npos ? path : path.parent_path() / name.substr(1, dot - 1);
}

void sweep_temporaries(const fs::path& folder) {
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
        if (!is_temporary(entry->path())) continue;
        const int fd = ::open(entry->path().c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
        if (fd < 0) continue;
        const bool abandoned = ::flock(fd, LOCK_EX | LOCK_NB) == 0;
        if (abandoned) ::unlink(entry->path().c_str());
        ::close(fd);
    }
}

void sync_folder(const fs::path& folder) {
    Descriptor::open(folder, O_RDONLY | O_DIRECTORY, "write").sync();
}

void make_folders(const fs::path& folder) {
    std::error_code error;
    std::vector<fs::path> made;
    for (fs::path at = folder; !at.empty() && !fs::exists(at, error); at = at.parent_path()) made.push_back(at);
    fs::create_directories(folder, error);
    if (error) fail_with_errno("make the folder", folder, error.value());
    check<IoError>(fs::is_directory(folder, error), "cannot make the folder {}: a file of that name is in the way",
                   folder.string());
    for (auto at = made.rbegin(); at != made.rend(); ++at) {
        IoWatch::tell(FileAct::make_folder, *at);
        // A folder that may be written but not read cannot be synced; what is made in it is as safe as it can be.
        if (::access(folder_of(*at).c_str(), R_OK) == 0) sync_folder(folder_of(*at));
    }
}

AppendFile::AppendFile(fs::path path, int flags)
    : path_(std::move(path)),
      file_(Descriptor::open(path_, O_RDWR | O_APPEND | O_CREAT | flags, "write")),
      end_(file_.size()) {}

AppendFile::AppendFile(fs::path path) : AppendFile(std::move(path), 0) {}

AppendFile AppendFile::create(fs::path path) {
    return AppendFile(std::move(path), O_EXCL);
}

void AppendFile::append(std::string_view bytes) {
    waiting_.append(bytes);
    try {
        write_waiting();
    } catch (const IoError&) {
        if (waiting_.size() > kMostWaiting) throw;
    }
}

void AppendFile::write_waiting() {
    notice_loss();
    const std::uint64_t before = size();
    try {
        file_.write_all(waiting_);
    } catch (const IoError& error) {
        (void)!::ftruncate(file_.get(), static_cast<off_t>(before));  // what did go in is a torn line
        problem_ = error.what();
        throw;
    }
    waiting_.clear();
    problem_.clear();
    end_ = size();
}

void AppendFile::notice_loss() {
    const std::uint64_t now = size();
    if (now < end_) lost_ += end_ - now;
    end_ = now;
}

std::uint64_t AppendFile::take_lost() {
    notice_loss();
    return std::exchange(lost_, 0);
}

void AppendFile::sync() {
    if (!waiting_.empty()) write_waiting();
    file_.sync();
}

NamedNow AppendFile::named_in(const Descriptor& folder) const {
    return invar::named_in(folder, path_.filename(), file_);
}

void AppendFile::write_anew(const fs::path& path) {
    write_file_atomically(path, content());
    file_ = Descriptor::open(path, O_RDWR | O_APPEND, "write");
    path_ = path;
    end_ = size();
}

std::string AppendFile::content() const {
    std::string bytes(size(), '\0');
    file_.read_at(0, bytes.data(), bytes.size());
    return bytes;
}

void AppendFile::line(std::string_view text) {
    check<UsageError>(text.find('\n') == text.npos, "a line of {} must not hold a newline", path_.string());
    std::string whole;
    whole.reserve(text.size() + 1);
    whole.append(text).push_back('\n');
    // Where somebody has cut the file in the middle of a line, the half that is left would spoil this one.
    char last = '\n';
    if (const std::uint64_t now = size(); now > 0) file_.read_at(now - 1, &last, 1);
    if (last != '\n') drop_torn(content().rfind('\n') + 1);  // npos + 1 is 0
    append(whole);
}

void AppendFile::drop_torn(std::uint64_t whole_bytes) {
    notice_loss();
    lost_ += end_ - whole_bytes;
    const std::string waiting = std::exchange(waiting_, {});
    truncate(whole_bytes);
    waiting_ = waiting;
}

void AppendFile::truncate(std::uint64_t bytes) {
    check<IoError>(bytes <= size(), "cannot go back to byte {} of {}: it has only {}; the file was cut or replaced",
                   bytes, path_.string(), size());
    waiting_.clear();
    problem_.clear();
    int failed;
    do failed = ::ftruncate(file_.get(), static_cast<off_t>(bytes));
    while (failed != 0 && errno == EINTR);
    if (failed != 0) fail_with_errno("write", path_, errno);
    end_ = bytes;
}

FolderLock::FolderLock(const fs::path& folder) : FolderLock(Nobodys{}, folder) {
    if (!take(folder)) refuse(folder);
}

std::optional<FolderLock> FolderLock::try_lock(const fs::path& folder) {
    FolderLock lock(Nobodys{}, folder);
    return lock.take(folder) ? std::optional(std::move(lock)) : std::nullopt;
}

FolderLock::FolderLock(Nobodys, const fs::path& folder)
    : folder_(Descriptor::open(folder, O_RDONLY | O_DIRECTORY, "lock")), file_(open_lock(folder)) {}

Descriptor FolderLock::open_lock(const fs::path& folder) {
    return Descriptor::open(folder / kFile, O_RDWR | O_CREAT | O_NOFOLLOW, "lock");
}

bool FolderLock::renew(const fs::path& folder) {
    if (named_in(folder_, kFile, file_) == NamedNow::this_file) return false;
    file_ = open_lock(folder);
    if (!take(folder)) refuse(folder);
    return true;
}

void FolderLock::refuse(const fs::path& folder) const {
    char holder[32] = {};
    const ssize_t got = ::pread(file_.get(), holder, sizeof holder - 1, 0);
    fail<IoError>("another run (process {}) is writing into {}; wait for it or choose another output_dir=",
                  got > 0 ? std::string_view(holder, static_cast<std::size_t>(got)) : "unknown", folder.string());
}

bool FolderLock::take(const fs::path& folder) {
    const auto lock = [](const Descriptor& what) {
        int failed;
        do failed = ::flock(what.get(), LOCK_EX | LOCK_NB);
        while (failed != 0 && errno == EINTR);
        return failed != 0 ? errno : 0;
    };
    // Not every disk locks folders; then the file alone has to do.
    if (lock(folder_) == EWOULDBLOCK) return false;
    for (int attempt = 1;; ++attempt) {
        const int error = lock(file_);
        if (error == EWOULDBLOCK) return false;
        // A folder on a disk without locks is used unlocked rather than not at all.
        if (error != 0 && error != ENOLCK && error != ENOTSUP && error != ENOSYS)
            fail_with_errno("lock", folder, error);
        if (attempt == 10 || named_in(folder_, kFile, file_) == NamedNow::this_file) break;
        file_ = open_lock(folder);  // somebody deleted it between its opening and its locking
    }
    const std::string process = std::to_string(::getpid());
    (void)!::ftruncate(file_.get(), 0);
    (void)!::pwrite(file_.get(), process.data(), process.size(), 0);
    return true;
}

}  // namespace invar
