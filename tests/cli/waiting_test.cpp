// How the program's threads wait for each other. The OpenMP runtime says on standard error what it was told.
#include <omp.h>

#include "tests/cli/program.h"

namespace invar::cli {
namespace {

class WaitingTest : public CliTest {
  protected:
    WaitingTest() {
        ::unsetenv("OMP_WAIT_POLICY");
        ::unsetenv("GOMP_SPINCOUNT");
        ::unsetenv("OMP_NUM_THREADS");
        ::setenv("OMP_DISPLAY_ENV", "verbose", 1);
    }
    ~WaitingTest() override {
        for (const char* name : {"OMP_DISPLAY_ENV", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS"})
            ::unsetenv(name);
    }
    // How often the runtime was loaded.
    static int starts(const Result& result) {
        int count = 0;
        for (std::size_t at = 0; (at = result.err.find("OPENMP DISPLAY ENVIRONMENT BEGIN", at)) != std::string::npos;
             ++at)
            ++count;
        return count;
    }
};

TEST_F(WaitingTest, ThreadsSpinBrieflySoThatABusyNeighbourCostsItsShareAndNoMore) {
    if (omp_get_num_procs() == 1) GTEST_SKIP() << "one core: no thread waits for another";
    const Result result = invar({"ops"});
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(starts(result), 2);
    EXPECT_TRUE(has(result.err.substr(result.err.rfind("BEGIN")), "GOMP_SPINCOUNT = '1000'")) << result.err;
    EXPECT_TRUE(has(result.out, "conv2d"));
}

TEST_F(WaitingTest, WhatTheUserChoseStands) {
    ::setenv("OMP_WAIT_POLICY", "active", 1);
    const Result active = invar({"ops"});
    EXPECT_EQ(starts(active), 1);
    EXPECT_TRUE(has(active.err, "OMP_WAIT_POLICY = 'ACTIVE'")) << active.err;
    ::unsetenv("OMP_WAIT_POLICY");
    ::setenv("GOMP_SPINCOUNT", "77", 1);
    EXPECT_EQ(starts(invar({"ops"})), 1);
    ::unsetenv("GOMP_SPINCOUNT");
    ::setenv("OMP_NUM_THREADS", "1", 1);
    EXPECT_EQ(starts(invar({"ops"})), 1);
}

TEST_F(WaitingTest, ArgumentsAndExitCodesComeThrough) {
    const Result result = invar({"train", "no such key=b c"});
    EXPECT_EQ(result.code, 2);
    EXPECT_TRUE(has(result.err, "unknown key 'no such key'")) << result.err;
}

}  // namespace
}  // namespace invar::cli
