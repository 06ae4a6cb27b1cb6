#include "invar/hub/new_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>

#include "invar/core/error.h"
#include "invar/core/printable.h"
#include "invar/io/file.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

constexpr const char* kMark = ".incomplete-";

Descriptor lock_folder(const fs::path& folder) {
    Descriptor opened = Descriptor::open(folder, O_RDONLY | O_DIRECTORY, "lock");
    (void)::flock(opened.get(), LOCK_EX | LOCK_NB);
    return opened;
}

bool is_abandoned(const fs::path& folder) {
    try {
        const Descriptor opened = Descriptor::open(folder, O_RDONLY | O_DIRECTORY, "lock");
        return ::flock(opened.get(), LOCK_EX | LOCK_NB) == 0;
    } catch (const IoError&) {
        return false;
    }
}

fs::path made_beside(const fs::path& place) {
    std::string name = place.string() + kMark + "XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) fail_with_errno("make", name, errno);
    const mode_t mask = ::umask(0);
    ::umask(mask);
    (void)::chmod(name.c_str(), 0777 & ~mask);  // as any other folder; mkdtemp's is for its maker alone
    return name;
}

}  // namespace

NewFolder::NewFolder(fs::path place, std::function<bool(const std::string&)> replaces)
    : place_(fs::absolute(place).lexically_normal()), replaces_(std::move(replaces)) {
    if (!place_.has_filename()) place_ = place_.parent_path();  // "folder/"
    check<UsageError>(place_.has_filename(), "{}: no folder can be put there", place.string());
    check_place();
    make_folders(place_.parent_path());
    sweep();
    path_ = made_beside(place_);
    held_ = lock_folder(path_);
}

NewFolder::~NewFolder() {
    std::error_code ignored;
    if (!committed_) fs::remove_all(path_, ignored);
}

void NewFolder::check_place() const {
    std::error_code error;
    const fs::file_status status = fs::symlink_status(place_, error);
    if (!fs::exists(status)) return;
    check<UsageError>(fs::is_directory(status), "{}: is there already, and is no folder", place_.string());
    for (const fs::directory_entry& entry : fs::directory_iterator(place_)) {
        const std::string name = entry.path().filename().string();
        check<UsageError>(bool(replaces_), "{}: is there already, and not empty; name another folder, or use --force",
                          place_.string());
        check<UsageError>(!entry.is_directory(error) && replaces_(name),
                          "{}: holds {}, which is no part of an exported model; name another folder", place_.string(),
                          printable(name));
    }
}

void NewFolder::sweep() const {
    const std::string start = place_.filename().string() + kMark;
    std::error_code error;
    for (fs::directory_iterator at(place_.parent_path(), error), end; !error && at != end; at.increment(error))
        if (at->path().filename().string().starts_with(start) && is_abandoned(at->path())) {
            std::error_code ignored;
            fs::remove_all(at->path(), ignored);
        }
}

void NewFolder::commit() {
    sync_folder(path_);
    check_place();  // nobody else has come meanwhile
    // In one step where the system can: the old one then lies beside, to be removed.
    const bool swapped = ::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, place_.c_str(), RENAME_EXCHANGE) == 0;
    if (!swapped) {
        std::error_code error;
        const fs::path aside = place_.string() + kMark + "old";
        const bool moved = fs::exists(place_) && ::rename(place_.c_str(), aside.c_str()) == 0;
        if (::rename(path_.c_str(), place_.c_str()) != 0) {
            const int why = errno;
            if (moved) fs::rename(aside, place_, error);
            fail_with_errno("put in place", place_, why);
        }
        path_ = moved ? aside : fs::path();
    }
    committed_ = true;
    sync_folder(place_.parent_path());
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
}

}  // namespace invar
