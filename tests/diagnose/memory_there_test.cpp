// The memory of the machine within the limits of a control group, as processes see it whose group is made up here.
#include "invar/diagnose/memory_there.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <functional>
#include <optional>

#include "invar/data/synthetic.h"
#include "invar/diagnose/preflight_parts.h"
#include "invar/models/models.h"
#include "tests/io/scratch.h"

namespace invar {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
using Figures = std::array<std::int64_t, 2>;

bool say(const std::string& file, const std::string& text) {
    std::ofstream out(file);
    return bool(out << text << std::flush);
}

void limit_to(const std::string& most, const std::string& used) {
    say("/sys/fs/cgroup/memory.max", most + "\n");
    say("/sys/fs/cgroup/memory.current", used + "\n");
}

// Whether this process has a folder of control groups of its own from now on.
bool leave_groups() {
    const std::string user = std::to_string(::getuid()), group = std::to_string(::getgid());
    if (::unshare(CLONE_NEWNS) != 0) {
        if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
        say("/proc/self/setgroups", "deny");
        say("/proc/self/uid_map", "0 " + user + " 1");
        say("/proc/self/gid_map", "0 " + group + " 1");
    }
    return ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
           ::mount("none", "/sys/fs/cgroup", "tmpfs", 0, nullptr) == 0 && say("/sys/fs/cgroup/memory.max", "max\n");
}

// What is found in such a process; nothing where the system grants none.
std::optional<Figures> found_apart(const std::function<Figures()>& look) {
    int ends[2];
    if (::pipe(ends) != 0) return {};
    const pid_t child = ::fork();
    if (child == 0) {
        try {
            const Figures found = leave_groups() ? look() : Figures{-1, -1};
            if (::write(ends[1], &found, sizeof found) == sizeof found) ::_exit(0);
        } catch (...) {
        }
        ::_exit(1);  // never on to the other tests
    }
    ::close(ends[1]);
    Figures found{};
    const bool whole = ::read(ends[0], &found, sizeof found) == sizeof found;
    ::close(ends[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(whole && WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
    if (found[0] < 0) return {};
    return found;
}

Figures memory_of_host() {
    const MemoryThere there = memory_there({});
    return {there.total, there.free};
}

TEST(MemoryThere, IsThatOfTheMachineWhereTheControlGroupSetsNoLimit) {
    const auto found = found_apart([] {
        limit_to("max", "4096");
        return memory_of_host();
    });
    if (!found) GTEST_SKIP() << "no control group can be made up here";
    EXPECT_GT((*found)[0], 64 * kMiB);
    EXPECT_GT((*found)[1], 0);
    EXPECT_LE((*found)[1], (*found)[0]);
}

TEST(MemoryThere, IsWhatTheControlGroupLeaves) {
    const auto limited = [](std::int64_t most, std::int64_t used) {
        return found_apart([=] {
            limit_to(std::to_string(most), std::to_string(used));
            return memory_of_host();
        });
    };
    const auto found = limited(3 * kMiB, kMiB);
    if (!found) GTEST_SKIP() << "no control group can be made up here";
    EXPECT_EQ(*found, (Figures{3 * kMiB, 2 * kMiB}));
    EXPECT_EQ(*limited(3 * kMiB, 4 * kMiB), (Figures{3 * kMiB, 0})) << "a group may be over its limit for a while";
}

TEST(MemoryThere, IsWithinTheLimitsOfTheGroupAndThoseItIsIn) {
    const Scratch root;
    const auto write = [&](const std::string& file, const std::string& text) {
        std::filesystem::create_directories((root / file).parent_path());
        std::ofstream(root / file) << text << "\n";
    };
    write("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 900 kB");
    write("proc/self/cgroup", "0::/jobs/42");
    const auto found = [&] { return memory_there({}, root.path()); };
    EXPECT_EQ(found().total, 1000 * 1024);
    EXPECT_EQ(found().free, 900 * 1024);
    write("sys/fs/cgroup/jobs/42/memory.max", "600000"), write("sys/fs/cgroup/jobs/42/memory.current", "100000");
    EXPECT_EQ(found().total, 600000);
    EXPECT_EQ(found().free, 500000);
    write("sys/fs/cgroup/jobs/memory.max", "650000"), write("sys/fs/cgroup/jobs/memory.current", "450000");
    EXPECT_EQ(found().total, 600000);
    EXPECT_EQ(found().free, 200000) << "what other jobs of the group above have taken is gone";
    write("proc/self/cgroup", "7:memory:/a\n0::/b");
    write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "300000");
    write("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "1000");
    EXPECT_EQ(found().total, 300000) << "in the older hierarchies too";
    EXPECT_EQ(found().free, 299000);
}

TEST(Preflight, TakesMemoryThatIsJustEnough) {
    const auto marks = found_apart([] {
        Config config;
        config.trainer.device = "cpu";
        config.trainer.threads = 1;
        config.data.choose("synthetic",
                           SyntheticOptions{.size = 40, .height = 4, .width = 4, .channels = 1, .classes = 4});
        config.data.batch_size = 8;
        config.model.choose("mlp", MlpOptions{.hidden = {8}});
        config.output_dir = "/tmp";
        const std::unique_ptr<Communicator> alone = make_alone();
        limit_to("max", "0");
        const std::int64_t needed = look_around(config, 0, 1).facts.memory_needed;
        const auto mark_with = [&](std::int64_t there) {
            limit_to(std::to_string(there), "0");
            return std::int64_t(preflight(*alone, {config}).mark());
        };
        return Figures{mark_with(needed), mark_with(needed - 1)};
    });
    if (!marks) GTEST_SKIP() << "no control group can be made up here";
    EXPECT_EQ(Mark((*marks)[0]), Mark::pass);
    EXPECT_EQ(Mark((*marks)[1]), Mark::fail);
}

}  // namespace
}  // namespace invar
