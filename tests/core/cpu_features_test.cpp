#include "invar/core/cpu_features.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>

namespace invar {
namespace {

// What the kernel lists for the first processor; empty where it has no such list.
std::set<std::string> listed_flags() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        if (!line.starts_with("flags")) continue;
        std::istringstream words(line.substr(line.find(':') + 1));
        return {std::istream_iterator<std::string>(words), {}};
    }
    return {};
}

TEST(CpuFeatures, AreThoseThatTheKernelLists) {
    const std::set<std::string> flags = listed_flags();
    if (flags.empty()) GTEST_SKIP() << "no flags in /proc/cpuinfo";
    EXPECT_EQ(cpu_features().sse42, flags.contains("sse4_2"));
    bool all = true;
    for (const char* name : {"avx2", "fma", "f16c", "bmi1", "bmi2", "abm", "movbe"}) all = all && flags.contains(name);
    EXPECT_EQ(cpu_features().x86_v3, all);
}

}  // namespace
}  // namespace invar
