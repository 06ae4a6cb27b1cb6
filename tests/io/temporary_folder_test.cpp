// Folders for files that nobody keeps, of a process that a signal ends.
#include "invar/io/temporary_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "tests/io/scratch.h"

namespace invar {
namespace {

namespace fs = std::filesystem;

// Folders with files in them, into the folder itself, whatever its name is by then.
void write_for(std::chrono::milliseconds time, const fs::path& path, int who) {
    const int folder = ::open(path.c_str(), O_DIRECTORY | O_RDONLY);
    const auto until = std::chrono::steady_clock::now() + time;
    for (int i = 0; std::chrono::steady_clock::now() < until; ++i) {
        const std::string name = fmt::format("{}.{}", who, i);
        ::mkdirat(folder, name.c_str(), 0700);
        for (int file = 0; file < 50; ++file) {
            const int written = ::openat(folder, fmt::format("{}/{}", name, file).c_str(), O_CREAT | O_WRONLY, 0600);
            if (written >= 0) ::close(written);
        }
    }
    ::close(folder);
}

TEST(TemporaryFolder, IsGoneAtTheEndOfItsScope) {
    fs::path path;
    {
        const TemporaryFolder folder;
        path = folder.path();
        EXPECT_TRUE(fs::is_directory(path));
        fs::create_directories(path / "deep" / "deeper");
    }
    EXPECT_FALSE(fs::exists(path));
}

TEST(TemporaryFolder, IsRemovedWhileSomebodyWritesIntoIt) {
    const Scratch place;
    ::setenv("TMPDIR", place.path().c_str(), 1);
    const pid_t child = ::fork();
    if (child == 0) {
        const TemporaryFolder folder;
        for (int i = 0; i < 3; ++i)
            std::thread([&, i] { write_for(std::chrono::milliseconds(60), folder.path(), i); }).detach();
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        TemporaryFolder::remove_every();
        ::_exit(0);
    }
    ::unsetenv("TMPDIR");
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    EXPECT_EQ(place.names(), std::vector<std::string>());
}

}  // namespace
}  // namespace invar
