// A folder for files that nobody keeps, gone with everything in it at the end of a scope.
#pragma once

#include <filesystem>

namespace invar {

class TemporaryFolder {
  public:
    TemporaryFolder();  // throws IoError where the system's place for such folders (TMPDIR) cannot be written
    ~TemporaryFolder();
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    const std::filesystem::path& path() const { return path_; }
    // Every one that there is, for a process that is about to be ended by a signal: none can be made or left after it.
    static void remove_every() noexcept;

  private:
    std::filesystem::path path_;
};

}  // namespace invar
