#include "invar/diagnose/memory_there.h"

#include <algorithm>
#include <fstream>
#include <string>

#include "invar/core/control_groups.h"
#include "invar/kernels/devices.h"
#include "invar/plan/cards.h"

namespace invar {

namespace fs = std::filesystem;

namespace {

MemoryThere of_host(const fs::path& root) {
    MemoryThere there;
    std::ifstream info(root / "proc/meminfo");
    std::string name, unit;
    for (std::int64_t value = 0; info >> name >> value; std::getline(info, unit)) {
        if (name == "MemTotal:") there.total = value << 10;
        if (name == "MemAvailable:") there.free = value << 10;
    }
    for (const fs::path& group : control_groups("memory", root))
        for (const auto& [limit, used] :
             {std::pair{"memory.max", "memory.current"}, {"memory.limit_in_bytes", "memory.usage_in_bytes"}}) {
            std::int64_t most = 0, now = 0;
            if (!(std::ifstream(group / limit) >> most) || !(std::ifstream(group / used) >> now)) continue;
            there.total = std::min(there.total, most);
            there.free = std::min(there.free, std::max<std::int64_t>(0, most - now));
        }
    return there;
}

}  // namespace

MemoryThere memory_there(Device device, const fs::path& root) {
    if (device.is_cpu()) return of_host(root);
    const Card* const card = card_described(kernels_for(device).description());
    if (card == nullptr) return {};
    return {card->memory, std::max<std::int64_t>(0, card->memory - kernels_for(device).memory_used())};
}

}  // namespace invar
