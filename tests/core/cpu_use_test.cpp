#include "invar/core/cpu_use.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

namespace invar {
namespace {

TEST(CpuUse, TellsTheShareOfTimeThatWasSpentWaiting) {
    EXPECT_DOUBLE_EQ((CpuUse{3.0, 1.0, 5.0}).waited_share(), 0.25);
    EXPECT_DOUBLE_EQ((CpuUse{3.0, 0.0, 5.0}).waited_share(), 0.0) << "others have processors of their own";
    EXPECT_DOUBLE_EQ((CpuUse{3.0, 1.0, 0.0}).waited_share(), 0.0) << "its threads waited for each other";
    EXPECT_TRUE(std::isnan(CpuUse{}.waited_share())) << "nothing is known";
    const CpuUse later{5.0, 2.0, 1.0}, earlier{4.0, 3.0, 0.5};
    EXPECT_DOUBLE_EQ((later - earlier).ran, 1.0);
    EXPECT_DOUBLE_EQ((later - earlier).waited, 0.0) << "a thread that ended took its share with it";
}

TEST(CpuUse, GrowsWithWork) {
    if (!std::filesystem::exists("/proc/self/schedstat")) GTEST_SKIP() << "this system does not tell";
    const CpuUse before = cpu_use();
    volatile double sum = 0.0;
    while ((cpu_use() - before).ran < 0.01)
        for (int i = 0; i < 100'000; ++i) sum = sum + double(i);
    EXPECT_GT((cpu_use() - before).ran, 0.0);
    EXPECT_LT((cpu_use() - before).waited_share(), 1.0);
}

}  // namespace
}  // namespace invar
