#include "invar/kernels/threads.h"

#include <omp.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <latch>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "invar/core/error.h"
#include "invar/core/control_groups.h"
#include "invar/kernels/kernels.h"

namespace invar {

namespace {

namespace fs = std::filesystem;

// Two numbers, of which the first may be "max" or -1 for no limit: time granted, and within what time.
std::optional<double> share_of(std::istream&& granted, std::istream&& period) {
    double quota = 0, within = 0;
    if (granted >> quota && period >> within && quota > 0 && within > 0) return quota / within;
    return {};
}

// The limit of one group.
std::optional<double> limit_of(const fs::path& group) {
    if (std::ifstream file(group / "cpu.max"); file) {
        std::string granted, period;
        file >> granted >> period;
        return share_of(std::istringstream(granted), std::istringstream(period));
    }
    return share_of(std::ifstream(group / "cpu.cfs_quota_us"), std::ifstream(group / "cpu.cfs_period_us"));
}

int default_threads() {
    if (const char* wish = std::getenv("OMP_NUM_THREADS"))
        if (const int count = std::atoi(wish); count > 0) return count;
    const int cores = omp_get_num_procs();
    const auto quota = cpu_quota();
    return quota ? std::clamp(int(std::ceil(*quota)), 1, cores) : cores;
}

// The OpenMP runtime ends the process where it cannot start its threads: as many are started first, all at once.
void check_can_start(int count) {
    std::latch all_here(1);
    std::vector<std::jthread> started;
    try {
        for (int i = 1; i < count; ++i) started.emplace_back([&] { all_here.wait(); });
    } catch (const std::system_error& error) {
        all_here.count_down();
        fail<UsageError>("cannot start {} threads ({}); use fewer: trainer.threads={}, or --threads", count,
                         error.code().message(), std::max<std::size_t>(1, started.size()));
    }
    all_here.count_down();
}

}  // namespace

int available_threads() {
    return default_threads();
}

void set_threads(int count) {
#ifdef __SANITIZE_THREAD__
    count = 1;  // libgomp's own locks are not instrumented, so that ThreadSanitizer would report every parallel loop
#endif
    count = count > 0 ? count : default_threads();
    check_can_start(count);
    omp_set_num_threads(count);
}

int threads() {
    return omp_get_max_threads();
}

std::optional<double> cpu_quota(const fs::path& root) {
    std::optional<double> smallest;
    for (const fs::path& group : control_groups("cpu", root))
        if (const auto limit = limit_of(group)) smallest = std::min(*limit, smallest.value_or(*limit));
    return smallest;
}

void spin_briefly(char** argv) {
    if (std::getenv("OMP_WAIT_POLICY") || std::getenv("GOMP_SPINCOUNT") || omp_get_max_threads() == 1) return;
    if (getauxval(AT_BASE) == 0) return;  // started through the dynamic linker, which is then what /proc/self/exe names
    char path[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0) return;
    path[length] = '\0';
    // Some 20 microseconds: a quiet machine is as fast as with the runtime's 300000, a shared one as with none.
    if (setenv("GOMP_SPINCOUNT", "1000", 0) != 0) return;
    execv(path, argv);
    unsetenv("GOMP_SPINCOUNT");  // still here: it could not be done, and nothing claims that it was
}

}  // namespace invar
