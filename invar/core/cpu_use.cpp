#include "invar/core/cpu_use.h"

#include <fmt/format.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

namespace invar {

double CpuUse::waited_share() const {
    if (ran + waited <= 0) return std::numeric_limits<double>::quiet_NaN();
    // Nobody can be kept waiting by others for longer than those ran.
    return std::min(waited, others) / (ran + std::min(waited, others));
}

CpuUse CpuUse::operator-(const CpuUse& earlier) const {
    // Threads that ended meanwhile took their share with them.
    return {std::max(0.0, ran - earlier.ran), std::max(0.0, waited - earlier.waited),
            std::max(0.0, others - earlier.others)};
}

namespace {

// Seconds that all processors of the machine were busy, and those that a hypervisor gave to other machines.
double busy_seconds() {
    std::ifstream file("/proc/stat");
    std::string name;
    double user = 0, nice = 0, system = 0, idle = 0, waiting = 0, irq = 0, softirq = 0, steal = 0;
    file >> name >> user >> nice >> system >> idle >> waiting >> irq >> softirq >> steal;
    return (user + nice + system + irq + softirq + steal) / double(::sysconf(_SC_CLK_TCK));
}

}  // namespace

CpuUse cpu_use() {
    namespace fs = std::filesystem;
    CpuUse use;
    std::error_code error;
    for (fs::directory_iterator thread("/proc/self/task", error), end; !error && thread != end;
         thread.increment(error)) {
        std::ifstream file(thread->path() / "schedstat");  // nanoseconds: on a processor, ready but not on one
        double ran = 0.0, waited = 0.0;
        if (file >> ran >> waited) use.ran += ran * 1e-9, use.waited += waited * 1e-9;
    }
    timespec own{};  // with what threads had that have ended
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
    use.others = busy_seconds() - (double(own.tv_sec) + 1e-9 * double(own.tv_nsec));
    return use;
}

std::string disturbance_of(double waited_share, std::string_view who) {
    constexpr double kDisturbed = 0.1;  // from here on times say more about what else ran
    if (!(waited_share > kDisturbed)) return "";
    return fmt::format(
        "other work on this machine kept the threads of {} waiting for {:.0f}% of the time they could have run", who,
        100 * waited_share);
}

}  // namespace invar
