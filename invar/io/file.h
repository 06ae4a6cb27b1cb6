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

// The same for a file that is written bit by bit: nothing is seen of it before commit(), nor ever without.
class AtomicFile {
  public:
    explicit AtomicFile(std::filesystem::path path);
    ~AtomicFile();
    AtomicFile(const AtomicFile&) = delete;
    AtomicFile& operator=(const AtomicFile&) = delete;

    void write(std::string_view bytes) { file_.write_all(bytes); }
    // Over bytes that were written already.
    void write_at(std::uint64_t offset, std::string_view bytes) { file_.write_at(offset, bytes); }
    void commit();
    // The half-written one, for those who write it together.
    const Descriptor& file() const { return file_; }
    const std::filesystem::path& path() const { return path_; }

  private:
    Descriptor create() const;
    std::filesystem::path target_;
    std::filesystem::path
        path_;  // of the half-written one, which is locked while its writer lives: a sweep looks at that
    Descriptor file_;
    bool committed_ = false;
};

// Removes what killed processes left of such files in this folder; leaves those still being written.
void sweep_temporaries(const std::filesystem::path& folder);

bool is_temporary(const std::filesystem::path& path);
// The file that it is to become, which is what people know; any other path as it is.
std::filesystem::path without_temporary_name(const std::filesystem::path& path);

// `path` with the suffix behind it, and a number behind that where such a file exists already.
std::filesystem::path free_name(const std::filesystem::path& path, std::string_view suffix);

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
    // Whether somebody has cut off its end since the last write; and the half of a record that is left taken away too,
    // which counts as lost.
    bool is_cut() const { return size() < end_; }
    void drop_torn(std::uint64_t whole_bytes);
    void sync();
    // Why something is waiting; "" where nothing is.
    const std::string& problem() const { return problem_; }
    std::uint64_t size() const { return file_.size(); }
    const std::filesystem::path& path() const { return path_; }

    // What its name means in its folder, which may have been renamed since.
    NamedNow named_in(const Descriptor& folder) const;
    // Goes on in a new file of this name that holds all that was written, as when somebody has deleted the old one.
    void write_anew(const std::filesystem::path& path);
    std::string content() const;
    // How many bytes somebody has cut off its end since this was asked last.
    std::uint64_t take_lost();

  private:
    AppendFile(std::filesystem::path path, int flags);
    void write_waiting();
    void notice_loss();
    std::filesystem::path path_;
    Descriptor file_;
    std::string waiting_, problem_;
    std::uint64_t end_ = 0;  // where the last write of ours left it
    std::uint64_t lost_ = 0;
};

// Held while a run writes into its folder. A second one is refused, also from another process, and also where somebody
// has deleted the file .lock, since the folder itself is locked too; it ends with its holder, however that ends.
class FolderLock {
  public:
    static constexpr const char* kFile = ".lock";
    explicit FolderLock(const std::filesystem::path& folder);
    // Nothing where another one has it.
    static std::optional<FolderLock> try_lock(const std::filesystem::path& folder);

    // The folder itself, whatever it is called.
    const Descriptor& folder() const { return folder_; }
    // Whether the file had been deleted; it is there again then. Throws IoError where another run has come in
    // meanwhile, as it can on a disk that does not lock folders.
    bool renew(const std::filesystem::path& folder);

  private:
    struct Nobodys {};  // not locked yet
    FolderLock(Nobodys, const std::filesystem::path& folder);
    static Descriptor open_lock(const std::filesystem::path& folder);
    bool take(const std::filesystem::path& folder);
    [[noreturn]] void refuse(const std::filesystem::path& folder) const;
    Descriptor folder_, file_;
};

}  // namespace invar
