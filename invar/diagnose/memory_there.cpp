#include "invar/diagnose/memory_there.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "invar/kernels/devices.h"
#include "invar/plan/cards.h"

namespace invar {

namespace {

MemoryThere of_host() {
    MemoryThere there;
    std::ifstream info("/proc/meminfo");
    std::string name, unit;
    for (std::int64_t value = 0; info >> name >> value; std::getline(info, unit)) {
        if (name == "MemTotal:") there.total = value << 10;
        if (name == "MemAvailable:") there.free = value << 10;
    }
    for (const auto& [limit, used] : {std::pair{"memory.max", "memory.current"},
                                      {"memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"}}) {
        std::int64_t most = 0, now = 0;
        std::ifstream a(std::filesystem::path("/sys/fs/cgroup") / limit),
            b(std::filesystem::path("/sys/fs/cgroup") / used);
        if (!(a >> most) || !(b >> now)) continue;
        there.total = std::min(there.total, most);
        there.free = std::min(there.free, std::max<std::int64_t>(0, most - now));
    }
    return there;
}

}  // namespace

MemoryThere memory_there(Device device) {
    if (device.is_cpu()) return of_host();
    const Card* const card = card_described(kernels_for(device).description());
    if (card == nullptr) return {};
    return {card->memory, std::max<std::int64_t>(0, card->memory - kernels_for(device).memory_used())};
}

}  // namespace invar
