// IoWatch: what is done to files, in order, told to whoever asks on this thread: a test of what a power loss leaves,
// which only the order tells, or a command that is to stop between two writes.
#pragma once

#include <filesystem>
#include <functional>

namespace invar {

enum class FileAct { write, sync, rename, make_folder };

class IoWatch {
  public:
    // `path`: the file or folder; of a rename its new name.
    using See = std::function<void(FileAct act, const std::filesystem::path& path)>;
    explicit IoWatch(See see);
    ~IoWatch();
    IoWatch(const IoWatch&) = delete;
    IoWatch& operator=(const IoWatch&) = delete;

    static void tell(FileAct act, const std::filesystem::path& path);
    // Who is told on this thread, for another that works for it; empty: nobody.
    static See told();

  private:
    See see_;
    const See* previous_;
};

}  // namespace invar
