#include "invar/io/temporary_folder.h"

#include <fcntl.h>
#include <stdlib.h>

#include <cerrno>
#include <chrono>
#include <mutex>
#include <set>
#include <string>
#include <system_error>
#include <thread>

#include "invar/core/error.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

std::mutex mutex;
// Never destroyed: a signal may come while the process ends by itself.
std::set<fs::path>& folders() {
    static auto* const all = new std::set<fs::path>;
    return *all;
}

// What is written into a folder while it is removed keeps it: then once more.
void remove_while_written(const fs::path& folder) noexcept {
    std::error_code error;
    for (int again = 0; again < 100; ++again) {
        fs::remove_all(folder, error);
        if (!fs::exists(fs::symlink_status(folder, error))) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
    const char* const named = ::getenv("TMPDIR");
    const fs::path place = named != nullptr && *named != '\0' ? named : "/tmp";
    std::string name = (place / "invar_XXXXXX").string();
    const std::lock_guard lock(mutex);
    const bool made = ::mkdtemp(name.data()) != nullptr;
    check<IoError>(made, "cannot make a folder in {}: {}; TMPDIR can name another place for such files", place.string(),
                   std::generic_category().message(errno));
    path_ = name;
    folders().insert(path_);
}

TemporaryFolder::~TemporaryFolder() {
    const std::lock_guard lock(mutex);
    std::error_code ignored;
    fs::remove_all(path_, ignored);
    folders().erase(path_);
}

// Whoever writes into the folder goes on doing so meanwhile, and would make it anew: a file takes its place until all
// of it is gone. The lock is never given back, so that one whose writes now fail waits for the end instead of telling
// about it.
void TemporaryFolder::remove_every() noexcept {
    mutex.lock();
    std::error_code error;
    for (const fs::path& folder : folders()) {
        const fs::path aside = folder.string() + ".gone";
        int file = -1;
        for (int again = 0; again < 100 && file < 0; ++again) {
            fs::rename(folder, aside, error);
            file = ::open(folder.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
            remove_while_written(aside);
        }
        fs::remove_all(folder, error);
    }
}

}  // namespace invar
