#include "invar/core/cpu_use.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>

namespace invar {

double CpuUse::waited_share() const {
    const double wanted = ran + waited;
    return wanted > 0 ? waited / wanted : std::numeric_limits<double>::quiet_NaN();
}

CpuUse CpuUse::operator-(const CpuUse& earlier) const {
    // Threads that ended meanwhile took their share with them.
    return {std::max(0.0, ran - earlier.ran), std::max(0.0, waited - earlier.waited)};
}

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
    return use;
}

}  // namespace invar
