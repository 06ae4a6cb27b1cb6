#include "invar/io/temporary_folder.h"

#include <stdlib.h>

#include <cerrno>
#include <mutex>
#include <set>
#include <string>
#include <system_error>

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
    std::error_code ignored;
    fs::remove_all(path_, ignored);
    const std::lock_guard lock(mutex);
    folders().erase(path_);
}

// Whoever writes into them goes on doing so meanwhile.
void TemporaryFolder::remove_every() noexcept {
    const std::lock_guard lock(mutex);
    std::error_code error;
    for (const fs::path& folder : folders())
        for (int again = 0; again < 100 && fs::exists(folder, error); ++again) fs::remove_all(folder, error);
}

}  // namespace invar
