// Descriptor: an open file that closes itself, and the retry loops that read(2) and write(2) need.
// Every failure is an IoError in one line: what was attempted, which file, the system's reason, what to do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string_view>

namespace invar {

class Descriptor {
  public:
    // An ordinary file, or a folder where the flags ask for one. All else (a pipe, a socket, a device) is refused at
    // once, where opening or reading it might wait for ever. `what` is the verb of the message.
    static Descriptor open(const std::filesystem::path& path, int flags, std::string_view what);
    // The same to read from front to back: also a pipe that this process was handed, /dev/stdin or the /dev/fd/63 of a
    // shell's <(...), which has somebody at its other end.
    static Descriptor open_stream(const std::filesystem::path& path);
    Descriptor(Descriptor&& other) noexcept;
    Descriptor& operator=(Descriptor&& other) noexcept;
    ~Descriptor();

    int get() const { return fd_; }
    std::uint64_t size() const;
    // Exactly `bytes` bytes from `offset`; a file that ends earlier is an error.
    void read_at(std::uint64_t offset, char* out, std::size_t bytes) const;
    // That these bytes will be asked for soon; the system may read them meanwhile.
    void announce(std::uint64_t offset, std::size_t bytes) const;
    void write_all(std::string_view bytes) const;
    void write_at(std::uint64_t offset, std::string_view bytes) const;
    void sync() const;

  private:
    Descriptor(int fd, std::filesystem::path path) : fd_(fd), path_(std::move(path)) {}
    static Descriptor open(const std::filesystem::path& path, int flags, std::string_view what, bool pipes);
    int fd_ = -1;
    std::filesystem::path path_;
};

// What a name in an opened folder means, whatever that folder is called by now: the opened file, nothing, or another
// file.
enum class NamedNow { this_file, nothing, another_file };
NamedNow named_in(const Descriptor& folder, const std::filesystem::path& name, const Descriptor& file);

// "cannot WHAT PATH: REASON; ADVICE"
[[noreturn]] void fail_with_errno(std::string_view what, const std::filesystem::path& path, int error);

}  // namespace invar
