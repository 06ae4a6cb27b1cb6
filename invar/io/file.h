// Files: whole reads, atomic replacement, line-wise logs, and a lock that keeps two runs out of one folder.
// Whatever goes wrong, a file that was there before is still there, byte for byte.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "invar/io/descriptor.h"

namespace invar {

// A file that holds more than `most` bytes is an error.
std::string read_file(const std::filesystem::path& path, std::uint64_t most = std::uint64_t(1) << 40);

// Writes a temporary beside `path`, syncs it, renames it over `path` and syncs the folder: readers see the old file or
// the new one, never a part. On failure the temporary is gone and the old file untouched.
void write_file_atomically(const std::filesystem::path& path, std::span<const std::string_view> pieces);
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

// Removes what killed processes left of write_file_atomically in this folder; leaves those still being written.
void sweep_temporaries(const std::filesystem::path& folder);

bool is_temporary(const std::filesystem::path& path);

// Made to last: their entries are synced, as are those of the files in a folder by sync_folder.
void make_folders(const std::filesystem::path& folder);
void sync_folder(const std::filesystem::path& folder);

// A log that only grows: every append is one write(2), and one that fails half-way is taken back. What cannot be
// written, as on a full disk, waits in memory for the next attempt, so that a log does not stop what it tells of. It
// does not wait for ever: sync() throws where there is still no room, and so does an append once too much is waiting.
class AppendFile {
  public:
    explicit AppendFile(std::filesystem::path path);
    // A new file; an existing one of that name is an error.
    static AppendFile create(std::filesystem::path path);

    void append(std::string_view bytes);
    void line(std::string_view text);  // adds the newline; the text must have none
    // Back to the first `bytes` bytes, as when a run resumes from a checkpoint that remembers its place in the log.
    void truncate(std::uint64_t bytes);
    void sync();
    // Why something is waiting; "" where nothing is.
    const std::string& problem() const { return problem_; }
    std::uint64_t size() const { return file_.size(); }
    const std::filesystem::path& path() const { return path_; }

  private:
    AppendFile(std::filesystem::path path, int flags);
    void write_waiting();
    std::filesystem::path path_;
    Descriptor file_;
    std::string waiting_, problem_;
};

// Held while a run writes into its folder. A second one is refused, also from another process; it ends with its holder,
// however that ends.
class FolderLock {
  public:
    static constexpr const char* kFile = ".lock";
    explicit FolderLock(const std::filesystem::path& folder);
    // Nothing where another one has it.
    static std::optional<FolderLock> try_lock(const std::filesystem::path& folder);

  private:
    explicit FolderLock(Descriptor file) : file_(std::move(file)) {}
    static Descriptor open_lock(const std::filesystem::path& folder);
    bool take(const std::filesystem::path& folder);
    Descriptor file_;
};

}  // namespace invar
