// What a process may take of a machine it shares.
#include "invar/kernels/threads.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cstdlib>

#include "invar/kernels/kernels.h"
#include "tests/io/scratch.h"

namespace invar {
namespace {

void write(const std::filesystem::path& path, const std::string& text) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
}

TEST(CpuQuota, IsTheSmallestOfTheGroupAndThoseItIsIn) {
    const Scratch root;
    write(root / "proc/self/cgroup", "0::/jobs/42\n");
    write(root / "sys/fs/cgroup/jobs/42/cpu.max", "400000 100000\n");
    EXPECT_EQ(cpu_quota(root.path()), 4.0);
    write(root / "sys/fs/cgroup/jobs/cpu.max", "150000 100000\n");
    EXPECT_EQ(cpu_quota(root.path()), 1.5);
}

TEST(CpuQuota, IsThatOfTheContainerWhereItSeesItselfAsTheRoot) {
    const Scratch root;
    write(root / "proc/self/cgroup", "0::/\n");
    write(root / "sys/fs/cgroup/cpu.max", "200000 100000\n");
    EXPECT_EQ(cpu_quota(root.path()), 2.0);
}

TEST(CpuQuota, IsReadFromTheOlderHierarchiesToo) {
    const Scratch root;
    write(root / "proc/self/cgroup", "5:memory:/a\n3:cpu,cpuacct:/a\n0::/a\n");
    write(root / "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "300000\n");
    write(root / "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
    EXPECT_EQ(cpu_quota(root.path()), 3.0);
}

TEST(CpuQuota, IsAbsentWhereNothingIsLimited) {
    const Scratch root;
    EXPECT_FALSE(cpu_quota(root.path()));
    write(root / "proc/self/cgroup", "nonsense\n3:cpu:/a\n0::/a\n");
    EXPECT_FALSE(cpu_quota(root.path()));
    write(root / "sys/fs/cgroup/a/cpu.max", "max 100000\n");
    write(root / "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "-1\n");
    write(root / "sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
    EXPECT_FALSE(cpu_quota(root.path()));
}

TEST(Threads, AreAsManyAsTheUserSaysElseNoMoreThanTheCoresOfThisProcess) {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "ThreadSanitizer's builds have one thread";
#endif
    const int before = threads();
    ::setenv("OMP_NUM_THREADS", "3", 1);
    set_threads(0);
    EXPECT_EQ(threads(), 3);
    ::unsetenv("OMP_NUM_THREADS");
    set_threads(0);
    EXPECT_GE(threads(), 1);
    EXPECT_LE(threads(), omp_get_num_procs());
    set_threads(5);
    EXPECT_EQ(threads(), 5);
    set_threads(before);
}

}  // namespace
}  // namespace invar
