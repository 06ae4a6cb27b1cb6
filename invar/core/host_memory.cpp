#include "invar/core/host_memory.h"

#include <unistd.h>

#include <fstream>

namespace invar {

std::int64_t host_memory_bytes() {
    std::ifstream file("/proc/self/statm");
    std::int64_t all = 0, resident = 0;  // in pages
    if (!(file >> all >> resident)) return 0;
    return resident * std::int64_t(::sysconf(_SC_PAGESIZE));
}

}  // namespace invar
